"""A GPU against the CPU and against itself: training, clipping, losses, writing, search, and whole runs.

`make gpu` runs these, where PyTorch sees a GPU.
"""

import copy
import json

import numpy as np
import pytest
import torch

from murmura import Experiment, run
from murmura.generation import decoder, recorded
from murmura.generation.sampling import Sampling
from murmura.generation.scoring import SUMS, score
from murmura.generation.writer import complete
from murmura.retrieval.search import nearest
from murmura.streams import Stream
from murmura.training.bank import Bank
from murmura.training.config import LocalTraining, LoraSpec
from murmura.training.loop import train
from tests.conftest import make_gpt2, make_llama, restless
from tests.retrieval.pools import unit
from tests.training import private_runs
from tests.training.helpers import EPS, ON_GPU, assert_close, assert_same, items, random_state

pytestmark = ON_GPU
GPU = "cuda"
WIDE = ("q_proj", "v_proj", "down_proj")
FAMILIES = {
    "llama": (make_llama, LoraSpec(rank=4, alpha=8, targets=WIDE)),
    "gpt2": (make_gpt2, LoraSpec(rank=4, alpha=8, targets=("c_attn", "c_fc"))),
    "dora": (make_llama, LoraSpec(rank=4, alpha=8, targets=WIDE, dora=True)),
    "last layer": (make_llama, LoraSpec(rank=4, alpha=8, targets=WIDE, layers="last 1")),
}
TRAINING = LocalTraining(epochs=2, batch_size=3, eps=EPS, tokens_per_pass=100)
STREAMS = [Stream(0) / f"site-{k}" for k in range(3)]
SHARDS = [items(size, seed=size) for size in (7, 2, 5)]  # rows of a pass are not equally many for each site
PROMPTS = [[11 + k, *range(40, 40 + 3 * k)] for k in range(7)]
SLOTS = [0, 1, 2, 1, 0, 2, 1]


@pytest.fixture(params=FAMILIES)
def pair(request, tokenizer):
    """The same bank on the CPU and on the GPU."""
    make, spec = FAMILIES[request.param]
    model = restless(make(tokenizer))
    return Bank(copy.deepcopy(model), spec), Bank(model.to(GPU), spec)


def states(bank):
    return [random_state(bank, seed, scale=0.2) for seed in range(3)]


def trained(bank, training=TRAINING, **options):
    return [result.state for result in train(bank, SHARDS, states(bank), training, 0.01, STREAMS, **options)]


def test_training_is_that_of_a_cpu(pair):
    for ours, theirs in zip(*(trained(bank) for bank in pair), strict=True):
        assert_close(theirs, ours, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_training_twice_gives_the_same_bits(tokenizer, dtype, dropout, optimizer):
    model = make_llama(tokenizer, hidden=256, layers=3).to(GPU, dtype)
    bank = Bank(model, LoraSpec(rank=4, alpha=8, targets=WIDE, dropout=dropout))
    training = TRAINING.model_copy(update={"optimizer": optimizer})
    first = trained(bank, training)
    for _ in range(3):
        for one, other in zip(first, trained(bank, training), strict=True):
            assert_same(one, other)


def test_a_private_step_is_that_of_a_cpu(pair):
    plans = [private_runs.plan(norm=0.05) for _ in SHARDS]
    for ours, theirs in zip(*(private_runs.run(bank, SHARDS, plans) for bank in pair), strict=True):
        assert_close(theirs.state, ours.state, atol=1e-4, rtol=1e-3)


def test_a_whole_model_trains_as_on_a_cpu(tokenizer):
    told = []
    for device in ("cpu", GPU):
        bank = Bank(make_llama(tokenizer).to(device), None)
        start = bank.initial(Stream(0))
        found = [
            train(bank, [shard], [start], TRAINING, 0.01, [stream])[0].state
            for shard, stream in zip(SHARDS, STREAMS, strict=True)
        ]
        assert bank.adds_nothing(start) and not bank.adds_nothing(found[0])
        told.append(found)
    for ours, theirs in zip(*told, strict=True):
        assert_close(theirs, ours, atol=1e-4, rtol=1e-3)


def test_losses_are_those_of_a_cpu(pair):
    told = []
    for bank in pair:
        bank.load(states(bank))
        told.append([one.nll for one in score(SUMS, bank, SHARDS[0], SLOTS, tokens_per_pass=60)])
    assert told[1] == pytest.approx(told[0], rel=1e-4)


def test_texts_are_those_of_a_cpu(pair, tokenizer):
    told = []
    for bank in pair:
        bank.load(states(bank))
        told.append([text.ids for text in complete(bank, tokenizer, PROMPTS, SLOTS, [12] * 7, rows=4)])
    assert told[1] == told[0]


def test_what_is_drawn_is_that_of_a_cpu_and_the_same_again(pair, tokenizer):
    def written(bank):
        bank.load(states(bank))
        how = {"sampling": Sampling(0.8, 0.95, 50), "streams": [Stream(0) / k for k in range(7)]}
        return [text.ids for text in complete(bank, tokenizer, PROMPTS, SLOTS, [12] * 7, rows=4, **how)]

    there = written(pair[1])
    assert written(pair[1]) == there == written(pair[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("slots", [SLOTS, [1] * 7])
@pytest.mark.parametrize("family", FAMILIES)
def test_steps_that_are_replayed_write_what_others_do(family, tokenizer, monkeypatch, dtype, slots):
    make, spec = FAMILIES[family]
    bank, found, record = Bank(restless(make(tokenizer)).to(GPU, dtype), spec), [], recorded.Recorded.record
    bank.load(states(bank))
    how = {"sampling": Sampling(0.8, 0.95, 50), "streams": [Stream(0) / k for k in range(7)], "rows": 3}

    def spied(*arguments):
        found.append(record(*arguments))
        return found[-1]

    def written():
        return [text.ids for text in complete(bank, tokenizer, PROMPTS, slots, [3, 9, 30, 30, 7, 5, 30], **how)]

    monkeypatch.setattr(recorded.Recorded, "record", spied)
    monkeypatch.setattr(decoder, "_RECORD_AT", 2)
    ours = written()
    assert found == [True] and written() == ours
    if dtype is torch.float32:  # of nearly equal tokens bfloat16 takes either
        monkeypatch.setattr(decoder, "DEVICES", set())
        assert written() == ours


@pytest.mark.parametrize("below", [None, 0.3])
def test_the_nearest_rows_are_those_of_a_cpu(below):
    vectors, queries = unit(5000, 384), unit(5, 384, seed=1)
    vectors[100:140] = vectors[:40]
    ours, theirs = (nearest(queries, vectors, 50, below=below, device=device) for device in ("cpu", GPU))
    for one, other in zip(ours, theirs, strict=True):
        assert np.array_equal(one.rows, other.rows) and np.array_equal(one.scores, other.scores)


@pytest.mark.parametrize("quantization", [None, "int8", "4bit"])
@pytest.mark.parametrize("method", ["fedit", "fewfedpit"])
def test_a_run(wide_folder, tmp_path, quantization, method):
    records = "".join(f'{{"instruction": "letter {k}", "output": "dear {k}, it is well"}}\n' for k in range(24))
    (tmp_path / "records.jsonl").write_text(records)
    model = {"name": str(wide_folder)}
    tables = {
        "run": {"folder": str(tmp_path / "run")},
        "model": model | ({"quantization": quantization} if quantization else {}),
        "data": {
            "train": str(tmp_path / "records.jsonl"),
            "heldout_records": 6,
            "sites": {"by": "partition", "count": 3, "records": 6},
        },
        "training": {"batch_size": 2},
        "method": {"name": method, "rounds": 2},
    }
    if method == "fewfedpit":
        tables["method"] |= {"keep": 1, "instruction_attempts": 1, "example_attempts": 1, "example_tokens": 12}
    result = run(Experiment.of(tables, base=tmp_path))
    assert (tmp_path / "run" / "report.html").exists()
    assert json.loads((tmp_path / "run" / "environment.json").read_text())["device"].startswith("cuda: ")
    assert result.rows[-1]["heldout_loss"] < result.rows[0]["heldout_loss"]

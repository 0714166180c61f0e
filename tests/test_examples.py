"""Every experiment file under examples/ can be read, and planned with a tiny model and small files in its places."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import murmura
from murmura.data.hub import is_hub_id
from murmura.experiment import Experiment
from murmura.experiment.plan import plan
from tests.experiment.small import record, write_lines

EXAMPLES = Path(murmura.__file__).parents[2] / "examples"
FILES = sorted(EXAMPLES.rglob("*.toml"))
PAPERS = sorted((EXAMPLES / "papers").glob("fewfedpit-*.toml"))
DPLORA = {
    "dplora-gpt2": "openai-community/gpt2", "dplora-llama2-7b": "meta-llama/Llama-2-7b-hf",
    "dplora-chatglm-6b": "THUDM/chatglm-6b",
}  # fmt: skip
NAMES = [file.stem for file in FILES]


@pytest.fixture
def places(tmp_path, llama_folder):
    """What is put in the place of an example's model and data: 1200 records, 60 of other kinds held out."""
    rows = [record(f"heart {n // 40}", n) for n in range(1200)]
    rows = [row | {"src": row["instruction"], "tgt": row["output"]} for row in rows]
    write_lines(tmp_path / "train.jsonl", rows)
    write_lines(tmp_path / "heldout.jsonl", [record("kidney", n) | {"gpt-4-answer": "call"} for n in range(60)])
    model = {"model.name": str(llama_folder), "model.quantization": None, "run.folder": str(tmp_path / "run")}
    return model | {"data.train": str(tmp_path / "train.jsonl"), "data.heldout": str(tmp_path / "heldout.jsonl")}


def test_there_are_examples():
    assert [file.stem for file in PAPERS] == ["fewfedpit-alpaca", "fewfedpit-medalpaca", "fewfedpit-medinstruct"]
    assert len(FILES) > len(PAPERS)


@pytest.mark.parametrize("file", FILES, ids=NAMES)
def test_an_example_says_how_it_is_run(file):
    header = file.read_text(encoding="utf-8").partition("\n[")[0]
    assert all(line.startswith("#") or not line for line in header.splitlines())
    assert f"murmura run {file.relative_to(EXAMPLES.parent).as_posix()}\n" in header


@pytest.mark.parametrize("file", FILES, ids=NAMES)
def test_an_example_is_planned(file, places):
    named = Experiment.load(file)
    kept = set() if named.data.sites.by == "partition" else {"data.train"}
    if named.data.heldout is None or kept:
        kept.add("data.heldout")
    found = plan(Experiment.load(file, set={key: value for key, value in places.items() if key not in kept}))
    assert found.unknown == []
    assert found.rounds and all(planned.steps and planned.bytes_up for planned in found.rounds)
    assert found.model.trainable > 0 and found.memory.total > 0
    assert not Path(places["run.folder"]).exists()


@pytest.mark.parametrize("file", PAPERS, ids=[file.stem for file in PAPERS])
def test_a_paper_s_own_figures(file, places):
    table = tomllib.loads(file.read_text(encoding="utf-8"))
    experiment = Experiment.load(file)
    few, sites, method = experiment.data.few_shot, experiment.data.sites, experiment.method
    records = 500 if "medinstruct" in file.stem else 1000
    assert few.clusters * few.per_cluster == records
    assert is_hub_id(table["data"]["train"])
    assert (experiment.model.name, experiment.model.quantization) == ("meta-llama/Llama-2-7b-hf", "int8")
    assert (experiment.lora.rank, experiment.training.batch_size, experiment.training.epochs) == (16, 8, 1)
    assert (method.beta, method.keep, method.drafts, method.rouge) == (0.5, 16, 32, 0.7)
    assert (method.instructions_shown, method.examples_shown, method.example_attempts) == (8, 4, 3)
    assert (sites.scheme, sites.alpha) == ("dirichlet-equal", 1.0)
    asked, rounds = (10, 10) if "medinstruct" in file.stem else (2, 30)
    keep_heldout = {"data.heldout"} if experiment.data.heldout is None else set()
    found = plan(Experiment.load(file, set={k: v for k, v in places.items() if k not in keep_heldout}))
    assert [planned.sites for planned in found.rounds] == [asked] * rounds
    assert sum(site.records for site in found.sites) <= records


@pytest.mark.parametrize(("name", "model"), DPLORA.items())
def test_dplora_s_own_figures(name, model, places):
    file = EXAMPLES / "papers" / f"{name}.toml"
    experiment = Experiment.load(file)
    training, method = experiment.training, experiment.method
    assert experiment.model.name == model
    assert is_hub_id(tomllib.loads(file.read_text(encoding="utf-8"))["data"]["train"])
    assert (experiment.lora.rank, experiment.data.sites.count, method.rounds) == (512, 5, 50)
    assert (training.batch_size, training.max_steps, training.lr, training.clip) == (8, 1, 5e-4, 10)
    assert (method.noise_multiplier, method.epsilon, method.clipping, method.groups) == (2, None, "batch", "factors")
    found = plan(Experiment.load(file, set={k: v for k, v in places.items() if k != "data.heldout"}))
    assert [(planned.sites, planned.steps) for planned in found.rounds] == [(5, 5)] * 50
    assert found.label == "DP-LoRA σ=2 (paper)"

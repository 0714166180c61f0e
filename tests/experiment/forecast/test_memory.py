"""What a dry run counts of memory: what passes keep, and the states that are kept."""

import gc
from dataclasses import replace

import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from murmura.experiment.forecast.memory import peak, states
from murmura.experiment.model_spec import model_spec
from murmura.experiment.run import run
from tests.experiment import small
from tests.experiment.small import METHODS

RECORDS = 5
TWICE = METHODS["lpfl"] | {"patterns": ["{text} it was {blank}", "{blank}: {text}"]}


def test_dora_keeps_the_outputs_of_adapted_layers(tmp_path, llama_folder):
    def counted(**lora):
        less = {"training": {"tokens_per_pass": 128}, "run": {"decode_rows": 1}}  # else writing takes more
        experiment = small.experiment(tmp_path, llama_folder, lora=lora, **less)
        seen = model_spec(experiment, fetch=False)
        return peak(experiment, seen, 1).passing, seen

    (lora, seen), (dora, other) = counted(dora=False), counted(dora=True)
    outputs = sum(len(tensor) for name, tensor in seen.state.items() if ".lora_B." in name)
    assert dora - lora == pytest.approx(1.4 * 128 * outputs * 4, abs=1)  # of float32; 1.4 is the allocator's
    assert other.trainable - seen.trainable == outputs


@pytest.mark.parametrize(("method", "patterns"), [(METHODS["fedavg"], 1), (TWICE, 2)])
def test_hidden_states_are_counted_as_often_as_records_are_read(tmp_path, deep_folder, method, patterns):
    def counted(most, layers="last 1"):
        experiment = small.experiment(
            tmp_path,
            deep_folder,
            method,
            lora={"layers": layers},
            run={"cache_bytes": most},
            evaluation={"sample": 16, "uploads": 2},
        )
        seen = model_spec(experiment, fetch=False)
        return states(experiment, seen, RECORDS), peak(experiment, seen, 2, (), RECORDS).states, seen.config

    whole, held, config = counted(2**30)
    assert whole == held == patterns * RECORDS * 128 * config.hidden_size * 4
    assert counted(1000)[:2] == (whole, 1000)
    assert counted(0)[:2] == (0, 0)
    assert counted(2**30, "all")[:2] == (0, 0)


@pytest.mark.parametrize(
    ("kind", "width", "inner", "keys"),
    [
        ("llama", 4096, 11008, 2 * 32 * 32 * 128),
        ("mamba", 768, 1536, 0),  # no attention
        ("mamba2", 4096, 4 * 4096, 0),  # nor an inner width that its config names
        ("gemma3n_text", 2048, 16384, 2 * 35 * 2 * 256),  # an inner width for each layer
        ("gemma4_text", 2304, 9216, 2 * 30 * 4 * 512),  # keys of two widths
    ],
)
def test_every_architecture_has_keys_and_widths_that_are_counted(tmp_path, llama_folder, kind, width, inner, keys):
    from transformers import AutoConfig

    experiment = small.experiment(
        tmp_path, llama_folder, run={"decode_rows": 10**6}, model={"device": "cpu", "dtype": "float32"}
    )
    seen = model_spec(experiment, fetch=False)
    passing = peak(experiment, replace(seen, config=AutoConfig.for_model(kind)), 1).passing
    written = 10**6 * 128 * (keys + (8 * width + 3 * inner) // 2) * 4
    assert passing == int(written * 1.4 + seen.parameters * 4)  # 1.4 is the allocator's; a copy of the base lies beside


def test_a_preference_is_two_sequences(tmp_path, deep_folder):
    def counted(kind, **training):
        last = {"lora": {"layers": "last 1"}, "run": {"decode_rows": 1}, "training": training}
        experiment = small.experiment(tmp_path, deep_folder, **last)
        experiment = experiment.model_copy(update={"data": experiment.data.model_copy(update={"kind": kind})})
        found = peak(experiment, model_spec(experiment, fetch=False), 1, (), RECORDS)
        return found.states, found.passing

    one, two = (counted(kind, batch_size=1, tokens_per_pass=1024) for kind in ("instruction", "preference"))
    assert two[0] == 2 * one[0]
    assert two == counted("preference", batch_size=1, tokens_per_pass=1)  # a pair is never parted
    assert two[1] == pytest.approx(2 * one[1], rel=0.01)


def tensors():
    """All that Python knows of."""
    gc.collect()
    return [found for found in gc.get_objects() if isinstance(found, torch.Tensor) and found.device.type == "cpu"]


@pytest.mark.usefixtures("no_page")
def test_copies_of_a_model_that_trains_whole_are_counted(tmp_path, llama_folder):
    small.write_data(tmp_path)
    whole = {"trainable": "all", "device": "cpu"}
    experiment = small.experiment(tmp_path, llama_folder, model=whole, evaluation={"uploads": 0})
    seen = model_spec(experiment, fetch=False)
    memory, _ = peak(experiment, seen, 2), seen.bank  # what is loaded once, the tests keep: not in what the run adds
    before, lying = tensors(), []
    others = {found.untyped_storage().data_ptr() for found in before}

    def look(*_):
        storages = {one.data_ptr(): one.nbytes() for one in (found.untyped_storage() for found in tensors())}
        lying.append(sum(size for place, size in storages.items() if place not in others))

    hook = register_optimizer_step_post_hook(look)
    try:
        run(experiment)
    finally:
        hook.remove()
    step = 2 * memory.adapters // memory.copies  # what AdamW takes in passing lies nowhere after a step
    assert max(lying) == pytest.approx(memory.base + memory.adapters - step, rel=0.05)

"""Adapters that travel in fewer bits, and what that leaves of a run."""

import json
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from safetensors.torch import load_file

from murmura.aggregation.travel import BLOCK, packed, size, unpacked, with_feedback
from murmura.errors import ConfigError
from murmura.experiment.forecast.dry_run import dry_run
from murmura.experiment.run import run
from murmura.experiment.validate import method_of
from murmura.federation.site.cohort import Cohort
from murmura.runs import read
from murmura.training.adapter import MAGNITUDE
from tests.experiment import small
from tests.experiment.small import WRITING

KINDS = ("bfloat16", "int8")
SMALLEST = 1e-43  # below it a float32 has so few digits left that a scale is off by up to a half
numbers = st.floats(-1e4, 1e4, width=32)
tensors = arrays.arrays(np.float32, arrays.array_shapes(max_dims=2, max_side=40), elements=numbers).map(torch.tensor)


def by_hand(tensor):
    """Every number by its own: to the nearest of the 255 that its block has."""
    flat, after = tensor.flatten().double(), []
    for start in range(0, len(flat), BLOCK):
        block = flat[start : start + BLOCK]
        step = float(block.abs().max().float() / 127)
        after += [round(float(one) / step) * step if step else 0.0 for one in block]
    return torch.tensor(after, dtype=torch.float64).view(tensor.shape)


@given(tensors)
def test_int8_is_the_nearest_step_of_its_block(tensor):
    state = packed({"w": tensor}, "int8")
    assert (state["w"].dtype, state["w"].shape) == (torch.int8, tensor.shape)
    step = tensor.abs().max() / 127
    assert ((unpacked(state)["w"] - tensor).abs() <= step * 0.5001 + SMALLEST).all()
    assert torch.allclose(unpacked(state)["w"].double(), by_hand(tensor), atol=float(step) * 1e-3 + SMALLEST, rtol=1e-6)


def test_a_scale_that_is_rounded_down_turns_no_number_round():
    tensor = torch.tensor([190, -190]) * torch.tensor(2.0**-149)
    assert torch.equal(packed({"w": tensor}, "int8")["w"], torch.tensor([127, -127], dtype=torch.int8))


@given(tensors)
def test_bfloat16_is_torch_s_and_float32_is_left_alone(tensor):
    state = {"w": tensor}
    assert torch.equal(unpacked(packed(state, "bfloat16"))["w"], tensor.bfloat16().float())
    assert packed(state, "float32") is state and torch.equal(unpacked(state)["w"], tensor)


@pytest.mark.parametrize("kind", ["float32", *KINDS])
@given(tensors)
def test_bytes_are_those_that_travel(kind, tensor):
    state = packed({"w": tensor}, kind)
    assert size({"w": tensor}, kind) == sum(one.numel() * one.element_size() for one in state.values())


@pytest.mark.parametrize("kind", KINDS)
@given(st.lists(arrays.arrays(np.float32, (3, 100), elements=st.floats(-1, 1, width=32)), min_size=1, max_size=6))
def test_what_has_arrived_is_all_that_was_sent_but_for_what_is_carried(kind, changes):
    carried, arrived = {}, torch.zeros(3, 100, dtype=torch.float64)
    for change in changes:
        sent, carried = with_feedback({"w": torch.tensor(change)}, carried, kind)
        arrived += unpacked(sent)["w"].double()
    whole = sum(torch.tensor(change).double() for change in changes)
    assert torch.allclose(arrived + carried["w"].double(), whole, atol=1e-5)


def test_what_does_not_travel_now_is_carried_on():
    _, carried = with_feedback({"a": torch.tensor([1.0, 0.3])}, {"b": torch.tensor([0.1])}, "int8")
    assert carried["b"] == 0.1 and carried["a"].shape == (2,)


# ---- runs --------------------------------------------------------------------------------------------------------


@pytest.fixture
def make(tmp_path, llama_folder, no_page):
    small.write_data(tmp_path)
    return partial(small.experiment, tmp_path, llama_folder)


def adapters(folder):
    """Bytes of adapters that have left the sites."""
    rows = json.loads((folder / "disclosure.json").read_text())
    return sum(row["bytes"] for row in rows if row["field"] == "adapter")


@pytest.mark.parametrize("rule", ["mean", "ffa", "rolora", "fedsa", "median"])
def test_a_run_ends_near_where_it_would_and_sends_as_much_as_foreseen(make, rule):
    losses, sent = {}, {}
    for kind in ("float32", *KINDS):
        asked = make(aggregation={"rule": rule, "travel": kind}, evaluation={"attacks": False, "uploads": 0})
        foreseen = dry_run(asked).rounds
        result = run(asked, overwrite=True)
        losses[kind], sent[kind] = result.rows[-1]["heldout_loss"], adapters(result.folder)
        assert sent[kind] == sum(one.bytes_up for one in foreseen)
    moved = abs(losses["float32"] - result.rows[0]["heldout_loss"])
    for kind, share in (("bfloat16", 0.51), ("int8", 0.35)):  # its blocks are short here
        assert abs(losses[kind] - losses["float32"]) < 0.1 * moved
        assert sent[kind] < share * sent["float32"]


@pytest.mark.parametrize("server", ["plain", "fedadam"])
def test_steps_far_below_those_of_the_rounding_are_not_lost(make, server):
    """What is sent down is rounded by more than all rounds together move it."""

    def end(kind, lr):
        options = {"aggregation": {"server": server, "travel": kind}, "evaluation": {"attacks": False, "uploads": 0}}
        folder = run(make({"rounds": 5}, training={"lr": lr, "lr_min": lr}, **options), overwrite=True).folder
        return load_file(folder / "adapter" / "adapter_model.safetensors")

    start, whole = end("float32", 1e-12), end("float32", 1e-5)
    for rounded in (end(kind, 1e-5) for kind in KINDS):
        for name, tensor in whole.items():
            moved, off = (tensor - start[name]).norm(), (rounded[name] - tensor).norm()
            assert moved > 0 and off < 0.3 * moved, name  # lost, it would be 2 to 30 times as far off


@pytest.mark.parametrize("travel", KINDS)
def test_dora_s_magnitudes_travel_as_they_are(make, travel):
    magnitudes = {f"m{MAGNITUDE}": torch.linspace(0.5, 1.4, 9), "m.lora_A.weight": torch.linspace(0.5, 1.4, 9)}
    arrived = unpacked(packed(magnitudes, travel))
    assert [bool(torch.equal(arrived[name], magnitudes[name])) for name in magnitudes] == [True, False]
    asked = make(
        lora={"dora": True}, aggregation={"travel": travel}, evaluation={"attacks": False, "uploads": 0, "sample": 1}
    )
    foreseen = sum(one.bytes_up for one in dry_run(asked).rounds)
    assert adapters(run(asked).folder) == foreseen


def test_what_is_carried_is_kept_and_goes_back_with_the_round(make, monkeypatch):
    asked = make({"rounds": 3}, aggregation={"travel": "int8"}, evaluation={"attacks": False, "uploads": 0})
    whole, carried, rounded = run(asked).rows[-1], [], Cohort._rounded

    def fails(self, site, upload):
        if self.round == 3:
            carried.append(site.store["carried"])
            raise MemoryError
        return rounded(self, site, upload)

    with monkeypatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr(Cohort, "_rounded", fails)
        run(asked, overwrite=True)
    assert any(bool(tensor.any()) for tensor in carried[0].values())
    assert run(asked, resume=True).rows[-1]["heldout_loss"] == whole["heldout_loss"]


def test_fewfedpit_travels_in_fewer_bits_too(make):
    method = {"name": "fewfedpit", "rounds": 1, **WRITING}
    result = run(make(method, aggregation={"travel": "int8"}, evaluation={"attacks": True, "uploads": 2}))
    assert read(result.folder).label.endswith(", travels as int8")
    assert read(result.folder).last.attacks  # single uploads are attacked as they arrive


@pytest.mark.parametrize("damage", ["shape", "dtype", "missing", "more", "no state"])
def test_a_site_that_sends_no_such_change_is_left_out_by_name(make, monkeypatch, damage):
    rounded = Cohort._rounded

    def lying(self, site, upload):
        state = rounded(self, site, upload)
        name = next(one for one in state if not one.endswith(".scales"))
        if site.name != "skin":
            return state
        return {
            "shape": {**state, name: state[name][:1]},
            "dtype": {**state, name: state[name].to(torch.int64) * 2**50},
            "missing": {other: one for other, one in state.items() if other != name + ".scales"},
            "more": {**state, "else": state[name]},
            "no state": state[name],
        }[damage]

    monkeypatch.setattr(Cohort, "_rounded", lying)
    asked = make({"rounds": 1}, aggregation={"travel": "int8"}, evaluation={"attacks": False, "uploads": 0})
    [event] = run(asked).rows[-1]["events"]
    assert event == "the answer of site skin to 'train' is left out: 'adapter' is no change of what was sent, in int8"


@pytest.mark.parametrize(
    ("method", "aggregation", "why"),
    [
        ({}, {"secure": True}, "'travel' does not go with 'secure'"),
        ({}, {"rule": "flora"}, "'travel' does not go with rule 'flora'"),
        ({}, {"ranks": [1, 2]}, "'travel' does not go with rule 'mean' with 'ranks'"),
        ({"name": "dpfedavg", "noise_multiplier": 1.0}, {}, "needs uploads whole, to the last bit"),
        ({"name": "dplora", "noise_multiplier": 1.0}, {}, "needs uploads whole, to the last bit"),
        ({"name": "local"}, {}, "aggregates in a way of its own"),
    ],
)
def test_where_it_cannot_be_it_is_refused(make, method, aggregation, why):
    with pytest.raises(ConfigError, match=why):
        method_of(make(method, aggregation={"travel": "int8", **aggregation}))

"""T-FedAvg: training through ternary weights, a sixteenth of the bytes, and float weights where ternary ones fail."""

import pytest
import torch

from murmura.aggregation.mean import shapes
from murmura.aggregation.ternary import SERVER_THRESHOLD, dequantise, quantise, ternary
from murmura.federation.engines.local import LocalEngine
from murmura.federation.site.cohort import Cohort
from murmura.federation.wire.messages import Ask
from murmura.methods.dplora.baselines import TFedAvg, VanillaFL
from murmura.methods.dplora.config import TFedAvgConfig, VanillaFLConfig
from murmura.methods.dplora.tfedavg import ternary_pass
from murmura.training.bank import Bank
from murmura.training.loop import train
from tests.aggregation.means import weighted_mean
from tests.conftest import make_llama
from tests.federation.world import SPEC, TRAINING, failing, lead, lying, make_world
from tests.training.helpers import assert_close, assert_same, random_state


def tfedavg(rounds=2, **options):
    return TFedAvg(TFedAvgConfig(rounds=rounds, **options))


def through_the_wire(state, quantised):
    return dequantise(quantised.codes, quantised.scales, shapes(state))


@pytest.fixture
def bank(tokenizer):
    return Bank(make_llama(tokenizer), SPEC)


def test_a_pass_sees_ternary_values_and_leaves_the_others(bank):
    states = [random_state(bank, seed) for seed in (1, 2)]
    bank.load(states)
    with bank.trainable():
        bank.grad.zero_()
        with ternary_pass(bank):
            seen = [bank.read(slot) for slot in range(2)]
            bank.grad.copy_(torch.arange(2 * bank.size).view(2, -1))
        gradients = [bank.unpack(row.clone()) for row in bank.grad]
    branches = set()
    for slot, state in enumerate(states):
        assert_same(bank.read(slot), state)
        plain = bank.unpack(torch.arange(slot * bank.size, (slot + 1) * bank.size).float())
        for name, theta in state.items():
            codes, scale = ternary(theta, 0.07)
            assert torch.equal(seen[slot][name], codes * scale)
            branches |= set(codes.abs().unique().tolist())
            expected = torch.where(codes != 0, scale * plain[name], plain[name])
            torch.testing.assert_close(gradients[slot][name], expected)
    assert branches == {0, 1}


def test_values_come_back_where_a_pass_fails(bank):
    state = random_state(bank, 1)
    bank.load([state])
    with bank.trainable(), pytest.raises(RuntimeError, match="no memory"), ternary_pass(bank):
        raise RuntimeError("no memory")
    assert_same(bank.read(0), state)


def test_training_goes_through_it(tokenizer, tmp_path):
    """One SGD step: θ − γ·(rule applied to the gradient at the ternary values)."""
    sgd = TRAINING.model_copy(update={"optimizer": "sgd", "clip": 0.0, "max_steps": 1, "lr": 0.5})
    world = make_world(tokenizer, tfedavg(), tmp_path, training=sgd)
    bench, site = world.runtime, world.sites[0]
    start = random_state(bench.bank, 3)
    cohort = Cohort([site], bench, Ask("train_ternary", 1), world.fleet.stream)
    found = cohort.train(cohort.own(), [start], 0.5, "private", around=ternary_pass)[0].state
    light = through_the_wire(start, quantise(start))
    plain = train(bench.bank, cohort.own(), [light], sgd, 0.5, cohort.streams("private"))[0].state
    expected = {}
    for name, theta in start.items():
        codes, scale = ternary(theta, 0.07)
        step = plain[name] - light[name]
        expected[name] = theta + torch.where(codes != 0, scale * step, step)
    assert_close(found, expected, atol=1e-6)


def test_a_round_by_hand(tokenizer, tmp_path):
    world = make_world(tokenizer, method := tfedavg(rounds=1, tolerance=1e9), tmp_path)
    start = through_the_wire(world.server.adapter, quantise(world.server.adapter, SERVER_THRESHOLD))
    method.lead(world.server, world.fleet)
    uploads = []
    for site in world.sites:
        cohort = Cohort([site], world.runtime, Ask("train_ternary", 1), world.fleet.stream)
        trained = cohort.train(cohort.own(), [start], TRAINING.lr, "private", around=ternary_pass)[0].state
        uploads.append((through_the_wire(trained, quantise(trained)), 1))
    mean = weighted_mean(uploads)
    assert_close(world.server.adapter, through_the_wire(mean, quantise(mean, SERVER_THRESHOLD)))


def test_a_fresh_adapter_survives_its_zeros(tokenizer, tmp_path):
    world = lead(tokenizer, tfedavg(tolerance=1e9), tmp_path)
    assert all(torch.isfinite(t).all() for t in world.server.adapter.values())
    assert any(t.any() for name, t in world.server.adapter.items() if "lora_B" in name)


def test_bytes_are_a_sixteenth_both_ways(tokenizer, tmp_path):
    wide = SPEC.model_copy(update={"rank": 32})
    light = lead(tokenizer, tfedavg(tolerance=1e9), tmp_path / "ternary", lora=wide)
    full = lead(tokenizer, VanillaFL(VanillaFLConfig(rounds=2)), tmp_path / "float", lora=wide)
    weights = {row["field"]: row["bytes"] for row in light.ledger.table() if row["kind"] == "weights"}
    whole = next(row["bytes"] for row in full.ledger.table() if row["field"] == "adapter")
    entries = light.runtime.bank.manifest
    assert weights["codes"] == whole / 16  # the tiny model's tensors hold a multiple of four elements each
    assert weights["scales"] == 3 * 2 * 4 * len(entries)
    assert sum(weights.values()) < whole / 15
    down = [sum(row["bytes_down"] for row in world.server.rows) for world in (light, full)]
    assert down[0] < down[1] / 14  # with the ask's own fields
    assert light.server.rows[1]["counts"] == {"sent_down.ternary": 1}


def test_the_float_mean_goes_down_where_the_ternary_one_is_too_bad(tokenizer, tmp_path, monkeypatch):
    from murmura.methods.dplora import tfedavg as module

    losses = iter([[1.0, 1.0], [1.031, 1.0], [1.03, 1.0]])
    monkeypatch.setattr(module, "losses", lambda bench, adapters, records: next(losses))
    world = lead(tokenizer, tfedavg(rounds=2), tmp_path)
    assert [row["counts"] for row in world.server.rows[1:]] == [{"sent_down.ternary": 1}, {"sent_down.float": 1}]
    size = 4 * world.runtime.bank.size
    assert world.server.rows[1]["bytes_down"] < 3 * size < world.server.rows[2]["bytes_down"]
    assert world.server.store["ternary"] is True


def test_the_ternary_adapter_is_measured_against_the_float_one(tokenizer, tmp_path):
    """A tolerance of none keeps whichever is better, by the held-out records themselves."""
    world = make_world(tokenizer, tfedavg(tolerance=0), tmp_path)
    state = random_state(world.runtime.bank, 4, scale=0.5)
    from murmura.measure.heldout import losses
    from murmura.methods.dplora.tfedavg import settle

    light = through_the_wire(state, quantise(state, SERVER_THRESHOLD))
    found = losses(world.runtime, world.server.evaluation_set, [light, state])
    settle(world.server, state, 0)
    assert_same(world.server.adapter, light if found[0] <= found[1] else state)
    settle(world.server, state, abs(found[0] / found[1] - 1) + 1e-3)
    assert_same(world.server.adapter, light)


def test_uploads_are_attacked_as_what_they_stand_for(tokenizer, tmp_path):
    from murmura.measure.config import EvaluationConfig

    world = lead(tokenizer, tfedavg(rounds=1), tmp_path, evaluation=EvaluationConfig(sample=2, uploads=1))
    assert world.server.rows[1]["upload_auc"] is not None


@pytest.mark.parametrize(
    "fields",
    [{}, {"codes": 1.0, "scales": 1.0}, {"codes": {"w": torch.zeros(2, dtype=torch.uint8)}, "scales": torch.zeros(1)}],
)
def test_codes_of_another_adapter_are_left_out(tokenizer, tmp_path, fields):
    world = lead(tokenizer, tfedavg(rounds=1), tmp_path, engine=lying(LocalEngine, {"train_ternary": fields}))
    assert any("site-1 to 'train_ternary' is left out" in one for one in world.server.rows[1]["events"])


def test_codes_of_an_adapter_that_nobody_could_go_on_with_are_left_out(tokenizer, tmp_path):
    codes = quantise(make_world(tokenizer, tfedavg(), tmp_path / "other").server.adapter)
    far = {"codes": codes.codes, "scales": torch.full_like(codes.scales, 1e30), "loss": 1.0}
    world = lead(tokenizer, tfedavg(), tmp_path, engine=lying(LocalEngine, {"train_ternary": far}))
    for row in world.server.rows[1:]:
        assert any("site-1 to 'train_ternary' is left out" in one and "longer than" in one for one in row["events"])


def test_a_dead_site_is_left_out(tokenizer, tmp_path):
    engine = failing(LocalEngine, lambda site, ask: site == "site-1" and ask.verb == "train_ternary")
    world = lead(tokenizer, tfedavg(rounds=1), tmp_path, engine=engine)
    assert next(row["messages"] for row in world.ledger.table() if row["field"] == "codes") == 2

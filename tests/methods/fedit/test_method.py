"""The FedIT family: each algorithm, on either engine, with sites that fail and losses that explode."""

import pytest
import torch

from murmura.aggregation.config import AggregationConfig
from murmura.errors import RunError
from murmura.federation.engines.local import LocalEngine
from murmura.federation.server.checkpoint import latest
from murmura.federation.site.cohort import Cohort
from murmura.federation.wire.messages import Ask, Reply
from murmura.measure.config import EvaluationConfig
from murmura.methods import build, parse_config
from murmura.methods.fedit.config import FedITConfig
from murmura.methods.fedit.method import FedIT
from murmura.training.adapter import subtract, zeros_like
from murmura.training.config import LocalTraining
from tests.aggregation.means import weighted_mean
from tests.experiment.small import ALGORITHMS
from tests.federation.engines.wired import Wired
from tests.federation.world import MEASURED, TRAINING, Scripted, failing, lead, make_world
from tests.training.helpers import assert_close, assert_same

SGD = LocalTraining(lr=0.05, batch_size=2, optimizer="sgd", clip=0, schedule="constant")


def fedit(algorithm, rounds=2, *, sites_per_round=None, **options):
    """A method by what papers call it; options are those of its local rule or server's step."""
    sections = ALGORITHMS[algorithm]
    chosen = {"rounds": rounds} | ({"sites_per_round": sites_per_round} if sites_per_round else {})
    config = parse_config({"name": "fedit", **sections.get("method", {}), **chosen}, "my.toml")
    parts = {part: {"kind": kind, **options} for part, kind in sections.get("aggregation", {}).items()}
    return build(config, AggregationConfig(**parts))


def outcome(world):
    """Every adapter that a run left behind, and what server and sites remember."""
    stores = {f"{site}/{name}": state for site, store in world.stores().items() for name, state in store.items()}
    control = {"control": world.server.store["control"]} if "control" in world.server.store else {}
    return {"global": world.server.adapter, **control, **stores}


def assert_close_outcomes(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name, state in theirs.items():
        if isinstance(state, int):
            assert ours[name] == state
        else:
            assert_close(ours[name], state, atol=1e-5 if "control" not in name else 1e-3)


# ---- engines, slots ----------------------------------------------------------------------------------------------


# Every other part of aggregation goes over the wire in methods/test_averaging.
@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold", "local"])
def test_both_engines_give_the_same(tokenizer, tmp_path, algorithm):
    local = lead(tokenizer, fedit(algorithm), tmp_path / "local", evaluation=MEASURED)
    wire = lead(tokenizer, fedit(algorithm), tmp_path / "wire", engine=Wired, evaluation=MEASURED)
    assert_close_outcomes(outcome(wire), outcome(local))
    for ours, theirs in zip(wire.ledger.table(), local.ledger.table(), strict=True):
        digits = 20 if theirs["kind"] == "metric" else 0  # of losses whose last digits differ
        assert ours.pop("bytes") == pytest.approx(theirs.pop("bytes"), abs=digits)
        assert ours == theirs
    for ours, theirs in zip(wire.server.rows, local.server.rows, strict=True):
        assert ours["bytes_down"] == theirs["bytes_down"]
        assert ours["heldout_loss"] == pytest.approx(theirs["heldout_loss"], abs=1e-5)


def test_all_parameters_on_both_engines(tokenizer, tmp_path):
    local = lead(tokenizer, fedit("scaffold"), tmp_path / "local", lora=None)
    wire = lead(tokenizer, fedit("scaffold"), tmp_path / "wire", lora=None, engine=Wired)
    assert "model.embed_tokens.weight" in local.server.adapter
    assert_close_outcomes(outcome(wire), outcome(local))
    assert local.server.rows[2]["heldout_loss"] < local.server.rows[0]["heldout_loss"]


def test_results_do_not_depend_on_the_number_of_slots(tokenizer, tmp_path):
    many = lead(tokenizer, fedit("scaffold"), tmp_path / "many", slots=8)
    for slots in (1, 2):
        few = lead(tokenizer, fedit("scaffold"), tmp_path / str(slots), slots=slots)
        assert_close_outcomes(outcome(few), outcome(many))


def test_algorithms_differ(tokenizer, tmp_path):
    """None of them is silently another one."""
    federated = [a for a in ALGORITHMS if a not in ("local", "centralised")]
    found = {a: lead(tokenizer, fedit(a), tmp_path / a).server.adapter for a in federated}
    vectors = {a: torch.cat([t.flatten() for t in state.values()]) for a, state in found.items()}
    for first in vectors:
        for second in vectors:
            assert first == second or not torch.allclose(vectors[first], vectors[second], atol=1e-7), (first, second)


# ---- one by one --------------------------------------------------------------------------------------------------


def site_results(world, start, lr, **options):
    """What each site alone makes of the global adapter in round 1."""
    found = []
    for site in world.sites:
        cohort = Cohort([site], world.runtime, Ask("train", 1), world.fleet.stream)
        found.append(cohort.train(cohort.own(), [start], lr, "private", **options)[0])
    return found


def test_fedavg_is_the_mean_weighted_by_records(tokenizer, tmp_path):
    world = make_world(tokenizer, method := fedit("fedavg", rounds=1), tmp_path)
    start = world.server.adapter
    method.lead(world.server, world.fleet)
    trained = site_results(world, start, TRAINING.lr)
    expected = weighted_mean((result.state, site.size) for result, site in zip(trained, world.sites, strict=True))
    assert_close(world.server.adapter, expected)
    row = world.server.rows[1]
    assert row["train_loss"] == pytest.approx(sum(result.loss for result in trained) / 3, abs=1e-5)
    adapters = [entry for entry in world.ledger.table() if entry["field"] == "adapter"]
    assert [(entry["verb"], entry["messages"], entry["bytes"]) for entry in adapters] == [
        ("train", 3, 3 * 4 * world.runtime.bank.size)
    ]


def test_golden_server_momentum(tokenizer, tmp_path):
    """Δ_0 = 1, Δ_1 = 0 → W: 0 → 1 → 1.9."""
    method = fedit("fedavgm")
    world = make_world(tokenizer, method, tmp_path)
    world.server.adapter = zeros_like(world.server.adapter)

    def answer(site, ask):
        delta = 1.0 if ask.round == 1 else 0.0
        moved = {name: tensor + delta for name, tensor in ask["adapter"].items()}
        return Reply(site, {"adapter": moved, "examples": 1, "loss": 1.0})

    world.fleet.engine = Scripted(answer)
    method.lead(world.server, world.fleet)
    assert all(tensor.unique().tolist() == pytest.approx([1.9]) for tensor in world.server.adapter.values())


def test_proximal_term(tokenizer, tmp_path):
    plain = lead(tokenizer, fedit("fedavg", rounds=1), tmp_path / "plain")
    nothing = lead(tokenizer, fedit("fedprox", rounds=1, mu=0), tmp_path / "nothing")
    assert_same(nothing.server.adapter, plain.server.adapter)
    world = make_world(tokenizer, method := fedit("fedprox", rounds=1, mu=9.0), tmp_path / "strong", training=SGD)
    start = world.server.adapter
    method.lead(world.server, world.fleet)
    trained = site_results(world, start, SGD.lr, prox=9.0)
    expected = weighted_mean((result.state, site.size) for result, site in zip(trained, world.sites, strict=True))
    assert_close(world.server.adapter, expected)


def test_scaffold_follows_the_paper(tokenizer, tmp_path):
    """Two rounds written out: w ← w − η(c − c_k) after each step, c_k⁺ = c_k − c + (W − w_K)/(Kη), c += ΣΔc_k / N."""
    sampled = {1: ["site-0", "site-2"], 2: ["site-1", "site-2"]}
    world = make_world(tokenizer, method := fedit("scaffold", sites_per_round=2), tmp_path, training=SGD)
    world.fleet.sample = lambda count, round: sampled[round]
    adapter = world.server.adapter
    method.lead(world.server, world.fleet)

    c = zeros_like(adapter)
    own = {site.name: zeros_like(adapter) for site in world.sites}
    for round, names in sampled.items():
        replies, changes = [], []
        for name in names:
            site = next(site for site in world.sites if site.name == name)
            cohort = Cohort([site], world.runtime, Ask("train_scaffold", round), world.fleet.stream)
            shift = [subtract(c, own[name])]
            result = cohort.train(cohort.own(), [adapter], SGD.lr, "private", corrections=shift)[0]
            steps = -(-site.size // SGD.batch_size)
            new = {n: own[name][n] - c[n] + (adapter[n] - result.state[n]) / (steps * SGD.lr) for n in c}
            changes.append(subtract(new, own[name]))
            own[name] = new
            replies.append((result.state, site.size))
        adapter = weighted_mean(replies)
        c = {n: c[n] + sum(change[n] for change in changes) / 3 for n in c}
    assert_close(world.server.adapter, adapter)
    assert_close(world.server.store["control"], c, atol=1e-4)
    for site in world.sites:  # which takes its last change in when it is asked again
        held = {n: control + site.store["control_change"][n] for n, control in site.store["control"].items()}
        assert_close(held, own[site.name], atol=1e-4)
    mean = {n: sum(control[n] for control in own.values()) / 3 for n in c}
    assert_close(world.server.store["control"], mean, atol=1e-4)  # c stays the mean of all c_k
    assert {row["field"] for row in world.ledger.table()} == {"adapter", "control_change", "examples", "loss"}


def test_sampled_sites(tokenizer, tmp_path):
    world = lead(tokenizer, fedit("fedavg", rounds=3, sites_per_round=2), tmp_path)
    assert [row["messages"] for row in world.ledger.table()] == [6, 6, 6]


def test_centralised_pools_its_records():
    assert fedit("centralised").traits.pooled
    assert not any(fedit(a).traits.pooled for a in ALGORITHMS if a != "centralised")
    assert [a for a in ALGORITHMS if fedit(a).traits.personal] == ["local"]


def test_local_adapters_stay_where_they_are(tokenizer, tmp_path):
    evaluation = EvaluationConfig(sample=3, memorisation=True)
    world = make_world(tokenizer, method := fedit("local"), tmp_path, evaluation=evaluation)
    start = world.server.adapter
    method.lead(world.server, world.fleet)
    assert_same(world.server.adapter, start)
    assert {row["kind"] for row in world.ledger.table()} == {"metric"}
    rows = world.server.rows
    assert rows[1]["bytes_down"] > 3 * 4 * world.runtime.bank.size  # where to start from
    assert rows[2]["bytes_down"] < 200
    assert rows[2]["heldout_loss"] != rows[0]["heldout_loss"]
    assert rows[2]["memorisation"] == rows[2]["member_rouge"] - rows[2]["nonmember_rouge"]
    assert "memorisation" not in rows[1]
    assert 0 <= rows[2]["attack_auc_low"] <= rows[2]["attack_auc"] <= rows[2]["attack_auc_high"] <= 1
    assert rows[0]["attack_auc"] == 0.5
    first = site_results(world, start, TRAINING.lr)
    for site, result in zip(world.sites, first, strict=True):
        assert not torch.equal(next(iter(site.store["adapter"].values())), next(iter(result.state.values())))


def test_the_time_of_completing_own_records_counts_as_an_attack(tokenizer, tmp_path):
    evaluation = EvaluationConfig(sample=2, memorisation=True, attacks=False, uploads=0)
    world = lead(tokenizer, fedit("fedavg", rounds=1), tmp_path, evaluation=evaluation)
    assert world.server.rows[-1]["seconds"]["attack"] > 0


def test_a_site_that_joins_later_starts_like_the_others(tokenizer, tmp_path):
    """And one that never trained has no adapter that could be measured."""
    sampled = {1: ["site-0"], 2: ["site-0", "site-2"]}
    options = {"evaluation": EvaluationConfig(sample=3), "training": SGD}
    world = make_world(tokenizer, method := fedit("local"), tmp_path, **options)
    world.fleet.sample = lambda count, round: sampled[round]
    start = world.server.adapter
    method.lead(world.server, world.fleet)
    assert world.server.store["started"] == ["site-0", "site-2"]
    site = world.sites[2]
    cohort = Cohort([site], world.runtime, Ask("train_alone", 2), world.fleet.stream)
    assert_close(site.store["adapter"], cohort.train(cohort.own(), [start], SGD.lr, "private")[0].state)
    assert world.sites[1].store == {}
    assert [row["heldout_loss"] is not None for row in world.server.rows] == [True] * 3
    assessed = next(row for row in world.ledger.table() if row["verb"] == "assess")
    assert assessed["messages"] == 1 + 2


# ---- what goes wrong -------------------------------------------------------------------------------------------------


def test_a_dead_site_is_left_out_of_the_mean(tokenizer, tmp_path):
    engine = failing(LocalEngine, lambda site, ask: site == "site-1" and ask.verb == "train")
    world = make_world(tokenizer, method := fedit("fedavg", rounds=1), tmp_path, engine=engine)
    start = world.server.adapter
    method.lead(world.server, world.fleet)
    trained = site_results(world, start, TRAINING.lr)
    assert_close(world.server.adapter, weighted_mean([(trained[0].state, 3), (trained[2].state, 4)]))
    assert world.server.rows[1]["events"] == ["site site-1 did not answer 'train': gone"]


@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold", "local"])
def test_a_run_survives_a_site_that_comes_back(tokenizer, tmp_path, algorithm):
    engine = failing(LocalEngine, lambda site, ask: site == "site-0" and ask.round == 1)
    world = lead(tokenizer, fedit(algorithm), tmp_path, engine=engine, evaluation=EvaluationConfig(sample=3))
    assert [len(row["events"]) > 0 for row in world.server.rows] == [False, True, False]
    assert world.server.rows[2]["attack_auc"] is not None


def test_too_few_sites_stop_the_run_and_its_checkpoint_is_intact(tokenizer, tmp_path):
    engine = failing(LocalEngine, lambda site, ask: site != "site-2" and ask.round == 2)
    with pytest.raises(RunError, match="only 1 of 3 sites answered 'train', 2 are needed"):
        lead(tokenizer, fedit("fedadam", rounds=3), tmp_path / "a", engine=engine, min_replies=2)
    saved = latest(tmp_path / "a" / "checkpoint")
    assert saved.round == 1
    world = make_world(tokenizer, method := fedit("fedadam", rounds=3), tmp_path / "a")
    world.server.restore(saved)
    method.lead(world.server, world.fleet)
    assert_same(world.server.adapter, lead(tokenizer, fedit("fedadam", rounds=3), tmp_path / "b").server.adapter)


def test_divergence_stops_the_run_and_it_can_go_on_with_a_lower_rate(tokenizer, tmp_path):
    class Diverging(FedIT):
        def train(self, cohort, ask):
            if ask.round == 2:  # as a rate that is too high would
                site = next((site for site in cohort.sites if site.name == "site-1"), None)
                if site is not None:
                    broken = {n: torch.full_like(t, 1e30) for n, t in ask["adapter"].items()}
                    ask = Ask(ask.verb, ask.round, ask.shared, {"site-1": {"adapter": broken}})
            return super().train(cohort, ask)

        train.declaration = FedIT.train.declaration

    config = FedITConfig(rounds=3)
    with pytest.raises(RunError, match="not a finite number before anything is trained") as error:
        lead(tokenizer, Diverging(config), tmp_path)
    assert error.value.where == "round 2, site site-1, step 1 (private)"
    saved = latest(tmp_path / "checkpoint")
    assert saved.round == 1
    assert all(torch.isfinite(tensor).all() for tensor in saved.server["adapter"].values())
    world = make_world(tokenizer, FedIT(config), tmp_path, training=SGD)
    world.server.restore(saved)
    FedIT(config).lead(world.server, world.fleet)
    assert [row["round"] for row in world.server.rows] == [0, 1, 2, 3]


def test_a_rate_that_is_far_too_high_is_told_as_such(tokenizer, tmp_path):
    # A step multiplies every weight by about lr·decay: the second one overflows, whatever the gradients are.
    decay = {"optimizer": "sgd", "weight_decay": 1.0}
    training = LocalTraining(lr=1e30, batch_size=2, schedule="constant", **decay)
    with pytest.raises(RunError) as error:
        lead(tokenizer, fedit("fedavg"), tmp_path, training=training)
    assert error.value.where.startswith("round 1, site site-0, step ")
    assert latest(tmp_path / "checkpoint").round == 0

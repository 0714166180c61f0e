"""CMFL: a site sends what points where the global model went last, and nothing else."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from murmura.aggregation.choosing import rule
from murmura.aggregation.config import AggregationConfig
from murmura.federation.engines.local import LocalEngine
from murmura.federation.site.cohort import Cohort
from murmura.federation.wire.messages import Ask
from murmura.methods.dplora.baselines import CMFL, VanillaFL, relevance, threshold
from murmura.methods.dplora.config import CMFLConfig, VanillaFLConfig
from murmura.training.adapter import subtract
from tests.aggregation.means import weighted_mean
from tests.federation.world import failing, lead, make_world
from tests.methods.harness import furthest
from tests.training.helpers import assert_close, assert_same


def cmfl(rounds, relevance=0.8):
    return CMFL(CMFLConfig(rounds=rounds, relevance=relevance))


def by_hand(world, start, rounds, v0):
    """The paper's rule written out: the adapters after each round, and who sent in it."""
    adapter, previous, adapters, senders = start, None, [], []
    for round in range(1, rounds + 1):
        sent = {}
        for site in world.sites:
            cohort = Cohort([site], world.runtime, Ask("train_relevant", round), world.fleet.stream)
            lr = world.server.lr(round)
            trained = cohort.train(cohort.own(), [adapter], lr, "private")[0].state
            if previous is None or relevance(subtract(trained, adapter), previous) > threshold(v0, round):
                sent[site.name] = trained
        mean = weighted_mean((state, 1) for state in sent.values()) if sent else adapter
        previous = subtract(mean, adapter) if sent else previous
        adapter = mean
        adapters.append(mean)
        senders.append(list(sent))
    return adapters, senders


@pytest.mark.parametrize("v0", [0.8, 0.95, 1.0])
def test_sites_send_what_the_rule_says(tokenizer, tmp_path, v0):
    world = make_world(tokenizer, method := cmfl(4, v0), tmp_path)
    start = world.server.adapter
    method.lead(world.server, world.fleet)
    adapters, senders = by_hand(world, start, 4, v0)
    assert senders[0] == ["site-0", "site-1", "site-2"]  # there is no update yet to compare with
    assert_close(world.server.adapter, adapters[-1])
    for row, names in zip(world.server.rows[1:], senders, strict=True):
        assert row["counts"] == {"updates.sent": len(names), "updates.kept_back": 3 - len(names)}
    uploads = next(row for row in world.ledger.table() if row["field"] == "adapter")
    assert uploads["bytes"] == sum(map(len, senders)) * 4 * world.runtime.bank.size


@pytest.mark.parametrize("options", [{}, {"server": "fedavgm"}, {"server": "fedadam"}])
def test_where_nothing_is_relevant_nothing_changes_and_nothing_travels(tokenizer, tmp_path, monkeypatch, options):
    from murmura.methods.dplora import baselines as module

    agreeing = iter([0.0] * 3 + [1.0, 0.0, 0.0])
    compared = []
    monkeypatch.setattr(module, "relevance", lambda update, previous: compared.append(previous) or next(agreeing))
    parts = rule(AggregationConfig(**options))
    world = make_world(tokenizer, method := CMFL(cmfl(3).config, parts), tmp_path)
    adapters, steps = [], []
    close, server = world.server._close, world.server

    def closed():
        adapters.append(server.adapter)
        steps.append(dict(server.store.get("optimizer", {})))
        close()

    monkeypatch.setattr(server, "_close", closed)
    method.lead(server, world.fleet)
    assert_same(adapters[2], adapters[1])
    assert_same(steps[2], steps[1])
    assert bool(steps[1]) == ("server" in options)
    assert [row["bytes_up"] > 0 for row in world.server.rows] == [False, True, False, True]
    first = subtract(adapters[1], adapters[0])
    assert len(compared) == 6
    for previous in compared:  # in round 3 too: the round before changed nothing, so it is not the last update
        assert_same(previous, first)
    assert world.server.rows[3]["counts"] == {"updates.sent": 1, "updates.kept_back": 2}


def test_a_site_that_joins_later_sends_unasked(tokenizer, tmp_path):
    """It knows of no global update yet."""
    engine = failing(LocalEngine, lambda site, ask: site == "site-2" and ask.round < 3)
    world = lead(tokenizer, cmfl(3, 1.0), tmp_path, engine=engine)
    assert world.server.rows[3]["counts"]["updates.sent"] >= 1
    assert "update" not in world.stores()["site-2"]


def test_no_byte_more_goes_down_than_with_plain_averaging(tokenizer, tmp_path):
    ours = lead(tokenizer, cmfl(2), tmp_path / "cmfl")
    plain = lead(tokenizer, VanillaFL(VanillaFLConfig(rounds=2)), tmp_path / "fedavg")
    assert [r["bytes_down"] for r in ours.server.rows] == [r["bytes_down"] for r in plain.server.rows]


def test_the_server_s_step_and_the_local_rule_are_those_of_averaging(tokenizer, tmp_path):
    """Where every update is relevant it is plain averaging, by whatever step and rule."""
    parts = rule(AggregationConfig(server="fedavgm", local={"kind": "fedprox", "mu": 2.0}))
    ours = lead(tokenizer, CMFL(cmfl(2, 1e-6).config, parts), tmp_path / "cmfl")
    plain = lead(tokenizer, VanillaFL(VanillaFLConfig(rounds=2), parts), tmp_path / "fedavg")
    without = lead(tokenizer, cmfl(2, 1e-6), tmp_path / "without")
    assert ours.server.rows[2]["counts"] == {"updates.sent": 3, "updates.kept_back": 0}
    assert_close(ours.server.adapter, plain.server.adapter, atol=1e-6)
    assert furthest(ours.server.adapter, without.server.adapter) > 1e-5


# ---- its formulas ------------------------------------------------------------------------------------------------


pairs = st.lists(st.tuples(st.integers(-2, 2), st.integers(-2, 2)), min_size=1, max_size=30)


def state(numbers):
    return {"x": torch.tensor(numbers, dtype=torch.float32)}


def test_golden_relevance():
    assert relevance(state([1, -2, 3, 0]), state([2, 1, 1, -1])) == 0.5
    assert [threshold(0.8, t) for t in (1, 4)] == [0.8, 0.4]


def test_zero_agrees_with_zero_only():
    assert relevance(state([0, 0, 0]), state([0, 1, -1])) == pytest.approx(1 / 3)


def test_all_elements_count_alike_whatever_tensor_they_are_in():
    ours = {"a": torch.ones(3), "b": torch.ones(1, 1)}
    theirs = {"a": torch.ones(3), "b": -torch.ones(1, 1)}
    assert relevance(ours, theirs) == 0.75


@settings(deadline=None)
@given(pairs, st.floats(0.01, 100), st.randoms())
def test_properties_of_relevance(rows, factor, random):
    u, v = [row[0] for row in rows], [row[1] for row in rows]
    found = relevance(state(u), state(v))
    assert 0 <= found <= 1
    assert found == relevance(state(v), state(u))
    assert found == relevance(state([factor * x for x in u]), state(v))  # lengths do not matter
    assert relevance(state(u), state(u)) == 1
    random.shuffle(rows)
    assert found == relevance(state([row[0] for row in rows]), state([row[1] for row in rows]))

"""Attacks by definition, written out record by record; and losses of what was kept against one model at a time."""

import gc
import math
import weakref
from statistics import NormalDist, mean, stdev

import numpy as np
import pytest

from murmura.audit.curious import fedmia, rmia, trajectory
from murmura.audit.losses import Losses, losses
from murmura.audit.membership import AuditSample
from murmura.federation.server import transcript
from murmura.federation.server.transcript import TranscriptWriter, kept_rounds
from murmura.tasks import INSTRUCTION
from tests.federation.world import instructions, make_workbench
from tests.training.helpers import random_state

SITES, OTHERS, ROUNDS = {"a": 3, "b": 2, "c": 4}, 5, 3
OWNERS = [0, 0, 0, 1, 1, 2, 2, 2, 2]


@pytest.fixture
def seen():
    """Losses of nine members of three sites and five others; b did not send anything in the first round."""
    rng = np.random.default_rng(0)
    count = len(OWNERS) + OTHERS
    uploads = rng.uniform(1, 3, (ROUNDS, len(SITES), count))
    uploads[0, 1] = np.nan
    return Losses(list(SITES), np.array(OWNERS), rng.uniform(2, 3, count), rng.uniform(1, 3, (ROUNDS, count)), uploads)


def test_a_trajectory_is_the_mean_drop(seen):
    found = trajectory(seen)
    drops = [mean(seen.base[x] - seen.models[r, x] for r in range(ROUNDS)) for x in range(len(seen.base))]
    assert [*found.members, *found.others[0]] == pytest.approx(drops)
    assert found.others.shape == (1, OTHERS) and not found.rows.any()


@pytest.mark.parametrize("own", [True, False])
def test_rmia_is_its_definition(seen, own):
    target = seen.upload(first=False) if own else seen.models[-1:]
    found = rmia(seen, target)

    def ratio(x, site):
        first = {0: seen.uploads[0, 0, x], 1: seen.uploads[1, 1, x], 2: seen.uploads[0, 2, x]}
        known = [math.exp(-seen.base[x])] + [math.exp(-loss) for other, loss in first.items() if other != site]
        return math.exp(-target[site if own else 0, x]) / mean(known)

    def score(x, site):
        by = [ratio(x, site) / ratio(other, site) for other in range(len(OWNERS), len(seen.base))]
        return mean(0.5 if one == 1 else float(one > 1) for one in by)

    for x, site in enumerate(OWNERS):
        assert found.members[x] == pytest.approx(score(x, site))
    for site in range(len(SITES)):
        for place in range(OTHERS):
            assert found.others[site, place] == pytest.approx(score(len(OWNERS) + place, site))
    assert found.rows.tolist() == OWNERS


@pytest.mark.parametrize("nats", [1, 1000])
def test_rmia_orders_losses_of_any_size(seen, nats):
    """As those of preferences are, which are summed over all tokens of two answers, and may be below 0."""
    base = seen.base - 2.5
    uploads = np.broadcast_to(base, (ROUNDS, len(SITES), len(base)))
    fallen = np.where(np.arange(len(base)) < len(OWNERS), 0.5, 0.01 * np.arange(len(base)))  # members' by the most
    found = rmia(
        Losses(seen.sites, seen.owners, nats * base, seen.models, nats * uploads), nats * (base - fallen)[None]
    )
    assert set(found.members) == {1.0} and found.others.max() < 1


def test_rmia_finds_nothing_in_models_that_have_learnt_nothing(seen):
    """As where the rate is so small that hardly a loss changes: ratios are equal but for rounding, here without it."""
    base = np.full_like(seen.base, 2.0)
    same = Losses(seen.sites, seen.owners, base, np.tile(base, (ROUNDS, 1)), np.tile(base, (ROUNDS, len(SITES), 1)))
    for target in (same.models[-1:], same.upload(first=False)):
        found = rmia(same, target)
        assert set(found.members) == set(found.others.ravel()) == {0.5}


def test_fedmia_is_its_definition(seen):
    found = fedmia(seen)

    def score(x, site):
        parts = []
        for uploads in seen.uploads:
            rest = [uploads[k, x] for k in range(3) if k != site and not math.isnan(uploads[k, x])]
            if len(rest) > 1 and not math.isnan(uploads[site, x]):
                parts.append(NormalDist().cdf((mean(rest) - uploads[site, x]) / stdev(rest)))
        return mean(parts)

    for x, site in enumerate(OWNERS):
        assert 1 + found.members[x] == pytest.approx(score(x, site))
    assert 1 + found.others[1, 2] == pytest.approx(score(len(OWNERS) + 2, 1))


def test_fedmia_orders_what_is_far_from_all_others(seen):
    """Where Φ is 1 to the last digit."""
    seen.uploads[:] = np.array([2.99, 3.01, 3.0])[:, None]
    for number, site in enumerate(OWNERS):
        seen.uploads[:, site, number] -= 0.12 + 0.01 * number  # 12 to 22 standard deviations
    found = fedmia(seen)
    assert len(set(found.members)) == len(OWNERS) and found.members.min() > found.others.max()


def test_fedmia_takes_three_sites_in_a_round(seen):
    assert fedmia(seen.part(["a", "b"])) is None
    seen.uploads[1:, 1] = np.nan
    assert fedmia(seen) is None and seen.heard == ["a", "c"]


def test_a_site_that_sent_nothing_is_no_reference_and_no_target(seen):
    seen.uploads[:, 1] = np.nan
    some = seen.part(seen.heard)
    assert (some.sites, some.owners.tolist()) == (["a", "c"], [0, 0, 0, 1, 1, 1, 1])
    assert some.base.tolist() == [*seen.base[:3], *seen.base[5:]]
    assert some.uploads.shape == (ROUNDS, 2, 7 + OTHERS)
    assert not np.isnan(rmia(seen, seen.models[-1:]).others).any()


def test_losses_are_those_of_each_model_alone(tokenizer, tmp_path):
    bench = make_workbench(tokenizer, slots=2)
    records = {"a": instructions(2, seed=1), "b": instructions(1, seed=2)}
    sample = AuditSample(records, {"a": [0, 1], "b": [0]}, instructions(2, seed=3))
    states = {name: random_state(bench.bank, seed, scale=0.5) for seed, name in enumerate(("m1", "a1", "b1", "m2"))}
    keeper = TranscriptWriter(tmp_path / "@run" / "rounds")
    for number, uploads, model in ((1, {"a": "a1", "b": "b1"}, "m1"), (2, {}, "m2")):
        keeper.begin(number)
        for site, name in uploads.items():
            keeper.observe_upload(site, states[name])
        keeper.close(states[model])
    found = losses(INSTRUCTION, bench, kept_rounds(tmp_path / "@run" / "rounds"), sample, bench.bank.lora)

    every = [*records["a"], *records["b"], *sample.others]

    def alone(state):
        return [one.nll.mean() for one in INSTRUCTION.token_scores(bench, [state] * len(every), every)]

    assert found.base == pytest.approx(alone(bench.bank.untrained), abs=1e-4)
    assert found.models[0] == pytest.approx(alone(states["m1"]), abs=1e-4)
    assert found.models[1] == pytest.approx(alone(states["m2"]), abs=1e-4)
    assert found.uploads[0, 0] == pytest.approx(alone(states["a1"]), abs=1e-4)
    assert found.uploads[0, 1] == pytest.approx(alone(states["b1"]), abs=1e-4)
    assert np.isnan(found.uploads[1]).all()
    assert found.owners.tolist() == [0, 0, 1]


@pytest.mark.parametrize(("whole", "most"), [(False, [1, 2] * 3), (True, [1] * 6)], ids=["adapters", "whole models"])
def test_no_more_uploads_are_in_memory_than_share_a_batch(tokenizer, tmp_path, monkeypatch, whole, most):
    bench, keeper = make_workbench(tokenizer, slots=2), TranscriptWriter(tmp_path / "rounds")
    sites, [record] = list("abcde"), instructions(1, seed=1)
    keeper.begin(1)
    for seed, site in enumerate(sites):
        keeper.observe_upload(site, random_state(bench.bank, seed))
    keeper.close(random_state(bench.bank, 9))
    there, seen, decode = weakref.WeakSet(), [], transcript.decode

    class Watched(dict):
        """A state of which can be told whether it is still there."""

        __hash__ = object.__hash__

    def watched(buffer):
        state = Watched(decode(buffer)["adapter"])
        there.add(state)
        gc.collect()
        seen.append(len(there))
        return {"adapter": state}

    monkeypatch.setattr(transcript, "decode", watched)
    monkeypatch.setattr("murmura.audit.losses.plain", lambda state, lora: state)  # and no copy of it
    sample = AuditSample({site: [record] for site in sites}, {site: [0] for site in sites}, [record])
    losses(INSTRUCTION, bench, kept_rounds(tmp_path / "rounds"), sample, None if whole else bench.bank.lora)
    assert seen == most

"""Exposure, and the evidence that coins are guessed from."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.stats import t

from murmura.generation.scoring import Score
from murmura.measure.canaries import Canaries, Canary, _interval, exposure
from murmura.measure.catalogue import exposure_by_chance
from murmura.runs.schema import FEW
from tests.privacy.plans import RECORDS, SITES

BASE, MODEL, UPLOAD = {"base": 0}, {"model": 0}, {"upload": 0}


def test_exposure_is_by_rank():
    gains = np.array([3.0, 1.0, 2.0, 0.0, -1.0, 5.0, 4.0, -2.0])
    for place, gain in enumerate(gains):
        rank = sorted(gains, reverse=True).index(gain) + 1
        assert exposure(gains, place) == pytest.approx(3 - math.log2(rank))
    assert exposure(np.zeros(7), 2) == pytest.approx(math.log2(7 / 4))  # in the middle of equal ones


@pytest.mark.parametrize("candidates", [2, 7, 64])
def test_chance_exposes_what_the_page_says(candidates):
    """The mean over all ranks."""
    found = np.mean([exposure(np.arange(float(candidates)), place) for place in range(candidates)])
    assert exposure_by_chance(candidates) == pytest.approx(found)


def test_the_interval_holds_the_mean_as_often_as_it_says():
    """Of few canaries whose rank is left to chance, for which Student's is too narrow; of many it is Student's."""
    rng, most = np.random.default_rng(5), 6.0
    draws = most - np.log2(rng.integers(1, 65, (400, 8)))
    ends = [_interval(own, most) for own in draws.tolist()]
    assert sum(not low <= exposure_by_chance(64) <= high for low, high in ends) <= 20
    many = most - np.log2(rng.integers(1, 65, FEW))
    reach = t.ppf(0.975, FEW - 1) * many.std(ddof=1) / FEW**0.5
    assert _interval(many.tolist(), most) == pytest.approx((many.mean() - reach, many.mean() + reach))


def test_canaries_that_all_say_the_same_leave_some_doubt():
    low, high = _interval([6.0] * 8, 6.0)
    assert 3 < low < 5 and high == 6.0
    low, high = _interval([1.5] * 8, 6.0)
    assert 0 < low < 1.5 < high < 6


@dataclass(frozen=True)
class Bench:
    """Losses of a candidate by model: those that a model prefers are three nats likelier."""

    prefers: dict[str, set]
    read: list

    @property
    def origin(self):
        return BASE

    def tokenise_fitting(self, records):
        return list(records)

    def score(self, adapters, items, *, description):
        self.read.extend((next(iter(adapter)), item) for adapter, item in zip(adapters, items, strict=True))
        return [
            Score(float(hash(item) % 97) - 3 * (item in self.prefers.get(next(iter(adapter)), ())), 5)
            for adapter, item in zip(adapters, items, strict=True)
        ]


def canaries(count, sites, coins):
    return [Canary(sites[k % len(sites)], tuple((k, c) for c in range(4)), coins[k]) for k in range(count)]


def test_the_base_is_read_once_and_only_what_is_learnt_counts():
    coins = [0, 1] * 12
    planted = canaries(24, ["a", "b"], coins)
    bench = Bench({"model": {one.record for one in planted}}, [])
    audit = Canaries(planted, "record", RECORDS)
    first = audit.measure(bench, MODEL, {})
    assert (first["exposure"], first["audit_right"], first["audit_coins"]) == (2.0, 24, 24)
    assert first["audit_epsilon"] == first["audit_most"] > 0 and "upload_exposure" not in first
    audit.measure(bench, MODEL, {})
    assert sum(name == "base" for name, _ in bench.read) == 24 * 4


def test_what_a_site_sent_speaks_for_its_own_records():
    """The global model has forgotten everything, an upload has not."""
    planted = canaries(40, ["a", "b"], [1, 1, 0, 0] * 10)
    bench = Bench({"upload": {one.record for one in planted}}, [])
    told = Canaries(planted, "record", RECORDS).measure(bench, MODEL, {"b": UPLOAD})
    assert told["upload_exposure"] == 2.0 and told["exposure"] == pytest.approx(math.log2(4 / 2.5))
    assert (told["audit_right"], told["audit_guesses"]) == (20, 20)
    assert {item for name, item in bench.read if name == "upload"} == {
        c for one in planted[1::2] for c in one.candidates
    }


def test_whole_sites_have_one_coin_and_their_uploads_are_no_evidence():
    sites = [f"s{k}" for k in range(20)]
    coins = [k % 20 % 3 % 2 for k in range(60)]
    planted = canaries(60, sites, coins)
    bench = Bench({"upload": {one.record for one in planted}}, [])
    told = Canaries(planted, "site", SITES).measure(bench, MODEL, dict.fromkeys(sites, UPLOAD))
    assert (told["audit_coins"], told["audit_guesses"], told["audit_epsilon"]) == (20, 0, 0.0)
    bench.prefers["model"] = bench.prefers["upload"]
    told = Canaries(planted, "site", SITES).measure(bench, MODEL, {})
    assert (told["audit_coins"], told["audit_right"]) == (20, 20) and told["audit_epsilon"] > 0


def test_coins_that_sites_share_are_no_more_where_no_plan_protects_these():
    """As with DP-Prompt: were each canary's taken for its own, 50 right guesses would show an ε of 2.5 or so."""
    planted = canaries(50, ["a", "b"], [0, 1] * 25)
    bench = Bench({"model": {one.record for one in planted}}, [])
    told = Canaries(planted, "site", None).measure(bench, MODEL, {})
    assert (told["audit_coins"], told["audit_right"], told["audit_epsilon"]) == (2, 2, 0.0)
    assert Canaries(planted, "record", None).measure(bench, MODEL, {})["audit_epsilon"] > 2


def test_without_a_promise_two_records_are_exchanged():
    assert Canaries(canaries(1, ["a"], [0]), "record", None).adjacency == "replace-one"
    assert Canaries(canaries(1, ["a"], [0]), "record", RECORDS).adjacency == RECORDS.adjacency == "zero-out"

"""Centres behind noise: how far one record moves what is released, how large the noise is, and what it costs."""

import math
from dataclasses import replace

import dp_accounting as dp
import numpy as np
import pytest
import torch
from dp_accounting import pld
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from murmura.errors import PrivacyError
from murmura.privacy.clipping import ClusterClipping, ExampleClipping
from murmura.privacy.entropy import OSEntropy, SeededEntropy
from murmura.privacy.journal import Journal
from murmura.privacy.ledger import PrivacyLedger
from murmura.privacy.mechanisms.gaussian import GaussianNoise
from murmura.retrieval import noisy
from murmura.retrieval.noisy import noisy_centres, plan_of, sums
from murmura.streams import Stream
from tests.privacy.attack import given_away

PLAN = plan_of(2.0, 3, 1, 1e-5)
any_number = st.floats(width=32, allow_nan=True, allow_infinity=True)
inside = st.floats(-1, 1, width=32)


def vectors(count, dimension=8, seed=0):
    found = np.random.default_rng(seed).normal(size=(count, dimension))
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


def released(given, starts):
    """What one iteration would release without noise."""
    return sums(noisy._contributions(given)[0], starts.astype(np.float64))


@settings(max_examples=200, deadline=None)
@given(
    arrays.arrays(np.float32, st.tuples(st.integers(1, 6), st.just(3)), elements=any_number),
    arrays.arrays(np.float32, st.tuples(st.integers(1, 4), st.just(3)), elements=inside),
    st.data(),
)
def test_a_record_less_moves_sums_and_counts_by_root_two_at_most(given, starts, data):
    """Whatever vectors a broken or malicious encoder makes, and wherever the centres are."""
    exclusions = data.draw(st.integers(0, len(given) - 1))
    moved = released(given, starts) - released(np.delete(given, exclusions, axis=0), starts)
    assert np.linalg.norm(moved) <= math.sqrt(2)
    assert np.count_nonzero(moved[:, -1]) == 1  # it is in one cluster, and the others stay in theirs


def test_the_bound_is_reached():
    """A smaller sensitivity would be too small."""
    moved = released(vectors(1), vectors(2, seed=1))
    assert np.linalg.norm(moved) == pytest.approx(math.sqrt(2), rel=1e-5)
    assert PLAN.sensitivity == math.sqrt(2)


def test_sums_do_not_depend_on_company_or_order_in_any_bit():
    given, starts = vectors(300, 48), vectors(7, 48, seed=1).astype(np.float64)
    alone = sum(released(row[None], starts) for row in given)
    assert np.array_equal(released(given, starts), alone)
    assert np.array_equal(released(given[::-1], starts), alone)


def test_epsilon_is_that_of_as_many_gaussian_releases():
    composed = dp.SelfComposedDpEvent(dp.GaussianDpEvent(2.0 / math.sqrt(2)), 3)
    oracle = pld.PLDAccountant(value_discretization_interval=1e-4).compose(composed).get_epsilon(1e-5)
    found = PLAN.epsilon()
    assert found.value == pytest.approx(oracle, rel=1e-3)
    assert found.adjacency == "zero-out"
    assert plan_of(2.0, 3, 2, 1e-5).epsilon().value == pytest.approx(plan_of(2.0, 6, 1, 1e-5).epsilon().value)


def test_a_ledger_takes_what_was_seen_for_what_was_planned():
    found = noisy_centres(vectors(40, 64), vectors(5, 64, seed=1), 3, PLAN, OSEntropy())
    seen = found.spent.observed
    assert (seen.steps, seen.drawn, seen.chances, seen.numbers) == (3, 120, 120, 3 * 5 * 65)
    assert seen.after <= 1
    ledger = PrivacyLedger(PLAN, Journal())
    ledger.record(1, [found.spent])
    assert ledger.departures == []
    assert ledger.epsilon().value == PLAN.epsilon().value


def test_centres_that_are_given_twice_count_twice():
    ledger = PrivacyLedger(PLAN, Journal())
    for _ in range(2):  # a round that was repeated
        ledger.record(1, [noisy_centres(vectors(9), vectors(2, seed=1), 3, PLAN, OSEntropy()).spent])
    assert ledger.epsilon().value == pytest.approx(plan_of(2.0, 6, 1, 1e-5).epsilon().value)
    ledger.record(2, [noisy_centres(vectors(9), vectors(2, seed=1), 3, PLAN, OSEntropy()).spent])
    with pytest.raises(PrivacyError, match="6 steps where 3 were planned"):
        ledger.epsilon()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda monkeypatch: monkeypatch.setattr(noisy, "_noised", lambda exact, *rest: exact), "noise of 0"),
        (  # half of the noise, to the digit: drawn, it would be told as 0.49 now and then
            lambda monkeypatch: monkeypatch.setattr(noisy, "_noised", lambda exact, noise, _: exact + noise.std / 2),
            r"noise of 0\.5 times",
        ),
        (lambda monkeypatch: monkeypatch.setattr(noisy, "_SHORTER", 2.0), "clipped contribution of 2 norms"),
        (
            lambda monkeypatch: monkeypatch.setattr(noisy, "sums", lambda rows, points: 2 * sums(rows, points)),
            "units? of|records of",
        ),
    ],
)
def test_no_epsilon_where_the_code_does_something_else(monkeypatch, change, reason):
    change(monkeypatch)
    ledger = PrivacyLedger(PLAN, Journal())
    ledger.record(1, [noisy_centres(vectors(40, 64), vectors(5, 64, seed=1), 3, PLAN, OSEntropy()).spent])
    with pytest.raises(PrivacyError, match=reason):
        ledger.epsilon()


def test_no_epsilon_of_noise_that_others_know():
    ledger = PrivacyLedger(PLAN, Journal())
    ledger.record(1, [noisy_centres(vectors(9), vectors(2, seed=1), 3, PLAN, SeededEntropy(Stream(0))).spent])
    with pytest.raises(PrivacyError, match="no secret"):
        ledger.epsilon()


def test_noise_is_as_large_as_the_plan_says_on_every_number():
    """Of nobody's records: all that is released is noise. 40 standard errors to each side."""
    exact = np.zeros((64, 257))
    noise = noisy._noised(exact, GaussianNoise(2.0), OSEntropy())
    for part in (noise[:, :-1], noise[:, -1]):
        assert np.square(part).mean() == pytest.approx(4.0, rel=40 * math.sqrt(2 / part.size) / 8)
        assert abs(part.mean()) < 10 / math.sqrt(part.size)


def test_no_record_is_ruled_out_by_what_is_released():
    exact = released(vectors(50, 384), vectors(5, 384, seed=1))
    sums = torch.from_numpy(exact), torch.from_numpy(released(vectors(50, 384)[1:], vectors(5, 384, seed=1)))
    flat = [sum.flatten() for sum in sums]
    made = given_away(
        lambda sum, told: torch.from_numpy(noisy._noised(sum.numpy(), GaussianNoise(2.3), told)), flat, 2.3
    )
    assert made == [0, 0]


def test_with_little_noise_it_is_k_means():
    groups = np.eye(3, 8, dtype=np.float32)
    given = np.repeat(groups, [50, 30, 20], axis=0)
    plan = plan_of(0.01, 2, 1, 1e-5)
    found = noisy_centres(given, vectors(3, seed=1) * 0.1 + groups * 0.5, 2, plan, OSEntropy())
    assert found.points == pytest.approx(groups, abs=0.01)
    assert found.sizes.tolist() == [50, 30, 20]


def test_as_much_is_released_of_no_record_as_of_many():
    """How large a reply is says nothing of how many records there are, nor of how they differ."""
    starts = vectors(4, seed=1)
    for own in (vectors(0), vectors(1), np.repeat(vectors(1), 9, axis=0), vectors(50)):
        found = noisy_centres(own, starts, 3, PLAN, OSEntropy())
        assert found.points.shape == (4, 8) and found.points.dtype == np.float32
        assert found.sizes.shape == (4,) and found.sizes.min() >= 0
        assert np.linalg.norm(found.points.astype(np.float64), axis=1).max() <= 1 + 1e-6
        ledger = PrivacyLedger(PLAN, Journal())
        ledger.record(1, [found.spent])
        assert ledger.departures == []


def test_a_cluster_that_nobody_is_in_keeps_its_start():
    given, starts = np.repeat(np.eye(1, 4, dtype=np.float32), 90, axis=0), np.eye(2, 4, dtype=np.float32)
    found = noisy_centres(given, starts, 1, plan_of(0.01, 1, 1, 1e-5), OSEntropy())
    assert found.points[1].tolist() == [0, 1, 0, 0] and found.sizes.tolist() == [90, 0]


def test_vectors_that_are_not_finite_are_noted_and_count_as_zero():
    given = vectors(4)
    given[1] = np.nan
    given[2, 0] = np.inf
    found = noisy_centres(given, vectors(2, seed=1), 3, PLAN, OSEntropy())
    assert found.spent.observed.not_finite == 2
    assert np.isfinite(found.points).all()


@pytest.mark.parametrize(
    ("starts", "plan"),
    [
        (vectors(2, 7), PLAN),
        (np.full((2, 8), np.nan, dtype=np.float32), PLAN),
        (np.zeros((0, 8), dtype=np.float32), PLAN),
        (vectors(2), replace(PLAN, clipping=ExampleClipping(1.0))),
        (vectors(2), replace(PLAN, clipping=ClusterClipping(2.0))),
    ],
)
def test_what_makes_no_sense_is_refused(starts, plan):
    with pytest.raises(PrivacyError):
        noisy_centres(vectors(3), starts, 3, plan, OSEntropy())


@pytest.mark.parametrize("noise", [0.0, -1.0, math.nan, math.inf])
def test_a_plan_without_noise_is_none(noise):
    with pytest.raises(PrivacyError):
        plan_of(noise, 3, 1, 1e-5)


def test_plans_are_kept_as_json():
    assert PLAN.from_json(PLAN.to_json()) == PLAN
    assert PLAN.noise == GaussianNoise(2.0) and "vector scaled to length 1" in PLAN.describe()

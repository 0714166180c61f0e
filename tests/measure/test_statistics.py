"""Against scipy, and Holm's correction against closed testing by brute force."""

from itertools import combinations
from statistics import stdev

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from murmura.measure.figure import interval
from murmura.measure.statistics import Difference, Estimate, differences, holm

VALUES = st.lists(st.integers(-1000, 1000).map(lambda n: n / 100), min_size=2, max_size=8)


@given(VALUES)
def test_the_interval_is_students(values):
    found = Estimate.of(values)
    spread = stdev(values) / len(values) ** 0.5
    if max(values) - min(values) <= 1e-9:  # by chance, as of few texts: nothing is certain
        assert found.low is found.high is None
        return
    low, high = stats.t.interval(0.95, len(values) - 1, loc=found.mean, scale=spread)
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))
    assert found.low <= found.mean <= found.high


def test_one_seed_has_no_interval_and_no_p():
    assert Estimate.of([2.0]) == Estimate(2.0, 1)
    far = differences({"a": {0: 2.0}}, {0: 1.5})["a"]
    assert far == Difference(Estimate(0.5, 1), None) and not far.shown
    assert far.words == "+0.500"


def test_no_interval_reaches_beyond_what_a_share_can_be():
    assert Estimate.of([0.9, 1.0], 0.0, 1.0).high == 1.0
    assert Estimate.of([0.9, 1.0]).high > 1.0


def test_the_interval_of_few_shares_holds_where_they_are_unevenly_spread():
    """Of 16 answers, as many as are asked for by default, of which one in ten repeats its reference: where 5 % miss, 20
    of 200 or more do so with probability 0.003. Student's interval alone misses 31 of these."""
    rng, mean = np.random.default_rng(0), 0.1 + 0.9 / 21
    drawn = [np.where(rng.random(16) < 0.1, 1.0, rng.beta(1, 20, 16)).tolist() for _ in range(200)]
    found = [Estimate.of_shares(values) for values in drawn]
    assert sum(not one.low <= mean <= one.high for one in found) < 20
    assert sum(not one.low <= mean <= one.high for one in map(Estimate.of, drawn)) > 30


def test_many_shares_have_students_interval_and_few_or_alike_ones_that_of_a_share_too():
    values = np.random.default_rng(0).beta(5, 5, 25).tolist()
    assert Estimate.of_shares(values) == Estimate.of(values, 0.0, 1.0)
    for few in ([0.5] * 4, [0.5] * 40, [0.25]):
        assert Estimate.of_shares(few).ends == interval(few[0], len(few))


def test_differences_are_paired_by_seed():
    reference = {0: 1.0, 1: 2.0, 2: 3.0}
    arms = {"near": {0: 1.1, 1: 2.2, 2: 3.1, 9: 100.0}, "elsewhere": {7: 1.0}}
    found = differences(arms, reference)
    assert list(found) == ["near"]  # seed 9 is not the reference's, and "elsewhere" shares none
    assert found["near"].estimate.mean == pytest.approx(0.4 / 3)
    assert found["near"].p == pytest.approx(stats.ttest_rel([1.1, 2.2, 3.1], [1.0, 2.0, 3.0]).pvalue)


def test_without_any_spread_only_signs_tell():
    """Two seeds that happen to differ by the same share of twenty texts are no proof."""
    reference = dict.fromkeys(range(6), 0.6)
    arms = {"same": reference, "few": {0: 0.65, 1: 0.65}, "many": dict.fromkeys(range(6), 0.6 + 0.1 + 1e-16)}
    for name, own in arms.items():
        values = [own[seed] - reference[seed] for seed in own]
        expected = stats.binomtest(len(own), len(own)).pvalue if any(values) else 1.0
        assert differences({name: own}, reference)[name].p == pytest.approx(expected)
    assert not differences({"few": arms["few"]}, reference)["few"].shown


@given(st.lists(st.lists(st.integers(0, 50), min_size=4, max_size=4), min_size=2, max_size=4))
def test_against_the_best_no_p_is_smaller_than_holms_for_all_pairs(figures):
    arms = {f"a{place}": {seed: float(one) for seed, one in enumerate(own)} for place, own in enumerate(figures)}
    best = min(arms, key=lambda name: sum(arms[name].values()))
    others = {name: own for name, own in arms.items() if name != best}
    pairs = {
        f"{one}{other}": differences({one: arms[one]}, arms[other])[one].p
        for one, other in combinations(sorted(arms), 2)
    }
    whole = holm(pairs)
    for name, far in differences(others, arms[best], picked=True).items():
        assert far.p >= whole["".join(sorted((name, best)))] - 1e-12
        assert far.p >= differences(others, arms[best])[name].p


def test_pairs_count_as_compared_that_share_seeds_though_not_with_the_best():
    a, b = {1: 1.0, 2: 1.1, 3: 1.3}, {1: 1.4, 2: 1.6, 3: 1.5}
    c, d = {4: 2.0, 5: 2.1, 6: 2.2}, {4: 2.3, 5: 2.0, 6: 2.1}
    alone = differences({"b": b}, a)["b"].p
    assert differences({"b": b, "c": c, "d": d}, a, picked=True)["b"].p == pytest.approx(2 * alone)
    once = {seed: figure for seed, figure in d.items() if seed == 4}  # no test is made of one seed
    assert differences({"b": b, "c": c, "d": once}, a, picked=True)["b"].p == alone


@given(st.dictionaries(st.sampled_from("abcdef"), st.floats(0, 1), min_size=1))
def test_holm_is_closed_testing_by_bonferroni(tested):
    """A hypothesis is rejected when every set with it is, by Bonferroni (Marcus et al. 1976; Holm 1979)."""
    found = holm(tested)
    for name in tested:
        rest = [one for one in tested if one != name]
        sets = [[name, *more] for size in range(len(rest) + 1) for more in combinations(rest, size)]
        worst = max(min(1.0, len(one) * min(tested[member] for member in one)) for one in sets)
        assert found[name] == pytest.approx(worst)

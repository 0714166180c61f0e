"""AUC, rates and intervals against their definitions, spelt out."""

import numpy as np
import pytest
from scipy.stats import binomtest, norm
from sklearn.metrics import roc_auc_score, roc_curve

from murmura.audit.attack_scores import AttackScores, shape
from tests.audit.conftest import one_model

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("digits", [1, 6])  # with ties and without
def test_auc_and_rate_are_those_of_scikit_learn(digits):
    members, others = np.round(RNG.normal(1, 1, 80), digits), np.round(RNG.normal(0, 1, 300), digits)
    found = one_model(members, others)
    truth, scores = np.r_[np.ones(80), np.zeros(300)], np.r_[members, others]
    assert found.auc == pytest.approx(roc_auc_score(truth, scores))
    wrong, right, _ = roc_curve(truth, scores, drop_intermediate=False)
    assert found.tpr == pytest.approx(right[wrong <= 2 / 300].max())  # a third would be four of 301


def test_the_rates_interval_is_that_of_both_binomials_drawn_one_by_one():
    """A share that was found s times of M is drawn from Beta(s, M − s + 1) for its lower end, from Beta(s + 1, M − s)
    for its higher one, and behind it how many others pass the threshold."""
    members, others = RNG.normal(2, 1, 40), np.sort(RNG.normal(0, 1, 400))[::-1]
    ends = []
    for passed in RNG.binomial(400, 0.01, 40_000):
        between = others[passed - 1] if passed else np.inf, others[passed]
        least, most = ((members > score).sum() for score in between)
        ends.append((RNG.beta(least, 41 - least) if least else 0, RNG.beta(most + 1, 40 - most)))
    low, high = (np.quantile(drawn, end) for drawn, end in zip(np.array(ends).T, (0.025, 0.975), strict=True))
    assert one_model(members, others).tpr_interval == pytest.approx((low, high), abs=0.01)


@pytest.mark.parametrize(("count", "number"), [(100, 100), (198, 75), (750, 100)])
@pytest.mark.parametrize("shift", [2.0, 3.0])
def test_the_rate_at_one_per_cent_is_inside(count, number, shift):
    """Of 200 draws an interval that misses 5 % misses 20 or more with probability 0.003; a bootstrap of both misses 33
    and 35 of them at 100 others, 20 and 24 at 198."""
    rng, missed, true = np.random.default_rng(0), 0, norm.sf(norm.ppf(0.99) - shift)
    for _ in range(200):
        low, high = one_model(rng.normal(shift, 1, number), rng.normal(0, 1, count)).tpr_interval
        missed += not low <= true <= high
    assert missed < 20


def test_where_no_threshold_is_in_doubt_the_interval_is_clopper_and_pearsons():
    """Members are above all of 2,000 others, or below."""
    found = one_model([9.0] * 7 + [-9.0] * 23, RNG.normal(0, 1, 2000))
    assert found.tpr_interval == pytest.approx(binomtest(7, 30).proportion_ci(), abs=1e-5)


def test_of_fewer_than_368_others_the_threshold_may_lie_above_all():
    """0.99³⁶⁷ is 2.501 %."""
    assert one_model([900.0] * 30, range(367)).tpr_interval == (0.0, 1.0)
    low, high = one_model([900.0] * 30, range(368)).tpr_interval
    assert 0 < low < 1 == high


def test_where_all_scores_say_the_same_the_interval_has_a_width_still():
    assert one_model([3, 4], [1, 2, 0]).interval == (pytest.approx(0.025**0.5), 1.0)
    assert one_model([0, 0], [1, 2, 3]).interval == (0.0, pytest.approx(1 - 0.025**0.5))
    assert one_model([1], [0, 0]).interval == (0.0, 1.0)
    none = one_model([-1] * 4, range(100))
    assert none.tpr == 0 and none.tpr_interval == (0.0, pytest.approx(1 - 0.025**0.25, abs=1e-4))


def test_a_member_is_compared_with_what_its_own_sites_model_makes_of_others():
    """Though the second model's scores are all larger."""
    found = AttackScores(np.array([1.0, 11.0]), np.array([[0.0, 2.0], [10.0, 12.0]]), np.array([0, 1]))
    assert found.auc == 0.5 and found.interval[0] < 0.05
    assert found.part(np.array([True, False]), np.array([True, False])).auc == 1.0


def test_too_few_others_show_no_rate():
    assert one_model([1, 2], range(99)).tpr is None


def test_a_histogram_counts_every_score_and_shows_none():
    members, others = RNG.normal(1, 1, 50), RNG.normal(0, 1, (2, 40))
    found = shape(members, others)
    assert sum(found.members) == 50 and sum(found.others) == 80
    assert not set(found.edges) & {*members, *others.ravel()}
    assert shape(np.zeros(3), np.zeros((1, 2))).members  # where all are equal

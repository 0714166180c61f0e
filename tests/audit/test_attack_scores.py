"""AUC, rates and intervals against their definitions, spelt out."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score, roc_curve

from murmura.audit.attack_scores import DRAWS, AttackScores, draws, shape
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


def test_the_rates_interval_is_that_of_samples_drawn_one_by_one():
    members, others = RNG.normal(0.7, 1, 30), RNG.normal(0, 1, 120)
    found, (counts, others_counts) = one_model(members, others), draws(30, 120, np.random.default_rng(1))
    rates = []
    for own, other in zip(counts.astype(int), others_counts.astype(int), strict=True):
        again = one_model(np.repeat(members, own), np.repeat(others, other))
        rates.append(again.tpr)
    assert len(rates) == DRAWS
    assert found.tpr_interval((counts, others_counts)) == pytest.approx(np.quantile(rates, (0.025, 0.975)))


def test_where_all_draws_say_the_same_the_interval_has_a_width_still():
    assert one_model([3, 4], [1, 2, 0]).interval == (pytest.approx(0.025**0.5), 1.0)
    assert one_model([0, 0], [1, 2, 3]).interval == (0.0, pytest.approx(1 - 0.025**0.5))
    assert one_model([1], [0, 0]).interval == (0.0, 1.0)
    none, all_ = one_model([-1] * 4, range(100)), one_model([200] * 4, range(100))
    assert none.tpr == 0 and none.tpr_interval(draws(4, 100, RNG)) == (0.0, pytest.approx(1 - 0.025**0.25))
    assert all_.tpr == 1 and all_.tpr_interval(draws(4, 100, RNG)) == (pytest.approx(0.025**0.25), 1.0)


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

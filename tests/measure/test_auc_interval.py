"""By simulation: intervals hold the truth as often as they say, where there are few members above all."""

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import norm

from murmura.audit.attack_scores import AttackScores
from murmura.measure.auc_interval import interval
from murmura.measure.roc import Roc, cut_points, tally

DRAWS = 400


def by_pairs(members, others):
    return AttackScores(members, others[None], np.zeros(len(members), dtype=int)).interval


def by_cells(members, others):
    cuts = cut_points(others)
    return Roc(tally(members, cuts), tally(others, cuts), len(others)).interval


@pytest.mark.parametrize("found", [by_pairs, by_cells])
@pytest.mark.parametrize("counts", [(5, 100), (6, 150), (6, 24), (24, 24)])
@pytest.mark.parametrize(("auc", "wide"), [(0.5, 1.0), (0.5, 3.0), (0.7, 3.0), (0.76, 1.0), (0.92, 1.0), (0.2, 1.0)])
def test_few_members_leave_the_truth_inside(found, counts, auc, wide):
    """Of 400 draws an interval that misses 5 % misses 32 or more with probability 0.005. DeLong's on the logit scale,
    with the quantile of a normal distribution, misses 62 of them at 6 + 150 and 0.92; a bootstrap more."""
    shift, rng, missed = ndtri(auc) * np.hypot(1, wide), np.random.default_rng(0), 0
    for _ in range(DRAWS):
        low, high = found(rng.normal(shift, wide, counts[0]), rng.normal(0, 1, counts[1]))
        missed += not low <= auc <= high
    assert missed < 32


def test_of_many_scores_it_is_hardly_wider_than_delongs():
    rng = np.random.default_rng(1)
    members, others = rng.normal(0.7, 1, 300), rng.normal(0, 1, 400)
    low, high = by_pairs(members, others)
    wins = members[:, None] > others
    spread = wins.mean(1).var(ddof=1) / 300 + wins.mean(0).var(ddof=1) / 400
    assert 2 * 1.96 * np.sqrt(spread) <= high - low + 1e-4 <= 2 * 1.96 * np.sqrt(spread) * 1.06


def test_newcombes_end_is_where_his_equation_holds():
    """Where all add the same to the AUC, DeLong's variance is 0 and his interval alone is left."""
    auc, (m, n), z = 0.8, (7, 12), norm.ppf(0.975)
    for theta in interval(auc, (0.0, 0.0), (m, n)):
        more = (m + n) / 2 - 1
        variance = theta * (1 - theta) * (1 + more * ((1 - theta) / (2 - theta) + theta / (1 + theta))) / (m * n)
        assert abs(auc - theta) == pytest.approx(z * np.sqrt(variance), rel=1e-5)


def test_a_student_has_satterthwaites_degrees_of_freedom():
    """Equal variances of equally many: m + n − 2 of them."""
    from scipy.stats import t

    spread, count = 0.2, 4
    low, _ = interval(0.5, (spread, spread), (count, count))
    reach = t.ppf(0.975, 2 * count - 2) * np.sqrt(2 * spread / count) / 0.25
    assert np.log(low / (1 - low)) == pytest.approx(-reach)

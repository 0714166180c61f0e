"""Counts between cut points say what scores would: against scikit-learn, and by simulation."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score, roc_curve

from murmura.measure.auc_interval import interval
from murmura.measure.roc import Roc, cut_points, strongest, tally, wrongly_taken


def roc_of(members, others):
    cuts = cut_points(np.asarray(others, float))
    return Roc(tally(np.asarray(members, float), cuts), tally(np.asarray(others, float), cuts), len(others))


def scores(seed, members=60, others=200, shift=1.0, spread=1.0, digits=8):
    rng = np.random.default_rng(seed)
    return (rng.normal(shift, spread, members).round(digits), rng.normal(0, 1, others).round(digits))


def truth(members, others):
    return np.repeat([1, 0], [len(members), len(others)]), np.concatenate([members, others])


@pytest.mark.parametrize("digits", [8, 1, 0])
def test_the_auc_of_few_others_is_scikit_learns(digits):
    for seed in range(20):
        members, others = scores(seed, members=30, others=20, digits=digits)
        assert roc_of(members, others).auc == pytest.approx(roc_auc_score(*truth(members, others)), abs=1e-12)


def test_of_many_others_neighbours_count_as_equal_which_hardly_matters():
    for seed in range(20):
        members, others = scores(seed)
        assert roc_of(members, others).auc == pytest.approx(roc_auc_score(*truth(members, others)), abs=4e-3)


def test_members_whose_scores_lie_close_together_move_the_auc_by_half_a_group_at_most():
    """Of 200 others a group has 10; of the 150 that are not set apart, it may be all 10 of them."""
    others = np.arange(200.0)
    cuts = cut_points(others)
    few = np.concatenate([others[:100], others[100:200:2]])
    for measured, most in ((others, 0.025), (few, 10 / 150 / 2)):
        apart = [
            Roc(tally(place, cuts), tally(measured, cuts), len(measured)).auc - (measured < place[0]).mean()
            for place in np.arange(-0.5, 200)[:, None]
        ]
        assert 0.019 < np.abs(apart).max() < most


def test_members_found_at_a_rate_of_false_positives_are_scikit_learns():
    for seed in range(20):
        members, others = scores(seed, others=200)
        wrong, right, _ = roc_curve(*truth(members, others), drop_intermediate=False)
        assert roc_of(members, others).caught == pytest.approx(right[wrong <= 1 / 200].max())  # a second would be 1.5 %


@pytest.mark.parametrize("number", [100, 198, 199, 700, 1500])
def test_by_guessing_no_more_members_are_found_than_may_be_taken_for_such(number):
    """Above the k + 1 largest of n others lies (k + 1)/(n + 1) of what is drawn like them, on average."""
    found = [roc_of(*np.split(np.random.default_rng(seed).normal(size=300 + number), [300])) for seed in range(300)]
    expected = (wrongly_taken(number) + 1) / (number + 1)
    assert 0.005 < expected <= 0.01
    mean, error = np.mean([roc.caught for roc in found]), np.std([roc.caught for roc in found]) / 300**0.5
    assert abs(mean - expected) < 4 * error


@pytest.mark.parametrize("number", [150, 700, 3000])
def test_of_however_many_others_the_threshold_is_where_it_ought_to_be(number):
    members, others = scores(1, members=400, others=number, shift=2.0)
    threshold = np.sort(others)[-1 - wrongly_taken(number)]
    assert roc_of(members, others).caught == pytest.approx((members > threshold).mean())


def test_the_interval_is_that_of_all_pairs():
    """Member by member and non-member by non-member, as DeLong has it."""
    members, others = scores(3, members=15, others=18, digits=1)
    wins = np.sign(members[:, None] - others[None, :]) / 2 + 0.5
    spread = wins.mean(1).var(ddof=1), wins.mean(0).var(ddof=1)
    assert roc_of(members, others).interval == pytest.approx(interval(wins.mean(), spread, wins.shape))


@pytest.mark.parametrize(
    ("members", "others", "shift", "spread", "least"),
    [
        (80, 36, 0.0, 1.0, 0.92),
        (80, 36, 0.8, 1.0, 0.92),
        (80, 36, 0.0, 3.0, 0.92),
        (200, 200, 2.0, 1.5, 0.92),
        (12, 12, 0.5, 1.0, 0.92),
        (20, 150, 5.28, 4.0, 0.91),  # AUC 0.9, and few members that are spread widely
    ],
)
def test_intervals_hold_the_truth_as_often_as_they_say(members, others, shift, spread, least):
    from scipy.stats import norm

    true = norm.cdf(shift / np.hypot(1, spread))
    held = []
    for seed in range(800):
        low, high = roc_of(*scores(seed, members, others, shift, spread)).interval
        held.append(low <= true <= high)
    assert least <= np.mean(held) <= 0.99


def test_complete_separation_says_no_more_than_its_pairs():
    roc = roc_of([5, 6, 7], [1, 2, 3, 4])
    assert (roc.auc, *roc.interval) == (1.0, pytest.approx(0.025 ** (1 / 3)), 1.0)
    roc = roc_of([1, 2, 3], [4, 5, 6, 7])
    assert (roc.auc, *roc.interval) == (0.0, 0.0, pytest.approx(1 - 0.025 ** (1 / 3)))


def test_a_few_equal_scores_are_not_guessing_for_sure_and_one_record_is_no_knowledge():
    low, high = roc_of([0.5] * 9, [0.5] * 7).interval
    assert roc_of([0.5] * 9, [0.5] * 7).auc == 0.5 and low == pytest.approx(1 - high) and low < 0.3
    assert roc_of([3.0], [1.0, 2.0]).interval == (0.0, 1.0)


def test_others_counted_several_times_over_change_nothing():
    members, others = scores(1, 30, 18)
    cuts = cut_points(others)
    once = Roc(tally(members, cuts), tally(others, cuts), 18)
    thrice = Roc(tally(members, cuts), 3 * tally(others, cuts), 18)
    assert (thrice.auc, *thrice.interval) == pytest.approx((once.auc, *once.interval))


def added_up(*pairs):
    """Tallies of several models, each between cut points of its own, as a monitor adds them up."""
    each = [(cut_points(np.asarray(others, float)), members, others) for members, others in pairs]
    return Roc(
        sum(tally(np.asarray(members, float), cuts) for cuts, members, _ in each),
        sum(tally(np.asarray(others, float), cuts) for cuts, _, others in each),
        len(each[0][2]),
    )


@pytest.mark.parametrize("others", [18, 48, 200])
def test_tallies_of_models_whose_scores_are_equal_more_or_less_often_add_up(others):
    """The AUC is that of a member's rank among the others at its own model, though at one of them most of these have
    the same score."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        coarse = [np.minimum(1.0, rng.normal(mean, 0.2, n).round(1)) for mean, n in ((1.0, 40), (0.9, others))]
        fine = scores(seed, members=40, others=others)
        expected = np.mean([roc_auc_score(*truth(*one)) for one in (coarse, fine)])
        assert added_up(coarse, fine).auc == pytest.approx(expected, abs=0.025)


def test_what_is_told_apart_at_each_model_is_so_in_the_sum():
    coarse = np.ones(30), np.repeat([0.0, 0.5, 0.75], [10, 20, 18])
    fine = np.full(30, 9.0), np.random.default_rng(0).normal(size=48)
    assert added_up(coarse, fine).auc == 1.0
    assert added_up((-coarse[0], coarse[1]), (-fine[0], fine[1])).auc == 0.0


def test_there_are_as_many_cells_whatever_the_scores():
    rng = np.random.default_rng(0)
    sizes = {len(cut_points(rng.normal(size=n).round(digits))) for n in (1, 2, 20, 21, 150, 2000) for digits in (0, 8)}
    assert len(sizes) == 1


def test_the_strongest_is_the_largest_and_of_equals_the_first():
    weak, strong = roc_of([1, 2, 3], [1, 2, 3]), roc_of([3, 4, 5], [1, 2, 3])
    assert strongest([weak, strong]) == 1
    assert strongest([weak, weak]) == 0

"""What arms leak where they are equally good."""

import numpy as np
import pytest
from scipy import stats

from murmura.compare.equal_utility import at_equal_utility
from murmura.compare.outcome import ArmResult
from murmura.runs import read
from tests.compare.arms import labels
from tests.report.runs import metrics, write_run


def arm(folder, name, *seeds, kind="instruction", key="heldout_loss"):
    """An arm whose runs have these utilities and leakages, round by round."""
    runs = {}
    for seed, course in enumerate(seeds):
        rows = [
            metrics(number, **{key: useful}, attack_auc=auc, attack_auc_low=auc, attack_auc_high=auc)
            for number, (useful, auc) in enumerate(course)
        ]
        runs[seed] = read(write_run(folder / name / f"s{seed}", name, seed, rows, kind=kind))
    return ArmResult(name, kind, range(len(seeds)), runs, 1e-3, (), 12, None, "")


PLAIN = [(2.4, 0.5), (2.2, 0.7), (2.0, 0.9)]


def test_a_method_that_has_only_learnt_less_leaks_no_less(tmp_path):
    slow = [(2.4, 0.5), (2.3, 0.6), (2.2, 0.7)]
    found = at_equal_utility([arm(tmp_path, "plain", PLAIN), arm(tmp_path, "slow", slow)], "plain")
    level = found["slow"]
    assert (level.utility.mean, level.leakage.mean, level.reference.mean) == pytest.approx((2.2, 0.7, 0.7))
    assert level.difference.estimate.mean == pytest.approx(0.0)


def test_between_rounds_figures_go_in_a_straight_line_as_numpy_has_it(tmp_path):
    other = [(2.4, 0.5), (2.25, 0.52), (2.05, 0.61)]
    level = at_equal_utility([arm(tmp_path, "plain", PLAIN), arm(tmp_path, "other", other)], "plain")["other"]
    losses, aucs = zip(*reversed(PLAIN), strict=True)
    assert level.utility.mean == pytest.approx(2.05)
    assert level.reference.mean == pytest.approx(np.interp(2.05, losses, aucs))
    assert level.leakage.mean == pytest.approx(0.61)


def test_the_first_round_counts_that_is_as_good_and_not_one_after_it_grew_worse(tmp_path):
    overfits = [(2.4, 0.5), (2.1, 0.6), (2.3, 0.95), (2.1, 0.99)]
    level = at_equal_utility([arm(tmp_path, "plain", PLAIN), arm(tmp_path, "overfits", overfits)], "plain")["overfits"]
    assert level.utility.mean == pytest.approx(2.1) and level.leakage.mean == pytest.approx(0.6)


def test_where_nothing_is_learnt_the_level_is_that_before_training(tmp_path):
    worse = [(2.4, 0.5), (2.5, 0.6), (2.6, 0.7)]
    level = at_equal_utility([arm(tmp_path, "plain", PLAIN), arm(tmp_path, "worse", worse)], "plain")["worse"]
    assert (level.utility.mean, level.leakage.mean, level.reference.mean) == pytest.approx((2.4, 0.5, 0.5))


def test_differences_are_paired_by_seed_and_corrected_for_how_many_there_are(tmp_path):
    generator = np.random.default_rng(0)

    def jitter(course):
        return [(loss + generator.normal(0, 0.01), auc + generator.normal(0, 0.01)) for loss, auc in course]

    plain = arm(tmp_path, "plain", *(jitter(PLAIN) for _ in range(4)))
    less = [arm(tmp_path, name, *(jitter([(2.4, 0.5), (2.2, 0.6), (2.0, 0.8)]) for _ in range(4))) for name in "ab"]
    found = at_equal_utility([plain, *less], "plain")
    alone = {one.arm: at_equal_utility([plain, one], "plain")[one.arm].difference for one in less}
    assert {name: level.difference.estimate for name, level in found.items()} == {
        name: own.estimate for name, own in alone.items()
    }
    small, large = sorted(alone.values(), key=lambda own: own.p)
    corrected = sorted(level.difference.p for level in found.values())
    assert corrected == pytest.approx([2 * small.p, max(2 * small.p, large.p)])
    half = (small.estimate.high - small.estimate.low) / 2
    error = half / stats.t.ppf(0.975, 3)
    assert small.p == pytest.approx(2 * stats.t.sf(abs(small.estimate.mean) / error, 3))


def test_arms_that_were_measured_too_seldom_or_are_about_other_records_are_left_out(tmp_path):
    plain = arm(tmp_path, "plain", PLAIN)
    seldom = arm(tmp_path, "seldom", [PLAIN[0], PLAIN[-1]])
    assert at_equal_utility([plain, seldom, labels(tmp_path, "words")], "plain") == {}
    assert at_equal_utility([seldom, plain], "seldom") == {}


def test_no_interval_leaves_what_an_auc_can_be(tmp_path):
    high = [[(2.5, 0.5), (2.2, 0.6), (2.0, end)] for end in (0.99, 0.6)]
    found = at_equal_utility([arm(tmp_path, "plain", *high), arm(tmp_path, "other", *high)], "plain")["other"]
    assert found.leakage.high == found.reference.high == 1.0 and found.leakage.low >= 0.0


def test_accuracy_is_better_where_it_is_higher(tmp_path):
    plain = arm(tmp_path, "plain", [(0.5, 0.5), (0.7, 0.6), (0.8, 0.7)], kind="labelled", key="accuracy")
    other = arm(tmp_path, "other", [(0.5, 0.5), (0.6, 0.5), (0.7, 0.5)], kind="labelled", key="accuracy")
    level = at_equal_utility([plain, other], "plain")["other"]
    assert (level.utility.mean, level.leakage.mean, level.reference.mean) == pytest.approx((0.7, 0.5, 0.6))

"""How right and how sure a classifier is, by hand."""

import numpy as np
import pytest

from murmura.measure.classification import confusion, quality


def test_figures_of_distributions():
    """By hand: three texts; confidences .9 (right), .8 (wrong) and .85 (right) in two bins."""
    found = quality(np.array([[0.9, 0.1], [0.8, 0.2], [0.15, 0.85]]), np.array([0, 1, 1]), ("bad", "good"))
    assert (found["accuracy"], found["accuracy_n"]) == (pytest.approx(2 / 3), 3)
    assert found["confusion"] == {"bad": {"bad": 1, "good": 0}, "good": {"bad": 1, "good": 1}}
    assert found["heldout_loss"] == pytest.approx(-np.log([0.9, 0.2, 0.85]).mean())
    assert found["calibration"] == [pytest.approx((0.825, 0.5, 2)), pytest.approx((0.9, 1.0, 1))]
    assert found["calibration_error"] == pytest.approx((2 * 0.325 + 0.1) / 3)


def test_a_label_that_is_never_right_has_a_row_too():
    counts = confusion(np.array([1, 1]), np.array([0, 1]), ("a", "b", "c"))
    assert counts["a"] == {"a": 0, "b": 1, "c": 0} and sum(counts["c"].values()) == 0

"""Scores of several patterns, put together as LP-FL does it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmura.errors import RunError
from murmura.measure.ensemble import ensemble, pattern_accuracies, soft_labels


def test_golden_soft_label():
    scores = np.array([[[2.0, 0.0], [0.0, 1.0]]])
    together = ensemble(scores, [0.8, 0.6])
    np.testing.assert_allclose(together, [[1.142857, 0.428571]], atol=1e-6)
    np.testing.assert_allclose(soft_labels(together), [[0.67135, 0.32865]], atol=5e-6)


def test_temperature():
    scores = np.array([[2.0, 0.0, -1.0]])
    for temperature in (0.5, 1.0, 4.0):
        parts = np.exp(scores / temperature)
        np.testing.assert_allclose(soft_labels(scores, temperature), parts / parts.sum(), rtol=1e-12)
    sureness = [soft_labels(scores, temperature)[0, 0] for temperature in (0.5, 1, 4, 1e6)]
    assert sureness == sorted(sureness, reverse=True)
    assert sureness[-1] == pytest.approx(1 / 3, abs=1e-5)


def test_soft_labels_of_large_scores():
    np.testing.assert_allclose(soft_labels(np.array([[1e4, 0.0], [-1e4, -1e4]])), [[1, 0], [0.5, 0.5]])
    assert soft_labels(np.array([[30.0, 10.0]], dtype=np.float32)).dtype == np.float64


@given(st.integers(1, 5), st.integers(1, 4), st.integers(2, 4), st.floats(0.1, 10), st.integers(0, 99))
def test_soft_labels_are_distributions_that_only_the_weights_shares_matter_to(texts, patterns, labels, factor, seed):
    rng = np.random.default_rng(seed)
    scores, weights = rng.normal(size=(texts, patterns, labels)), rng.random(patterns)
    together = ensemble(scores, weights)
    np.testing.assert_allclose(together, ensemble(scores, factor * weights), rtol=1e-9, atol=1e-12)
    slowly = [
        [sum(a * s[p, label] for p, a in enumerate(weights)) / sum(weights) for label in range(labels)] for s in scores
    ]
    np.testing.assert_allclose(together, slowly, rtol=1e-9, atol=1e-12)
    soft = soft_labels(together)
    np.testing.assert_allclose(soft.sum(axis=1), 1)
    assert (soft > 0).all()
    np.testing.assert_array_equal(soft.argmax(axis=1), together.argmax(axis=1))


def test_a_pattern_without_weight_does_not_count():
    scores = np.array([[[2.0, 0.0], [0.0, 9.0]]])
    np.testing.assert_array_equal(ensemble(scores, [0.5, 0]), scores[:, 0])


def test_patterns_that_are_never_right_count_alike():
    scores = np.array([[[2.0, 0.0], [0.0, 1.0]]])
    np.testing.assert_allclose(ensemble(scores, [0, 0]), [[1, 0.5]])


def test_accuracy_of_each_pattern():
    scores = np.array([[[2, 1], [0, 1]], [[0, 1], [0, 1]], [[5, 1], [1, 1]], [[1, 5], [2, 1]]], dtype=float)
    np.testing.assert_allclose(pattern_accuracies(scores, [0, 1, 1, 0]), [0.5, 0.5])
    np.testing.assert_allclose(pattern_accuracies(scores, [0, 1, 0, 1]), [1.0, 0.5])  # a tie is the first label


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_scores_that_are_no_numbers_stop_the_run(value):
    scores = np.zeros((2, 2, 2))
    scores[1, 0, 1] = value
    with pytest.raises(RunError, match=r"scores of labels are not finite numbers. Lower training.lr."):
        ensemble(scores, [1, 1])
    with pytest.raises(RunError, match="not finite"):
        pattern_accuracies(scores, [0, 1])

"""Scores of several patterns put together, and turned into probabilities (LP-FL, Jiang et al. 2023, eq. 5).

Scores are float arrays [texts, patterns, labels], wherever they were computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from murmura.errors import RunError


@dataclass(frozen=True)
class Weighed:
    """What a model's patterns are worth: a_P of each, and the accuracy of all together on the validation set (None
    where there is none)."""

    weights: list[float]
    accuracy: float | None


def pattern_accuracies(scores: np.ndarray, truth: Sequence[int] | np.ndarray) -> np.ndarray:
    """How often each pattern alone is right, float64 [patterns]: the weights a_P of eq. 5, on the validation set.

    Args:
        scores: float [texts, patterns, labels], at least one text.
        truth: int [texts], the index of the right label.
    """
    return (_finite(scores).argmax(axis=2) == np.asarray(truth)[:, None]).mean(axis=0)


def ensemble(scores: np.ndarray, weights: Sequence[float] | np.ndarray) -> np.ndarray:
    """Scores of all patterns together, ``Σ_P a_P s_P(l|x) / Σ_P a_P`` (eq. 5), float64 [texts, labels].

    The model's answer is the label with the largest.

    Args:
        scores: float [texts, patterns, labels].
        weights: a_P, not negative. If all are 0, no pattern is better than another, and all count alike.

    Raises:
        RunError: a score is not finite.
    """
    shares = np.asarray(weights, dtype=np.float64)
    if not shares.any():
        shares = np.ones_like(shares)
    return np.einsum("p,npl->nl", shares / shares.sum(), _finite(scores))


def soft_labels(scores: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    """``softmax(s / T)`` of each text's scores [texts, labels], float64 of the same shape."""
    from scipy.special import softmax

    found: np.ndarray = softmax(np.asarray(scores, dtype=np.float64) / temperature, axis=1)
    return found


def _finite(scores: np.ndarray) -> np.ndarray:
    """The scores as float64."""
    exact = np.asarray(scores, dtype=np.float64)
    if not np.isfinite(exact).all():
        raise RunError("the model's scores of labels are not finite numbers", fix="Lower training.lr.")
    return exact

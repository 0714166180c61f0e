"""How right and how sure a classifier is, from its distributions over labels; numbers only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from murmura.measure import guessing

BINS = 10  # of equal width, between probability 0 and 1


def quality(probabilities: np.ndarray, truth: np.ndarray, labels: Sequence[str]) -> dict[str, Any]:
    """Figures of a classifier's distributions [n, labels] against the right labels, int [n].

    ``accuracy_n`` is n, the number of texts behind the accuracy; ``accuracy_guess`` and ``heldout_loss_guess`` are what
    they come to by the labels' shares alone (``measure.guessing``); ``confusion`` has for each label how many of its
    texts were given which label. ``heldout_loss`` is the mean of −log p(right label) in nats; ``calibration_error`` is
    Σ_b n_b/n·|accuracy − mean confidence| over ten bins of the confidence, the probability of the likeliest label (Guo
    et al. 2017, ECE); ``calibration`` has (mean confidence, accuracy, n) of each bin that is not empty.
    """
    sure, given = probabilities.max(axis=1), probabilities.argmax(axis=1)
    right = given == truth
    bins = np.minimum((sure * BINS).astype(int), BINS - 1)
    rows = [(float(sure[bins == b].mean()), float(right[bins == b].mean()), int((bins == b).sum())) for b in set(bins)]
    picked = probabilities[np.arange(len(truth)), truth]
    return {
        "heldout_loss": float(-np.log(np.maximum(picked, np.finfo(float).tiny)).mean()),
        "accuracy": float(right.mean()),
        "accuracy_n": len(truth),
        **guessed(truth),
        "calibration_error": sum(n * abs(hit - said) for said, hit, n in rows) / len(truth),
        "calibration": sorted(rows),
        "confusion": confusion(given, truth, labels),
    }


def guessed(truth: np.ndarray) -> dict[str, float]:
    """What accuracy and loss come to by the shares of these labels alone."""
    answers = truth.tolist()
    known = guessing.loss(answers)
    return {"accuracy_guess": guessing.majority(answers)} | ({} if known is None else {"heldout_loss_guess": known})


def confusion(given: np.ndarray, truth: np.ndarray, labels: Sequence[str]) -> dict[str, dict[str, int]]:
    """For each label how many of its records were given which label; ``given`` and ``truth`` are indices of labels."""
    counts = np.zeros((len(labels), len(labels)), dtype=int)
    np.add.at(counts, (truth, given), 1)
    return {label: dict(zip(labels, row.tolist(), strict=True)) for label, row in zip(labels, counts, strict=True)}

"""Labels for unlabelled texts: how many at a time, which ones, and how soft (LP-FL, Jiang et al. 2023).

Numbers only: scores are arrays, wherever they were computed, and texts are known by their place in the pool.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from murmura.measure.ensemble import soft_labels
from murmura.methods.lpfl.config import LPFLConfig
from murmura.streams import Stream

_ROUNDING = 1e-9  # 0.07 · 100 is a little more than 7 in binary, and makes 7 texts all the same


def forced(config: LPFLConfig, event: int) -> bool:
    """Whether an event takes all that is left, sure or not, and whatever the gate says: the last one may."""
    return config.force_complete and event == config.events


def opens(config: LPFLConfig, accuracy: float) -> bool:
    """Whether a model of this accuracy passes the gate."""
    return config.gate == 0 or accuracy > config.gate


def takes(config: LPFLConfig, event: int, accuracy: float) -> bool:
    """Whether an event annotates anything after a round that ended with a model of this accuracy."""
    return forced(config, event) or opens(config, accuracy)


def due(config: LPFLConfig, event: int, accuracy: float, first: int, left: int) -> int:
    """How many texts of a site's pool an event takes at most; there is an event between any two rounds. A share is one
    of the first pool, rounded up, and not of what is left, so that four quarters make a whole.

    Args:
        event: its number, from 1.
        accuracy: of the global model on the server's validation set, in [0, 1].
        first: how many texts the site's pool had before any event.
        left: how many it still has.
    """
    if forced(config, event):
        return left
    return min(left, math.ceil(config.share * first - _ROUNDING)) if opens(config, accuracy) else 0


def reads_scores(config: LPFLConfig, event: int, count: int) -> bool:
    """Whether the whole pool must be scored in order to choose so many; if not, only the chosen texts need to be."""
    return not forced(config, event) and count > 0 and (config.select != "random" or config.threshold is not None)


def choose(
    config: LPFLConfig, event: int, count: int, left: int, stream: Stream, labels: np.ndarray | None = None
) -> list[int]:
    """Indices in the pool of the texts that an event annotates, ascending.

    Args:
        count: how many are ``due``; fewer are chosen if fewer are above the threshold.
        left: how many texts the pool has.
        stream: for ``random``.
        labels: float [left, labels], the model's distribution for each text; not needed unless ``reads_scores``. Ties
            are broken by place in the pool, and between labels by their order.

    Raises:
        ValueError: labels are needed and missing, or not those of the pool.
    """
    if forced(config, event):
        return list(range(left))
    if not reads_scores(config, event, count):
        return sorted(stream.python().sample(range(left), min(count, left)))
    if labels is None or len(labels) != left:
        raise ValueError(f"no distributions over labels for a pool of {left} texts")
    sure = labels.max(axis=1) if left else np.zeros(0)
    able = [index for index in range(left) if config.threshold is None or sure[index] >= config.threshold]
    if config.select == "random":
        return sorted(stream.python().sample(able, min(count, len(able))))
    order = sorted(able, key=lambda index: (-sure[index], index))
    if config.select == "balanced":
        order = _in_turn(order, labels.argmax(axis=1))
    return sorted(order[:count])


def _in_turn(order: Sequence[int], taken_for: np.ndarray) -> list[int]:
    """The first of each label, in the order given, then the second of each, and so on."""
    seen: dict[int, int] = {}
    turn = {}
    for index in order:
        label = int(taken_for[index])
        turn[index] = seen[label] = seen.get(label, 0) + 1
    return sorted(order, key=lambda index: turn[index])  # stable: within a turn, the order given


def targets(scores: np.ndarray, temperature: float = 1.0, *, hard: bool = False) -> np.ndarray:
    """What annotated texts are trained towards, float64 [texts, labels]: distributions over labels.

    Args:
        scores: of all patterns together, float [texts, labels] (``ensemble``, eq. 5).
        temperature: T of ``softmax(s / T)``.
        hard: probability 1 for the label with the largest score, the first of them if there are several.
    """
    return np.eye(scores.shape[1])[scores.argmax(axis=1)] if hard else soft_labels(scores, temperature)

"""(n, p)-discoverable extraction (Hayes et al. 2024, arXiv 2410.19482): how often must an attacker let a model write to
get a record word for word?

No text is written: the probability that one try gives the record is the product of those with which its tokens are
drawn, which the pass that all attacks share has told.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from murmura.audit.membership import Readings
from murmura.generation.sampling import Sampling
from murmura.generation.scoring import CloseScores
from murmura.measure.attacks import Passes
from murmura.measure.figure import interval
from murmura.runs.audit import Extraction
from murmura.tasks import Task

GIVEN, WRITTEN = 50, 50
"""Of a document, the tokens at its beginning that an attacker has, and those behind them that count."""
TRIES = tuple(10**power for power in range(7))


def least_tries(log_probability: float, p: float) -> float:
    """The least n with 1 − (1 − q)ⁿ ≥ p, q the probability of one try; infinite where q is 0, or n beyond any float.

    Args:
        log_probability: log q, at most 0.
        p: in (0, 1).
    """
    q = math.exp(min(0.0, log_probability))
    if q in (0.0, 1.0):
        return 1.0 if q else math.inf
    least = math.log1p(-p) / math.log1p(-q) - 1e-9  # rounding may miss a whole number from above
    return max(1.0, math.ceil(least)) if least < math.inf else math.inf


def log_probability(task: Task, scores: CloseScores) -> float | None:
    """Of a record's response behind its prompt, without the token that ends it; of a document's ``WRITTEN`` tokens
    behind its first ``GIVEN``, or None where it has not as many. In nats, −∞ where some token is never drawn."""
    if task.writes:
        return float(scores.drawn[:-1].astype(np.float64).sum())
    behind = scores.drawn[GIVEN - 1 : GIVEN - 1 + WRITTEN]  # the first token is given and has no score
    return float(behind.astype(np.float64).sum()) if len(behind) == WRITTEN else None


def log_probabilities(task: Task, passes: Iterable[Passes]) -> list[float | None]:
    """Of many records."""
    found = []
    for one in passes:
        assert isinstance(one.model, CloseScores)
        found.append(log_probability(task, one.model))
    return found


def extracted(target: str, task: Task, readings: Readings, sampling: Sampling, p: float) -> Extraction | None:
    """How many records an attacker gets with probability ``p`` in so many tries; None where none is long enough.

    Args:
        target: whose records were read, a key of ``runs.audit.TARGETS``.
        task: their kind, a text.
        readings: read with ``sampling``.
        sampling: how the attacker lets the model write.
        p: in (0, 1).
    """
    lots = ([one for own in readings.members.values() for one in own], [one for row in readings.others for one in row])
    members, others = (
        np.array([least_tries(q, p) for q in log_probabilities(task, lot) if q is not None]) for lot in lots
    )
    if not len(members) or not len(others):
        return None
    different = len(others) // len(readings.others)
    shares = [[float((needed <= n).mean()) for n in TRIES] for needed in (members, others)]
    ends = [interval(share, len(members)) for share in shares[0]]
    return Extraction(
        target,
        sampling.temperature,
        sampling.top_k,
        p,
        len(members),
        different,
        TRIES,
        tuple(shares[0]),
        tuple(low for low, _ in ends),
        tuple(high for _, high in ends),
        tuple(shares[1]),
    )

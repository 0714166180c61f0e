"""The least ε that what an audit saw allows, with confidence: from one run, with many canaries (Steinke, Nasr and
Jagielski 2023).

A fair coin decides for each canary which of two records a unit gets; the audit guesses the coins from what was
released, and leaves out those it is not sure of. Whatever satisfies (ε, δ)-DP lets a guess be right with probability
e^ε / (1 + e^ε) at most, but for δ, so that many right guesses show a large ε.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from murmura.errors import PrivacyError

CONFIDENCE = 0.95
_STEP = 0.05  # of ε, at which the p-value is looked at
_MOST = 40.0  # no audit of fewer than 10¹⁷ canaries shows a larger ε
_FEWEST = 16  # guesses, below which no further canaries are left out


@dataclass(frozen=True)
class LowerBound:
    """What an audit found.

    Attributes:
        epsilon: with confidence, ε is at least this; 0 where nothing was found.
        right: guesses that were right.
        guesses: how many were made.
        canaries: how many there were to guess.
        most: what ``epsilon`` would be, had all been guessed and been right: so many canaries can show no more.
    """

    epsilon: float
    right: int
    guesses: int
    canaries: int
    most: float


def p_value(right: int, guesses: int, canaries: int, epsilon: float, delta: float) -> float:
    """How likely so many right guesses are at most, if what was audited is (ε, δ)-DP (Section 5 of the paper).

    ``f(v) + 2mδ·max_i (f(v − i) − f(v)) / i`` with f(v) the probability of v or more right guesses at ε and δ = 0.

    Args:
        right: guesses that were right, v.
        guesses: that were made, r; the others were left out without looking at the coins.
        canaries: with a fair coin each, m.
        epsilon: of two data sets that differ in one canary's coin.
        delta: likewise.

    Raises:
        PrivacyError: not ``0 ≤ right ≤ guesses ≤ canaries``, or ε or δ is out of range.
    """
    from scipy.stats import binom

    if not 0 <= right <= guesses <= canaries:
        raise PrivacyError(f"{right} right of {guesses} guesses about {canaries} canaries is impossible")
    if not (epsilon >= 0 and 0 <= delta <= 1):
        raise PrivacyError(f"ε = {epsilon}, δ = {delta}", fix="ε is not negative, and δ lies between 0 and 1.")
    chance = 1 / (1 + math.exp(-epsilon))
    tail = float(binom.sf(right - 1, guesses, chance))
    if not right or not delta:
        return tail
    fewer = np.cumsum(binom.pmf(np.arange(right - 1, -1, -1), guesses, chance))  # f(v − i) − f(v) of i = 1, 2, ... v
    return min(1.0, tail + 2 * canaries * delta * float((fewer / np.arange(1, right + 1)).max()))


@lru_cache(maxsize=4096)
def lower_bound(
    right: int, guesses: int, canaries: int, delta: float, adjacency: str, confidence: float = CONFIDENCE
) -> float:
    """The least ε that is compatible with so many right guesses.

    A coin replaces one record by another. Under ``zero-out`` that is to blank one and to put another in the blank's
    place, so (ε, δ) there is (2ε, (1 + e^ε)δ) between the two.

    Args:
        right: as ``p_value``, and so ``guesses`` and ``canaries``.
        delta: of the ε in question.
        adjacency: of the ε in question, ``zero-out`` or ``replace-one``.
        confidence: with which ε is at least what is returned.
    """

    def rejected(epsilon: float) -> bool:
        if adjacency == "replace-one":
            return p_value(right, guesses, canaries, epsilon, delta) < 1 - confidence
        between = min(1.0, (1 + math.exp(epsilon)) * delta)
        return p_value(right, guesses, canaries, 2 * epsilon, between) < 1 - confidence

    low = 0.0
    if not rejected(low):
        return 0.0
    while rejected(low + _STEP) and low < _MOST:
        low += _STEP
    high = low + _STEP
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if rejected(middle) else (low, middle)
    return low


def audited(evidence: Sequence[float], coins: Sequence[int], delta: float, adjacency: str) -> LowerBound:
    """Guess coins by evidence, the surest first: all of them, or half, or a quarter, whichever shows most. That there
    are several attempts is paid for in confidence.

    Args:
        evidence: of each canary: positive speaks for 1, negative for 0; nothing is guessed from 0.
        coins: 0 or 1.
        delta: as ``lower_bound``, and so ``adjacency``.
    """
    if not len(coins):
        return LowerBound(0.0, 0, 0, 0, 0.0)
    order = sorted((place for place, one in enumerate(evidence) if one), key=lambda place: -abs(evidence[place]))
    right = np.cumsum([0, *((evidence[place] > 0) == bool(coins[place]) for place in order)])
    counts = _attempts(len(coins))
    each = 1 - (1 - CONFIDENCE) / len(counts)
    found = []
    for guesses in dict.fromkeys(min(wanted, len(order)) for wanted in counts):
        hits = int(right[guesses])
        value = lower_bound(hits, guesses, len(coins), delta, adjacency, each)
        most = max(lower_bound(wanted, wanted, len(coins), delta, adjacency, each) for wanted in counts)
        found.append(LowerBound(value, hits, guesses, len(coins), most))
    return max(found, key=lambda one: one.epsilon)


def _attempts(canaries: int) -> list[int]:
    counts = [canaries]
    while counts[-1] >= 2 * _FEWEST:
        counts.append(-(-counts[-1] // 2))
    return counts

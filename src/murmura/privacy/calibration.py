"""From ε to noise."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from murmura.errors import PrivacyError
from murmura.privacy.accounting import epsilon, knowing
from murmura.privacy.events import has_integer_noise, unsampled

if TYPE_CHECKING:
    from dp_accounting import DpEvent

LOWEST, _HIGHEST = 1e-2, 1e8  # the range of noise that is searched, in clipping norms


def calibrate(
    event: Callable[[float], DpEvent],
    target: float,
    delta: float,
    adjacency: str,
    accountant: str = "best",
    lowest: float = LOWEST,
) -> float:
    """The least noise whose event has ε ≤ ``target``: within 1e-6 of it, with ``pld`` within 1e-4 (relative).

    Args:
        event: the event at a given standard deviation, in clipping norms.
        target: ε > 0; infinite means no noise.
        lowest: the least noise for which there is a bound.

    Raises:
        PrivacyError: ε ≤ 0, or no noise reaches it.
    """
    if not target > 0:
        raise PrivacyError(f"ε = {target}", fix="Ask for a positive ε; inf trains without noise.")
    if target == math.inf:
        return 0.0
    if accountant == "best" and has_integer_noise(event(lowest)):
        accountant = "rdp"
    if accountant != "best":
        excess, start = _excess(event, target, delta, adjacency, accountant), max(0.0, math.log(lowest))
        return math.exp(_root(excess, start, step=1.0, tolerance=1e-6, lowest=lowest))
    return _least(event, target, delta, adjacency)


_Excess = Callable[[float], float]
"""How far above a target ε is, of the logarithm of the noise: falling."""


def _excess(event: Callable[[float], DpEvent], target: float, delta: float, adjacency: str, accountant: str) -> _Excess:
    return cache(lambda log_std: epsilon(event(math.exp(log_std)), delta, adjacency, accountant).value - target)


def _least(event: Callable[[float], DpEvent], target: float, delta: float, adjacency: str) -> float:
    """The least noise with which any accountant stays within the target."""
    from murmura.privacy.renyi import rough_epsilon

    least = _root(
        _excess(lambda std: unsampled(event(std)), target, delta, adjacency, "exact"), 0.0, step=1.0, tolerance=1e-6
    )
    names = knowing(event(1.0), adjacency)
    if not names:
        return math.exp(least)
    rough = _root(lambda log: rough_epsilon(event(math.exp(log)), delta) - target, least, step=0.5, tolerance=1e-2)
    for name in names:
        excess = _excess(event, target, delta, adjacency, name)
        if excess(least) <= 0:  # else it needs more noise than another one
            least = _root(excess, min(rough, least), step=0.1, tolerance=1e-4)
    return math.exp(least)


def _root(
    excess: Callable[[float], float], start: float, step: float, tolerance: float, lowest: float = LOWEST
) -> float:
    """Where a falling function crosses 0, from its right side, searched outwards from ``start``."""
    from scipy.optimize import brentq

    known, lowest, highest = cache(excess), math.log(lowest), math.log(_HIGHEST)
    low = high = start
    while known(high) > 0:
        low, high = high, high + step
        if high > highest:
            raise PrivacyError("no amount of noise reaches this ε", fix="Raise ε or δ, or take fewer steps.")
        step *= 2
    while known(low) <= 0:
        if low <= lowest:
            return low
        low, high = max(low - step, lowest), low
        step *= 2
    root = brentq(known, low, high, xtol=tolerance)
    while known(root) > 0:
        root += tolerance
    return root

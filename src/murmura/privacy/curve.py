"""The whole (ε, δ) curve of a release, and what it means for an attack: how often one can be right.

An attack that decides whether a unit took part has a rate of false positives α and one of true positives. For every
point of the curve, true positives ≤ e^ε α + δ and ≤ 1 − e^(−ε)(1 − δ − α) (Kairouz, Oh and Viswanath 2015; Dong, Roth
and Su 2022, Proposition 2.5): the least of these over all points is what the release allows any attack.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from murmura.privacy import accounting

if TYPE_CHECKING:
    from dp_accounting import DpEvent

DELTAS = tuple(10.0**-power for power in range(1, 11))
"""At which δ a table shows ε."""
RATES = (0.01, 0.001)
"""Of false positives, at which attacks are spoken of."""
_EPSILONS = (0.0, *(1e-3 * 1.05**step for step in range(275)))  # to 650, where a float's exponential still is one


@dataclass(frozen=True)
class Curve:
    """δ as a function of ε, and ε at some δ; upper bounds all.

    Attributes:
        adjacency: Under which it holds.
        points: (ε, δ), ε rising from 0.
        table: (δ, ε) at chosen δ; ε is infinite where there is no bound.
    """

    adjacency: str
    points: tuple[tuple[float, float], ...]
    table: tuple[tuple[float, float], ...]

    @classmethod
    def of(cls, event: DpEvent, adjacency: str, deltas: Sequence[float] = DELTAS) -> Curve:
        """
        Args:
            event: as ``accounting.epsilon`` takes it.
            deltas: for the table.

        Raises:
            PrivacyError: no accountant supports the event.
        """
        bounds, found = accounting.profile(event, adjacency, deltas, _EPSILONS)
        return cls(adjacency, tuple(zip(_EPSILONS, found, strict=True)), tuple(zip(deltas, bounds, strict=True)))

    @classmethod
    def worst(cls, curves: Sequence[Curve]) -> Curve:
        """At each ε and each δ the largest of several: it holds for whoever any of them is about."""
        points = [(at[0][0], max(delta for _, delta in at)) for at in zip(*(one.points for one in curves), strict=True)]
        table = [(at[0][0], max(bound for _, bound in at)) for at in zip(*(one.table for one in curves), strict=True)]
        return cls(curves[0].adjacency, tuple(points), tuple(table))

    def true_positives(self, false_positives: float) -> float:
        """The best rate of true positives that any attack has with such a rate of false ones, in [0, 1]."""
        found = [1.0]
        for epsilon, delta in self.points:
            found.append(math.exp(epsilon) * false_positives + delta)
            found.append(1 - math.exp(-epsilon) * (1 - delta - false_positives))
        return max(min(found), false_positives)

    def words(self) -> list[str]:
        """What it means for an attack, a sentence for each rate of false positives."""
        return [
            f"An attack that is wrong about {_share(rate)} of those who were not there finds at most "
            f"{_share(self.true_positives(rate), up=True)} of those who were."
            for rate in RATES
        ]


def _share(value: float, *, up: bool = False) -> str:
    """``0.001`` -> ``0.1 %``; an upper bound is rounded up."""
    percent = math.ceil(value * 1000 - 1e-9) / 10 if up else value * 100
    return f"{percent:g} %"

"""What integer noise costs: Rényi divergences of Skellam noise and of sums of discrete Gaussians, as accounting events.

Both are on sums of whole numbers, such as votes. What a unit adds has an L1 norm of at most ``sensitivity``. Since its
numbers are whole, its L2 norm is at most as large, and so is the count of those that are not 0. A number that a unit
does not change costs nothing, so it does not matter how many there are. Only divergences of whole orders are bounded.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Self

import dp_accounting as dp
import numpy as np


@dataclass(frozen=True)
class IntegerNoiseDpEvent(dp.DpEvent, ABC):
    """Integer noise on a sum of whole numbers, where neighbours' sums are ``sensitivity`` apart by L1 norm."""

    sensitivity: int

    @abstractmethod
    def renyi(self, order: float) -> float:
        """An upper bound of the Rényi divergence of two neighbours' noisy sums; infinite unless the order is whole."""

    def further(self, times: int) -> Self:
        """The same noise where neighbours are so many times as far apart."""
        return replace(self, sensitivity=times * self.sensitivity)


@dataclass(frozen=True)
class SkellamDpEvent(IntegerNoiseDpEvent):
    """Skellam noise: the difference of two Poisson variables of mean ``variance``/2 each, on every number."""

    variance: float

    def renyi(self, order: float) -> float:
        """``αΔ²/2µ + min(((2α − 1)Δ² + 6Δ)/4µ², 3Δ/2µ)``, with Δ for both norms (Agarwal, Kairouz and Liu 2021,
        Theorem 3.5 and Corollary 3.6)."""
        if order != int(order):
            return math.inf
        far, variance = self.sensitivity, self.variance
        excess = min(((2 * order - 1) * far**2 + 6 * far) / (4 * variance**2), 3 * far / (2 * variance))
        return order * far**2 / (2 * variance) + excess


@dataclass(frozen=True)
class DiscreteGaussianDpEvent(IntegerNoiseDpEvent):
    """A discrete Gaussian of parameter ``std`` on every number, or the sum of ``shares`` of them of ``std``/√shares."""

    std: float
    shares: int = 1

    def renyi(self, order: float) -> float:
        """``min(α/2·(Δ/σ)² + τΔ, α/2·((Δ/σ)² + 2τΔ/σ + τ²Δ))``, with Δ for both norms and for how many numbers change
        (Kairouz, Liu and Steinke 2021, Theorem 1 and Proposition 14).

        By numbers it follows from |log P/Q| ≤ τ/2: the first bound since P's moments are no larger than a Gaussian's,
        the second from the triangle inequality of concentrated differential privacy.
        """
        if order != int(order):
            return math.inf
        far, tau, ratio = self.sensitivity, twice_distance(self.std, self.shares), self.sensitivity / self.std
        return min(order / 2 * ratio**2 + tau * far, order / 2 * (ratio**2 + 2 * tau * ratio + tau**2 * far))


def twice_distance(std: float, shares: int) -> float:
    """τ: twice a bound of |log P/Q|, for P a sum of discrete Gaussians and Q the discrete Gaussian of its parameter.

    ``τ = 10·Σ_{k<n} exp(−2π²s²·k/(k + 1))`` with s the parameter of one of n shares (Kairouz, Liu and Steinke 2021,
    Theorem 1, for s ≥ ½).

    Args:
        std: √n·s.
        shares: n; the sum of one is a discrete Gaussian, and τ is 0.
    """
    k = np.arange(1, shares)
    return 10.0 * float(np.exp(-2 * np.pi**2 * std**2 / shares * k / (k + 1)).sum())

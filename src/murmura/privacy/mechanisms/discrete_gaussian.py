"""Discrete Gaussian noise on sums of whole numbers (Canonne, Kamath and Steinke 2020)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from decimal import Decimal, localcontext
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

from murmura.privacy.mechanisms.integers import DIGITS, WIDEST, IntegerNoise, Inversion, last
from murmura.privacy.parts import at_least, check
from murmura.units import told_apart

if TYPE_CHECKING:
    import torch

    from murmura.privacy.clipping import Clipping
    from murmura.privacy.entropy import Entropy
    from murmura.privacy.ledger import Spent
    from murmura.privacy.samplers import Sampler

_LEAST_SHARE = 1.0
"""The least parameter, in votes, of one of several discrete Gaussians. With less their sum is too little like one for
its bound to be of use: τ (``twice_distance``) of 1,250 shares is 5.8e-4 at 1, 0.25 at 0.75 and 59 at 0.523."""


@dataclass(frozen=True)
class DiscreteGaussianNoise(IntegerNoise):
    """A discrete Gaussian of parameter σ = ``std``·norm is added to every number of a sum of whole numbers, or by each
    of so many sites one of σ/√``sites`` (Kairouz, Liu and Steinke 2021).

    A sum of such shares is nearly a discrete Gaussian, but not one: how nearly is accounted for, and depends on the
    number of sites.

    Args:
        std: σ in units of the norm. 0 means none.
        sites: that add a share each; 1 where one party adds all of it.
    """

    sites: int = 1
    kind: ClassVar[str] = "discrete-gaussian"

    def __post_init__(self) -> None:
        super().__post_init__()
        whole = isinstance(self.sites, int) and self.sites >= 1
        check(whole, f"discrete Gaussian noise of {self.sites!r} sites", "Give a whole number of sites, at least 1.")

    def divided(self, sites: int) -> DiscreteGaussianNoise:
        return replace(self, sites=sites)

    def check_fits(self, sampler: Sampler, clipping: Clipping) -> None:
        super().check_fits(sampler, clipping)
        least, share = self.least(clipping.norm), self.std * clipping.norm / math.sqrt(self.sites)
        check(
            not self.std or self.std >= least * (1 - 1e-9),
            f"{self.sites} sites would each add discrete Gaussian noise of {share:.3g} votes, whose sum is too little "
            "like a discrete Gaussian for any bound to be of use",
            f"Use Skellam noise, whose shares may be as small as you like, or at least {least:.4g} norms of noise: "
            f"{_LEAST_SHARE:g} vote a share.",
        )

    def least(self, norm: float) -> float:
        return _LEAST_SHARE * math.sqrt(self.sites) / norm if self.sites > 1 else 0.0

    def renyi(self, order: int, sensitivity: int, norm: float) -> float:
        """``min(α/2·(Δ/σ)² + τΔ, α/2·((Δ/σ)² + 2τΔ/σ + τ²Δ))``, with Δ for both norms and for how many numbers change
        (Kairouz, Liu and Steinke 2021, Theorem 1 and Proposition 14).

        By numbers it follows from |log P/Q| ≤ τ/2: the first bound since P's moments are no larger than a Gaussian's,
        the second from the triangle inequality of concentrated differential privacy.
        """
        far, std = sensitivity, self.std * norm
        tau, ratio = twice_distance(std, self.sites), far / std
        return min(order / 2 * ratio**2 + tau * far, order / 2 * (ratio**2 + 2 * tau * ratio + tau**2 * far))

    def moments(self, sigma: float) -> tuple[float, float]:
        """Wide ones have a Gaussian's."""
        if sigma >= 4:
            return super().moments(sigma)
        import numpy as np

        numbers = np.arange(-60, 61) / max(sigma, 0.1)  # below that all numbers are 0 anyway
        chances = np.exp(-(numbers**2) / 2)
        second, fourth = (float((numbers**power * chances).sum() / chances.sum()) for power in (2, 4))
        return second, fourth

    def draw(self, norm: float, count: int, entropy: Entropy, shares: int = 1) -> torch.Tensor:
        what = f"a share of discrete Gaussian noise among {shares} sites, where the plan has {self.sites}"
        check(shares == self.sites, what, "Its ε depends on the number of sites: take the plan's.")
        return discrete_gaussian(count, self.std * norm / math.sqrt(shares), entropy)

    def departures(self, entry: Spent) -> list[str]:
        found = super().departures(entry)
        share, planned = entry.noise_std / math.sqrt(entry.shares or 1), self.std / math.sqrt(self.sites)
        if not at_least(share, planned):  # a sum of more and smaller shares is less like a discrete Gaussian
            done, least = told_apart(share, planned)
            found.append(f"its shares of noise were {done} norms each where {least} was planned")
        return found

    def words(self, amount: str) -> str:
        return f"discrete Gaussian noise{amount}" + (f" in {self.sites} shares" if self.sites > 1 else "")


def discrete_gaussian(count: int, sigma: float, entropy: Entropy) -> torch.Tensor:
    """Whole numbers x with probabilities proportional to exp(−x²/2σ²), int64 [count].

    Raises:
        PrivacyError: σ is negative, or larger than 8,192.
    """
    import torch

    fix = f"Use Skellam noise for more than {WIDEST:,} votes."
    check(0 <= sigma <= WIDEST, f"discrete Gaussian noise of σ = {sigma:g}", fix)
    return torch.from_numpy(table(sigma).draw(count, entropy)) if sigma else torch.zeros(count, dtype=torch.int64)


@lru_cache(maxsize=16)
def table(sigma: float) -> Inversion:
    """Weights 1, q, q⁴, q⁹, … with q = exp(−1/2σ²)."""
    with localcontext(DIGITS):
        factor = (-1 / (2 * Decimal(sigma) ** 2)).exp()
        square, found = factor**2, [Decimal(1)]
        for _ in range(last(lambda k: (k / sigma) * (k / sigma) / 2)):
            found.append(found[-1] * factor)
            factor *= square
    return Inversion(found)


def twice_distance(std: float, shares: int) -> float:
    """τ: twice a bound of |log P/Q|, for P a sum of discrete Gaussians and Q the discrete Gaussian of its parameter.

    ``τ = 10·Σ_{k<n} exp(−2π²s²·k/(k + 1))`` with s the parameter of one of n shares (Kairouz, Liu and Steinke 2021,
    Theorem 1, for s ≥ ½).

    Args:
        std: √n·s.
        shares: n; the sum of one is a discrete Gaussian, and τ is 0.
    """
    import numpy as np

    k = np.arange(1, shares)
    return 10.0 * float(np.exp(-2 * np.pi**2 * std**2 / shares * k / (k + 1)).sum())

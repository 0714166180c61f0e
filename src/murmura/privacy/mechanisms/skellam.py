"""Skellam noise on sums of whole numbers (Agarwal, Kairouz and Liu 2021)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

from murmura.privacy.mechanisms.integers import DIGITS, WIDEST, IntegerNoise, Inversion, last
from murmura.privacy.parts import check

if TYPE_CHECKING:
    import torch

    from murmura.privacy.entropy import Entropy

_MOST_PARTS = 2**10  # that a wide noise is the sum of: each is off by 2⁻¹¹⁰ at most


@dataclass(frozen=True)
class SkellamNoise(IntegerNoise):
    """The difference of two Poisson variables, of variance (``std``·norm)², is added to every number of a sum of whole
    numbers. 0 means none.

    A sum of shares by several sites, each of a part of this variance, has the same distribution.
    """

    kind: ClassVar[str] = "skellam"

    def renyi(self, order: int, sensitivity: int, norm: float) -> float:
        """``αΔ²/2µ + min(((2α − 1)Δ² + 6Δ)/4µ², 3Δ/2µ)``, with Δ for both norms and µ for the variance (Agarwal et al.
        2021, Theorem 3.5 and Corollary 3.6)."""
        far, variance = sensitivity, (self.std * norm) ** 2
        excess = min(((2 * order - 1) * far**2 + 6 * far) / (4 * variance**2), 3 * far / (2 * variance))
        return order * far**2 / (2 * variance) + excess

    def moments(self, sigma: float) -> tuple[float, float]:
        return 1.0, 3 + sigma**-2

    def draw(self, norm: float, count: int, entropy: Entropy, shares: int = 1) -> torch.Tensor:
        return skellam(count, (self.std * norm) ** 2 / shares, entropy)

    def words(self, amount: str) -> str:
        return f"Skellam noise{amount}"


def skellam(count: int, variance: float, entropy: Entropy) -> torch.Tensor:
    """Differences of two Poisson variables of mean ``variance``/2, int64 [count].

    Raises:
        PrivacyError: the variance is negative, or larger than 2³⁶.
    """
    import torch

    most = _MOST_PARTS * WIDEST**2
    fix = f"Give a variance of at most {most:.3g}, 0 for none."
    check(0 <= variance <= most, f"Skellam noise of variance {variance:g}", fix)
    parts = math.ceil(variance / WIDEST**2)  # the sum of several has the same distribution
    drawn = torch.zeros(count, dtype=torch.int64)
    for _ in range(parts):
        drawn += torch.from_numpy(table(variance / parts).draw(count, entropy))
    return drawn


@lru_cache(maxsize=16)
def table(variance: float) -> Inversion:
    """Weights I₀(µ), I₁(µ), …, by Miller's algorithm: ``I_{k−1} = I_{k+1} + 2k/µ·I_k`` downwards, where it is stable.

    To begin with I_{K+1} = 0 makes every probability wrong by that of K + 1 at most.
    """

    def exponent(k: int) -> float:  # by Chernoff, of which the tail's probability is below exp(−x)
        return k * math.asinh(k / variance) - k**2 / (math.hypot(k, variance) + variance)

    with localcontext(DIGITS):
        step, found = 2 / Decimal(variance), [Decimal(0), Decimal(1)]
        for k in range(last(exponent), 0, -1):
            found.append(found[-2] + k * step * found[-1])
    return Inversion(found[:0:-1])

"""What Skellam and discrete Gaussian noise have in common: both are for sums of whole numbers, such as votes, and are
drawn exactly from the bytes of a source of secrets.

What a unit adds has an L1 norm of at most its votes. Since its numbers are whole, its L2 norm is at most as large, and
so is the count of those that are not 0. A number that a unit does not change costs nothing, so it does not matter how
many there are.

To draw one, a number of 128 random bits is looked up in the distribution function, which is computed once, in decimals
of 80 digits. No float comes near it, and how long a draw takes hardly depends on what is drawn, as it would with
rejection. What is drawn is off from its distribution by less than 2⁻¹⁰⁰ in total variation: that is how much each
number adds to δ, times 1 + e^ε, and far below the last digit of any δ that is of use.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from itertools import accumulate
from typing import TYPE_CHECKING, ClassVar

from murmura.privacy.mechanisms.noise import Noise, Tensors

if TYPE_CHECKING:
    import numpy as np
    import torch
    from dp_accounting import DpEvent

    from murmura.privacy.entropy import Entropy
    from murmura.privacy.plan import PrivacyPlan

WIDEST = 2**13
"""The largest σ of a table, of some 30σ numbers."""
DIGITS = Context(prec=80)
_TAIL = 161 * math.log(2)  # numbers beyond, of probability 2⁻¹⁶⁰ together, are left out


@dataclass(frozen=True)
class IntegerNoise(Noise):
    """Noise of whole numbers, of which each of several sites may add a share."""

    clippings: ClassVar[tuple[str, ...]] = ("votes",)
    has_shares: ClassVar[bool] = True

    @abstractmethod
    def renyi(self, order: int, sensitivity: int, norm: float) -> float:
        """An upper bound of the Rényi divergence of two neighbours' noisy sums.

        Args:
            sensitivity: how far apart the sums are, in votes.
            norm: votes a site.
        """

    @abstractmethod
    def draw(self, norm: float, count: int, entropy: Entropy, shares: int = 1) -> torch.Tensor:
        """Noise for ``count`` numbers of a sum, or one of so many ``shares`` of it, int64 [count].

        Raises:
            PrivacyError: the noise is too wide to be drawn, or of a discrete Gaussian the plan names another number of
                shares.
        """

    def event(self, plan: PrivacyPlan, steps: int, repeated: Sequence[int]) -> DpEvent:
        import dp_accounting as dp

        from murmura.privacy.renyi import IntegerNoiseDpEvent

        votes = round(plan.sensitivity * plan.clipping.norm)
        return dp.SelfComposedDpEvent(IntegerNoiseDpEvent(self, plan.clipping.norm, votes), steps + len(repeated))

    def add(self, total: Tensors, norm: float, entropy: Entropy, shares: int = 1) -> dict[str, torch.Tensor]:
        """In float64."""
        return {
            name: tensor.double() + self.draw(norm, tensor.numel(), entropy, shares).view(tensor.shape)
            for name, tensor in total.items()
        }


class Inversion:
    """A symmetric distribution of whole numbers, by its distribution function.

    Args:
        weights: of 0, 1, 2, … and so of −1, −2, …, up to a factor.
    """

    def __init__(self, weights: Sequence[Decimal]) -> None:
        import numpy as np

        self._least = 1 - len(weights)
        with localcontext(DIGITS):
            below = list(accumulate([*reversed(weights[1:]), *weights]))
            scale = 2**128 / below[-1]
            # F of −K, −K + 1, … in units of 2⁻¹²⁸.
            self._bounds = [min(int(one * scale), 2**128 - 1) for one in below[:-1]]
        self._high = np.array([bound >> 64 for bound in self._bounds], np.uint64)

    def draw(self, count: int, entropy: Entropy) -> np.ndarray:
        """Int64 [count]: how many bounds a number of 128 bits has reached. Its first half nearly always tells."""
        import numpy as np

        high = entropy.words(count)
        place = np.searchsorted(self._high, high)
        tied = self._high[np.minimum(place, len(self._high) - 1)] == high
        for at in np.flatnonzero(tied):
            place[at] = bisect_right(self._bounds, int(high[at]) << 64 | int(entropy.words(1)[0]))
        return place.astype(np.int64) + self._least


def last(exponent: Callable[[int], float]) -> int:
    """The first whole number at which a rising exponent says that the tail no longer counts."""
    high = 1
    while exponent(high) < _TAIL:
        high *= 2
    return 1 + bisect_left(range(1, high), _TAIL, key=exponent)

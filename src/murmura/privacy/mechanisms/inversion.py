"""Whole numbers of a distribution, drawn exactly from the bytes of a source of secrets.

A number of 128 random bits is looked up in the distribution function, which is computed once, in decimals of 80 digits.
No float comes near it, and how long a draw takes hardly depends on what is drawn, as it would with rejection. What is
drawn is off from its distribution by less than 2⁻¹⁰⁰ in total variation: that is how much each number adds to δ, times
1 + e^ε, and far below the last digit of any δ that is of use.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from decimal import Context, Decimal, localcontext
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from murmura.privacy.entropy import Entropy

WIDEST = 2**13
"""The largest σ of a table, of some 30σ numbers."""
DIGITS = Context(prec=80)
_TAIL = 161 * math.log(2)  # numbers beyond, of probability 2⁻¹⁶⁰ together, are left out


class Inversion:
    """A symmetric distribution of whole numbers, by its distribution function.

    Args:
        weights: of 0, 1, 2, … and so of −1, −2, …, up to a factor.
    """

    def __init__(self, weights: Sequence[Decimal]) -> None:
        self._least = 1 - len(weights)
        with localcontext(DIGITS):
            below = list(accumulate([*reversed(weights[1:]), *weights]))
            scale = 2**128 / below[-1]
            # F of −K, −K + 1, … in units of 2⁻¹²⁸.
            self._bounds = [min(int(one * scale), 2**128 - 1) for one in below[:-1]]
        self._high = np.array([bound >> 64 for bound in self._bounds], np.uint64)

    def draw(self, count: int, entropy: Entropy) -> np.ndarray:
        """Int64 [count]: how many bounds a number of 128 bits has reached. Its first half nearly always tells."""
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

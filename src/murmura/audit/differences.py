"""95 % intervals of how much closer what models write comes to the sites' records than to others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from murmura.measure.statistics import Estimate
from murmura.measure.text import References
from murmura.streams import Stream

_PAIRS = 50
_DRAWS = 1000


def dealt(
    own: Sequence[Sequence[str]], others: Sequence[str], stream: Stream
) -> list[list[tuple[References, References]]]:
    """For each model its sites' records and as many others, drawn at random and dealt into pairs of lots of one size,
    at most 50.

    Models have others of their own as long as there are enough. One that several have stands in the same pair of each,
    so that it changes sides with all that it is compared with.

    Args:
        own: of each model, the sites' records.
        others: at least one.
        stream: decides which are drawn, and which lot each is in.
    """
    rng = stream.python()
    chosen = [rng.sample(list(some), min(len(some), len(others))) for some in own]
    drawn = rng.sample(list(others), min(sum(map(len, chosen)), len(others)))
    found = []
    for some, start in zip(chosen, accumulate(map(len, chosen), initial=0), strict=False):
        pairs = [(References(), References()) for _ in range(min(_PAIRS, len(drawn)))]
        for place, text in enumerate(some, start):
            other = place % len(drawn)
            first, second = pairs[other % _PAIRS]
            first.add(text)
            second.add(drawn[other])
        found.append(pairs)
    return found


def nearest(near: np.ndarray, generator: np.random.Generator) -> tuple[float, float]:
    """By how much texts come closer to the nearest of the sites' own records than to the nearest of others, on average.

    Which records stand on which side is chance as much as what is written: a model that writes about one subject alone
    comes closest to whoever has a record on it. Were there no difference, each pair of lots might as well have changed
    sides (Fisher 1935). So the interval reaches as far from what was found as 95 % of such changes, of which each pair
    makes part or not by a coin, come from 0: it leaves out 0 where a randomisation test at 5 % would. About a large
    difference it is wider than it need be. Of fewer than six pairs it always holds 0.

    Args:
        near: float64 [texts, pairs, 2], a text's nearness to the nearest of a lot of the sites' own, and of the lot of
            others, as large, that may change places with it; from 0 to 1, 0 for an empty lot.
        generator: throws the coins.

    Returns:
        Both ends, from -1 to 1.
    """
    sides = np.ascontiguousarray(near.transpose(2, 1, 0))
    found = _apart(*sides)
    sizes = [abs(_apart(*np.where(way[:, None], sides[::-1], sides))) for way in _ways(near.shape[1], generator)]
    reach = sorted(sizes)[math.ceil(0.95 * len(sizes)) - 1]
    return max(found - reach, -1.0), min(found + reach, 1.0)


def _ways(pairs: int, generator: np.random.Generator) -> np.ndarray:
    """Bool [ways, pairs], which pairs change sides: all ways where these are no more than draws would be, else such
    draws, of which one is that none does."""
    if 2**pairs <= _DRAWS:
        return (np.arange(2**pairs)[:, None] >> np.arange(pairs) & 1).astype(bool)
    ways = generator.random((_DRAWS, pairs)) < 0.5
    ways[0] = False
    return ways


def of_means(own: Sequence[float], others: Sequence[float]) -> tuple[float, float]:
    """Of the difference of two means of independent values from 0 to 1.

    Either mean has the interval of ``Estimate.of_shares``. As they are independent, their reaches add up in squares
    (Zou and Donner 2008).

    Returns:
        Both ends. From -1 to 1 where there is one value on either side: then nothing is known.
    """
    if min(len(own), len(others)) < 2:
        return -1.0, 1.0
    one, two = Estimate.of_shares(own), Estimate.of_shares(others)
    assert one.ends and two.ends  # a share has an interval always
    (low, high), (other_low, other_high) = one.ends, two.ends
    down, up = math.hypot(one.mean - low, other_high - two.mean), math.hypot(high - one.mean, two.mean - other_low)
    return one.mean - two.mean - down, one.mean - two.mean + up


def _apart(own: np.ndarray, others: np.ndarray) -> float:
    """Of two sides, float64 [pairs, texts]."""
    return float((own.max(axis=0) - others.max(axis=0)).mean())

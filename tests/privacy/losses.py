"""What Poisson-sampled Gaussian steps really cost: an oracle that shares no code with any accountant.

One step's losses are counted in cells, each at its middle, and composed by a Fourier transform of the distribution
tilted towards the losses that matter: so what rounding takes is a share of δ, however small δ is.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import fft, optimize
from scipy.special import ndtr


def delta(rate: float, noise: float, steps: int, epsilon: float, adjacency: str, cell: float) -> float:
    """δ at ε, for a multiplier relative to how far the adjacency moves a sum.

    Cells widen the variance of each step's loss by cell²/12; so this is a little above δ.
    """
    ways = (1, -1) if adjacency == "zero-out" else (0,)
    return max(_delta(*_cells(rate, noise, way, cell), steps, epsilon) for way in ways)


def epsilon(rate: float, noise: float, steps: int, delta_: float, adjacency: str, cell: float) -> float:
    """ε at δ, where it is above 0."""

    def excess(at: float) -> float:
        return math.log(max(delta(rate, noise, steps, at, adjacency, cell), 1e-300) / delta_)

    high = 1.0
    while excess(high) > 0:
        high *= 2
    return float(optimize.brentq(excess, 1e-9, high, xtol=1e-9))


def _loss(rate: float, noise: float, x: np.ndarray) -> np.ndarray:
    """Of a sum x, with the unit in the sample with chance ``rate`` against never."""
    return np.logaddexp(np.log1p(-rate), math.log(rate) + (2 * x - 1) / (2 * noise**2))


def _cells(rate: float, noise: float, way: int, cell: float) -> tuple[np.ndarray, np.ndarray]:
    """Losses and their probabilities: of a unit that is there (1), is not (−1), or is another (0: either pulls the sum
    its way, the noise is twice the multiplier)."""
    std = noise if way else 2 * noise

    def loss(x: np.ndarray) -> np.ndarray:
        if way:
            return way * _loss(rate, std, way * x)
        return _loss(rate, std, x) - _loss(rate, std, -x)

    reach = 14 * std + 1
    ends = loss(np.array([-reach, reach])) / cell
    places = np.arange(math.floor(ends[0]), math.ceil(ends[1]) + 1)
    edges = (places[:-1] + 0.5) * cell
    low, high = np.full(len(edges), -reach - 1), np.full(len(edges), reach + 1)
    for _ in range(80):
        middle = (low + high) / 2
        below = loss(middle) < edges
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    there = rate if way >= 0 else 0.0
    above = (1 - there) * ndtr(-low / std) + there * ndtr((1 - low) / std)
    return places * cell, -np.diff(np.concatenate([[1.0], above, [0.0]]))


def _delta(losses: np.ndarray, chances: np.ndarray, steps: int, epsilon: float) -> float:
    kept = chances > 0
    losses, logs = losses[kept], np.log(chances[kept])
    cell = float(np.diff(losses).min())

    def exponent(tilt: float) -> float:
        return float(steps * np.logaddexp.reduce(logs + tilt * losses) - tilt * epsilon)

    tilt = float(optimize.minimize_scalar(exponent, bounds=(1e-6, 500), method="bounded").x)
    tilted = np.exp(logs + tilt * losses - np.logaddexp.reduce(logs + tilt * losses))
    mean = float((tilted * losses).sum())
    std = math.sqrt(float((tilted * (losses - mean) ** 2).sum()) * steps)
    places = np.rint((losses - losses[0]) / cell).astype(int)
    width = max(28 * std, 2 * (losses[-1] - losses[0])) / cell
    length = fft.next_fast_len(places[-1] + 1 + int(min(width, places[-1] * steps)))
    spread = np.bincount(places, tilted, length)
    composed = fft.irfft(fft.rfft(spread) ** steps, length)
    middle = round(steps * (mean - losses[0]) / cell)
    start = middle - length // 2
    sums = steps * losses[0] + ((np.arange(length) - start) % length + start) * cell
    above = sums > epsilon
    over = sums[above] - epsilon
    return math.exp(exponent(tilt)) * float((composed[above] * np.exp(-tilt * over) * -np.expm1(-over)).sum())

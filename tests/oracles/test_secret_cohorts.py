"""What an ε that counts on secret cohorts is worth to somebody who is told how large each cohort was."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import binom

from murmura.privacy.clipping import SiteClipping
from murmura.privacy.mechanisms.gaussian import GaussianNoise
from murmura.privacy.plan import PrivacyPlan
from murmura.privacy.samplers import PoissonSampling

pytestmark = pytest.mark.slow

DELTA = 1e-5
STEP = 2e-3  # of the grid of privacy losses
BINS = 2**17


def least_epsilon(sites: int, expected: int, rounds: int, z: float, *, sizes_are_seen: bool) -> float:
    """A lower bound of the ε that hides one of ``sites`` sites from whoever sees the noisy sum of each round, and the
    size of its cohort or not.

    Without the site the size is s ~ Bin(n − 1, q) and the sum, in one direction, N(0, z²). With it, both are moved by
    one with probability q. So a pair's likelihood ratio is (1 − q) + q·(Bin(s − 1)/Bin(s))·exp((2x − 1)/2z²). Its
    logarithm, rounded down, is composed by FFT over the rounds; δ(ε) = E[(1 − exp(ε − loss))⁺].
    """
    q = expected / sites
    edges = STEP * (np.arange(BINS + 1) - BINS // 2)
    below = np.zeros(BINS + 1)  # P(loss ≤ edge) with the site
    certain = 0.0  # probability of a pair that cannot be without the site
    seen = [(binom.pmf(size, sites - 1, q), binom.pmf(size - 1, sites - 1, q)) for size in range(sites + 1)]
    for without, joined in seen if sizes_are_seen else [(1.0, 1.0)]:
        if without == 0:
            certain += q * joined
            continue
        grown = (np.exp(edges) - (1 - q)) / q  # what the second term must be
        with np.errstate(divide="ignore", invalid="ignore"):
            x = np.where(grown > 0, z**2 * np.log(grown * without / joined) + 0.5, -np.inf) if joined else None
        if x is None:  # an empty cohort: the loss is log(1 − q), whatever the sum
            below += (1 - q) * without * (edges >= np.log(1 - q))
        else:
            below += (1 - q) * without * ndtr(x / z) + q * joined * ndtr((x - 1) / z)
    mass = np.diff(below)
    assert mass.sum() + certain == pytest.approx(1, abs=1e-6), "the grid is wide enough"
    # The loss of bin k is at least edges[k]; the zero of the grid stays in the middle through every convolution.
    composed = np.fft.irfft(np.fft.rfft(np.roll(mass, -(BINS // 2)), BINS) ** rounds, BINS)
    composed = np.maximum(np.roll(composed, BINS // 2), 0)
    infinite = 1 - (1 - certain) ** rounds

    def delta(epsilon: float) -> float:
        over = edges[:-1] > epsilon
        return infinite + float(composed[over] @ -np.expm1(epsilon - edges[:-1][over]))

    low, high = 0.0, 60.0
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (middle, high) if delta(middle) > DELTA else (low, middle)
    return low


@pytest.mark.parametrize("sites, expected, least", [(10, 2, 9.7), (20, 5, 8.6), (100, 10, 8.3)])
def test_known_sizes_of_cohorts_are_worth_more_than_the_epsilon(sites, expected, least):
    plan = PrivacyPlan(
        "site", "zero-out", PoissonSampling(expected / sites), SiteClipping(0.1), GaussianNoise(0.0), 100, DELTA
    ).calibrated(8, "pld")
    assert plan.has_secret_cohort
    if sites == 10:
        assert plan.noise_multiplier == pytest.approx(1.444, abs=1e-3)
    z = plan.noise_multiplier
    assert least_epsilon(sites, expected, 100, z, sizes_are_seen=True) >= least
    unseen = least_epsilon(sites, expected, 100, z, sizes_are_seen=False)
    assert 7.8 < unseen <= 8  # PLD's, less what rounding down costs

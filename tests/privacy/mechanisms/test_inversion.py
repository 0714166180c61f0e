"""Integer noise is what it is said to be: its distribution function to the last bit, and what is drawn by it."""

from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from scipy.stats import skellam as scipy_skellam

from murmura.errors import PrivacyError
from murmura.privacy.entropy import OSEntropy, SeededEntropy
from murmura.privacy.mechanisms import discrete_gaussian as discrete_gaussians
from murmura.privacy.mechanisms import skellam as skellams
from murmura.privacy.mechanisms.discrete_gaussian import DiscreteGaussianNoise, discrete_gaussian
from murmura.privacy.mechanisms.skellam import SkellamNoise, skellam
from murmura.streams import Stream

FINE = Fraction(1, 2**100)


def entropy(name):
    return SeededEntropy(Stream(0) / name)


def chances(table):
    """Numbers, and the exact probability with which each is drawn."""
    bounds = [0, *table._bounds, 2**128]
    found = [Fraction(above - below, 2**128) for below, above in pairwise(bounds)]
    return range(table._least, table._least + len(found)), found


@pytest.mark.parametrize("variance", [0.001, 0.2732, 40.86, 8172.16])
def test_skellam_has_its_moments_to_a_hundred_bits(variance):
    numbers, found = chances(skellams.table(variance))
    moments = [sum(x**power * chance for x, chance in zip(numbers, found, strict=True)) for power in range(5)]
    exact, whole = Fraction(variance), 2**24  # numbers to the fourth make the last bits count for more
    assert moments[0] == 1
    assert abs(moments[1]) < FINE * whole
    assert abs(moments[2] - exact) < FINE * whole
    assert abs(moments[4] - (3 * exact**2 + exact)) < FINE * whole * whole


@pytest.mark.parametrize("sigma", [0.05, 0.7, 18.48])
def test_discrete_gaussian_has_its_ratios_to_a_hundred_bits(sigma):
    numbers, found = chances(discrete_gaussians.table(sigma))
    middle = -numbers[0]
    for x in (1, 2, 10, 50):
        with localcontext(prec=60):
            exact = Fraction((-(x**2) / (2 * Decimal(sigma) ** 2)).exp()) * found[middle]
        for place in (middle - x, middle + x):
            assert abs((found[place] if 0 <= place < len(found) else 0) - exact) < FINE


@pytest.mark.parametrize("variance", [0.2732, 40.86, 8172.16])
def test_skellam_is_what_is_drawn(variance):
    drawn = skellam(100_000, variance, entropy("skellam")).numpy()
    assert drawn.dtype == np.int64
    assert fits(drawn, scipy_skellam(variance / 2, variance / 2).pmf)
    assert np.var(drawn) == pytest.approx(variance, rel=0.03)


@pytest.mark.parametrize("sigma", [0.5, 3.0, 90.4])
def test_discrete_gaussian_is_what_is_drawn(sigma):
    weights = lambda x: np.exp(-(x**2) / (2 * sigma**2))  # noqa: E731
    total = weights(np.arange(-2000, 2001)).sum()
    drawn = discrete_gaussian(100_000, sigma, entropy("discrete")).numpy()
    assert fits(drawn, lambda x: weights(x) / total)


def fits(drawn, chance):
    """By χ², with the numbers that come up rarely taken together."""
    numbers = np.arange(drawn.min(), drawn.max() + 1)
    expected = chance(numbers) * len(drawn)
    seen = np.bincount(drawn - drawn.min())
    often = expected >= 5
    expected, seen = ([*part[often], part[~often].sum()] for part in (expected, seen))
    expected[-1] = len(drawn) - sum(expected[:-1])
    return chisquare(seen, expected).pvalue > 1e-3


def test_shares_of_skellam_noise_add_up_to_all_of_it():
    _, share = chances(skellams.table(40.0 / 8))
    one = np.array([float(chance) for chance in share])
    summed = one
    for _ in range(7):
        summed = np.convolve(summed, one)
    numbers = np.arange(len(summed)) - len(summed) // 2
    assert np.allclose(summed, scipy_skellam(20.0, 20.0).pmf(numbers), atol=1e-14)


class Told(SeededEntropy):
    """A source whose words are given."""

    def __init__(self, *words):
        self._bytes = np.array(words, np.uint64).tobytes()

    def bytes(self, count):
        found, self._bytes = self._bytes[:count], self._bytes[count:]
        return found


@pytest.mark.parametrize("number", [-20, 0, 7])
def test_where_64_bits_do_not_tell_64_more_do(number):
    table = skellams.table(40.86)
    bound = table._bounds[number - table._least]  # from here on more than the number is drawn
    high, low = bound >> 64, bound % 2**64
    assert table.draw(2, Told(high - 1, high + 1)).tolist() == [number, number + 1]
    assert table.draw(1, Told(high, low - 1)).tolist() == [number]
    assert table.draw(1, Told(high, low)).tolist() == [number + 1]


def test_the_rarest_words_give_numbers_too():
    table = skellams.table(40.86)
    assert table.draw(1, Told(0, 0)).tolist()[0] < -70
    assert table.draw(1, Told(2**64 - 1, 2**64 - 1)).tolist()[0] > 70


def test_wide_noise_is_a_sum_of_narrower(monkeypatch):
    monkeypatch.setattr(skellams, "WIDEST", 4)
    drawn = skellam(50_000, 100.0, entropy("wide")).numpy()
    assert fits(drawn, scipy_skellam(50.0, 50.0).pmf)


def test_a_plans_noise_and_a_share_of_it():
    whole = SkellamNoise(2.0).draw(8, 50_000, entropy("whole")).double()
    share = SkellamNoise(2.0).draw(8, 50_000, entropy("share"), shares=64).double()
    discrete = DiscreteGaussianNoise(2.0, 16).draw(8, 50_000, entropy("discrete"), shares=16).double()
    found = [float(one.var()) for one in (whole, share, discrete)]
    assert found == pytest.approx([256.0, 4.0, 16.0], rel=0.03)
    assert SkellamNoise(0.0).draw(8, 3, OSEntropy()).equal(torch.zeros(3, dtype=torch.int64))
    assert not SkellamNoise(2.0).draw(8, 50, OSEntropy()).equal(SkellamNoise(2.0).draw(8, 50, OSEntropy()))
    with pytest.raises(PrivacyError, match="among 15 sites, where the plan has 16"):
        DiscreteGaussianNoise(2.0, 16).draw(8, 3, OSEntropy(), shares=15)


def test_noise_that_cannot_be_drawn_is_refused():
    for call in (lambda: skellam(1, -1.0, OSEntropy()), lambda: skellam(1, float("inf"), OSEntropy())):
        with pytest.raises(PrivacyError, match=r"Give a variance of at most 6\.87e\+10, 0 for none"):
            call()
    with pytest.raises(PrivacyError, match="Use Skellam noise for more than 8,192 votes"):
        discrete_gaussian(1, 1e4, OSEntropy())

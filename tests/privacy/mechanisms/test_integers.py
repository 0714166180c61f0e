"""Bounds for integer noise, held against the divergences themselves, summed number by number."""

import math
from functools import cache

import numpy as np
import pytest
from scipy.special import ive, logsumexp

from murmura.privacy.mechanisms.discrete_gaussian import DiscreteGaussianNoise, twice_distance
from murmura.privacy.mechanisms.skellam import SkellamNoise

ORDERS = (2, 3, 4, 8, 16, 64)


@cache
def skellam(variance, last):
    """Logarithms of the probabilities of −last … last, from the ratios of Bessel functions."""
    ratio = np.zeros(last + 2)
    for k in range(last, 0, -1):
        ratio[k] = 1 / (2 * k / variance + ratio[k + 1])
    return both_sides(np.concatenate([[0.0], np.cumsum(np.log(ratio[1 : last + 1]))]))


def discrete_gaussian(std, last):
    return both_sides(-((np.arange(last + 1) / std) ** 2) / 2)


def both_sides(one_side):
    found = np.concatenate([one_side[:0:-1], one_side])
    return found - logsumexp(found)


def divergence(logs, shift, order):
    """Of the noise moved by ``shift`` from the noise where it was, and the other way round: the larger one."""
    here, there = logs[:-shift], logs[shift:]
    return max(logsumexp(order * p + (1 - order) * q) / (order - 1) for p, q in ((here, there), (there, here)))


def test_the_yardstick_is_skellam():
    near = np.arange(-60, 61)
    assert np.allclose(skellam(30.0, 200)[140:261], np.log(ive(near, 30.0)), atol=1e-12)


@pytest.mark.parametrize("variance", [0.05, 1.0, 18.48, 341.5, 8172.16])
@pytest.mark.parametrize("shift", [1, 3, 8, 16])
def test_skellam_is_bounded_from_above_and_tightly_where_noise_is_large(variance, shift):
    for order in ORDERS:
        exact = divergence(skellam(variance, 4 * max(ORDERS) * 16 + int(40 * math.sqrt(variance))), shift, order)
        bound = SkellamNoise(math.sqrt(variance)).renyi(order, shift, 1)
        assert bound >= exact * (1 - 1e-9)
        if variance > 1000:
            assert bound == pytest.approx(exact, rel=0.01)


@pytest.mark.parametrize("moves", [(8,), (4, 4), (5, 2, 1), (1,) * 8])
def test_all_votes_for_one_candidate_are_the_worst_case(moves):
    for order in ORDERS:
        apart = sum(divergence(skellam(18.48, 3000), move, order) for move in moves)
        assert apart <= SkellamNoise(math.sqrt(18.48)).renyi(order, 8, 1)


@pytest.mark.parametrize("std", [0.3, 1.0, 18.48])
def test_a_discrete_gaussian_costs_what_a_gaussian_does(std):
    for shift, order in ((1, 2), (3, 8), (8, 16)):
        exact = divergence(discrete_gaussian(std, 400 + int(40 * std)), shift, order)
        bound = DiscreteGaussianNoise(std / 3).renyi(order, shift, 3)
        assert exact * (1 - 1e-9) <= bound == pytest.approx(order / 2 * (shift / std) ** 2)
    assert exact == pytest.approx(bound)  # a whole order and shift: no less either


@pytest.mark.parametrize(("share", "count"), [(0.5, 2), (0.5, 30), (0.75, 10), (1.0, 3), (1.0, 30)])
def test_a_sum_of_discrete_gaussians_is_as_near_to_one_as_is_said(share, count):
    one = np.exp(discrete_gaussian(share, int(38 * share)))
    summed = one
    for _ in range(count - 1):
        summed = np.convolve(summed, one)  # of positive numbers: no digits are lost
    std, middle = share * math.sqrt(count), len(summed) // 2
    near = slice(max(middle - int(25 * std), 0), middle + int(25 * std) + 1)
    logs = np.log(np.maximum(summed, 1e-300))
    core = slice(middle - int(6 * std), middle + int(6 * std) + 1)
    apart = np.abs(logs - discrete_gaussian(std, middle))[core].max()
    assert 0 < apart <= twice_distance(std, count) / 2
    for shift, order in ((1, 2), (1, 8), (3, 3)):
        assert divergence(logs[near], shift, order) <= DiscreteGaussianNoise(std, count).renyi(order, shift, 1)


def test_few_large_shares_are_hardly_worse_than_one_and_many_small_ones_are():
    whole, few, many = (DiscreteGaussianNoise(18.48 / 8, shares).renyi(4, 8, 8) for shares in (1, 100, 1250))
    assert whole < few == pytest.approx(whole, rel=1e-6)
    assert many > 100
    assert twice_distance(18.48, 1250) == pytest.approx(59, abs=0.5)

from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import stats

from murmura.privacy.entropy import OSEntropy, SeededEntropy
from murmura.streams import Stream
from tests.privacy.chance import variance_is


def seeded(name="a"):
    return SeededEntropy(Stream(0) / name)


def test_noise_of_the_operating_system_has_variance_one():
    noise = OSEntropy().normal(1_000_000)
    assert noise.dtype == torch.float64
    assert variance_is(noise.numpy(), 1.0)
    assert abs(float(noise.double().mean())) < 6.2e-3  # of a standard deviation of 1e-3
    # The bounds are narrow enough to tell one per cent of the standard deviation.
    assert not variance_is(noise.numpy(), 1.02) and not variance_is(noise.numpy(), 0.98)


def test_it_is_another_one_each_time():
    assert not torch.equal(OSEntropy().normal(8), OSEntropy().normal(8))
    assert torch.equal(seeded().normal(8), seeded().normal(8))
    assert not torch.equal(seeded().normal(8), seeded("b").normal(8))


def test_it_is_normal_into_the_tails():
    noise = seeded().normal(500_000).numpy().astype(float)
    assert stats.kstest(noise, "norm").pvalue > 1e-3
    for far in (2.0, 3.0, 4.0):
        expected = 500_000 * 2 * stats.norm.sf(far)
        assert abs((np.abs(noise) > far).sum() - expected) < 5 * expected**0.5


def test_neighbours_are_independent():
    # Neighbours share the radius of one pair of uniforms, so their squares are looked at too.
    noise = seeded().normal(16_384 * 8).double()
    for values in (noise, noise.square() - 1, noise.abs() - noise.abs().mean()):
        left, right = values[:-1], values[1:]
        correlation = float((left * right).mean() / values.square().mean())
        assert abs(correlation) < 5 / len(noise) ** 0.5


@pytest.mark.parametrize("count", [0, 1, 2, 16_384, 16_385])
def test_any_count_of_it(count):
    noise = seeded().normal(count)
    assert noise.shape == (count,) and noise.isfinite().all()


def test_uniforms_fill_the_interval():
    uniform = seeded().uniform(100_000)
    assert uniform.dtype == np.float64
    assert uniform.min() >= 0 and uniform.max() < 1
    assert stats.kstest(uniform, "uniform").pvalue > 1e-3


class Zeros(SeededEntropy):
    def bytes(self, count):
        return bytes(count)


class Ones(SeededEntropy):
    def bytes(self, count):
        return b"\xff" * count


@pytest.mark.parametrize("extreme", [Zeros, Ones])
def test_extreme_bytes_give_finite_numbers(extreme):
    source = extreme(Stream(0))
    assert source.normal(3).isfinite().all()
    assert 0 <= source.uniform(1)[0] < 1


def test_integers_are_fair():
    drawn = seeded().integers(7, 70_000)
    assert drawn.dtype == np.int64
    assert stats.chisquare(np.bincount(drawn, minlength=7)).pvalue > 1e-3
    assert set(seeded().integers(1, 5)) == {0}
    large = seeded().integers(2**63, 1000)
    assert large.min() >= 0 and large.max() > 2**62


def test_integers_that_would_come_up_too_often_are_drawn_again():
    words = [2**64 - 1, 5]  # 2⁶⁴ − 1 is the one word too many for thirds

    class Scripted(SeededEntropy):
        def bytes(self, count):
            return b"".join(np.uint64(words.pop(0)).tobytes() for _ in range(count // 8))

    assert list(Scripted(Stream(0)).integers(3, 1)) == [2]


def test_no_number_comes_twice_in_blocks():
    blocks = seeded().normal(3 * 16_384).split(16_384)
    assert not any(torch.equal(one, other) for one, other in pairwise(blocks))

"""Learning rates by round."""

import pytest

from murmura.training.schedule import learning_rate


def test_golden_numbers():
    rates = [learning_rate("cosine", 5e-5, 1e-6, t, 30) for t in (0, 15, 29)]
    assert rates == pytest.approx([5e-5, 2.55e-5, 1.134e-6], rel=1e-3)


def test_it_falls_and_never_reaches_the_least():
    rates = [learning_rate("cosine", 1e-3, 1e-6, t, 10) for t in range(10)]
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] > 1e-6


def test_constant():
    assert {learning_rate("constant", 1e-3, 1e-6, t, 10) for t in range(10)} == {1e-3}

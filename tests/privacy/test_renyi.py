"""Rényi divergences: of integer noise too, and of samples none that rounding has made smaller."""

import math

import dp_accounting as dp
import pytest

from murmura.privacy import renyi
from murmura.privacy.mechanisms.discrete_gaussian import DiscreteGaussianNoise
from murmura.privacy.mechanisms.skellam import SkellamNoise
from murmura.privacy.renyi import IntegerNoiseDpEvent, RenyiAccountant
from murmura.privacy.samplers import PoissonSampling
from tests.privacy.plans import of_records


@pytest.mark.parametrize("noise", [SkellamNoise(2.31), DiscreteGaussianNoise(2.31, 10)])
def test_the_accountant_adds_curves_up(noise):
    event = IntegerNoiseDpEvent(noise, 8, 8)
    orders = [2, 3.5, 7]
    composed = dp.ComposedDpEvent([dp.SelfComposedDpEvent(event, 11), dp.GaussianDpEvent(2.0)])
    found = RenyiAccountant(orders).compose(composed).rdp
    assert found[[0, 2]] == pytest.approx([11 * event.renyi(order) + order / 8 for order in (2, 7)])
    assert found[1] == math.inf  # no bound is known there
    assert RenyiAccountant(orders).compose(event.further(3)).rdp[0] > 6 * RenyiAccountant(orders).compose(event).rdp[0]


def divergence(rate, sigma, order):
    """Of one sampled step, at a whole order (Mironov et al. 2019, equation 9): by terms that are not nearly 1."""
    terms = (
        math.comb(order, k) * rate**k * (1 - rate) ** (order - k) * math.expm1((k * k - k) / (2 * sigma**2))
        for k in range(2, order + 1)
    )
    return math.log1p(math.fsum(terms)) / (order - 1)


@pytest.mark.parametrize(("rate", "sigma"), [(0.04, 2.0), (1e-3, 1e3), (1e-3, 1e6), (1e-8, 1.0), (1e-9, 100.0)])
def test_rounding_leaves_no_divergence_too_small(rate, sigma):
    orders = [2, 3, 8, 20]
    found = RenyiAccountant(orders).compose(dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(sigma))).rdp
    for order, value in zip(orders, found, strict=True):
        exact = divergence(rate, sigma, order)
        assert exact <= value <= exact * (1 + 1e-9) + 1e-11


def test_next_to_no_influence_is_not_none():
    """Of these dp_accounting makes an ε of 0, by a divergence that was rounded to less than 0, and a ValueError."""
    plan = of_records(sampler=PoissonSampling(1e-3), steps=1, delta=1e-12).with_noise(1e6)
    assert plan.epsilon(accountant="rdp").value > 0  # at ε = 0, δ is 1e-3·(2Φ(1/2z) − 1) = 4e-10
    fixed = dp.SampledWithoutReplacementDpEvent(200, 8, dp.GaussianDpEvent(1e10))
    found = RenyiAccountant([2, 8], dp.NeighboringRelation.REPLACE_ONE).compose(dp.SelfComposedDpEvent(fixed, 50))
    assert (found.rdp >= 49 * found.orders / 2e20).all()


def test_a_curve_asks_few_orders_where_each_takes_long(monkeypatch):
    assert len(renyi.FEW_ORDERS) < 150
    for name in ("ORDERS", "FEW_ORDERS"):  # large ones take longest, and are not the best here
        monkeypatch.setattr(renyi, name, [order for order in getattr(renyi, name) if order < 20])
    asked, compose = [], renyi.compose
    monkeypatch.setattr(renyi, "compose", lambda one, event: asked.append(len(one._orders)) or compose(one, event))
    event = dp.SelfComposedDpEvent(dp.SampledWithoutReplacementDpEvent(100, 10, dp.GaussianDpEvent(1.0)), 30)
    found = renyi.accountant(event).get_epsilon(1e-5)
    assert asked == [len(renyi.FEW_ORDERS)] and asked[0] < len(renyi.ORDERS) / 4
    assert found == pytest.approx(renyi.epsilon(event, 1e-5), rel=1e-3)


@pytest.mark.parametrize(
    ("sample", "relation"),
    [
        (lambda noise: dp.PoissonSampledDpEvent(0.04, noise), dp.NeighboringRelation.ADD_OR_REMOVE_ONE),
        (lambda noise: dp.SampledWithoutReplacementDpEvent(100, 4, noise), dp.NeighboringRelation.REPLACE_ONE),
        (lambda noise: dp.ComposedDpEvent([noise]), dp.NeighboringRelation.ADD_OR_REMOVE_ONE),
    ],
)
@pytest.mark.parametrize(("sigma", "steps"), [(0.7, 30), (1.5, 300)])
def test_the_least_bound_is_found_though_large_orders_are_not_asked(monkeypatch, sample, relation, sigma, steps):
    asked, compose = [], renyi.compose
    monkeypatch.setattr(renyi, "compose", lambda one, event: asked.extend(one._orders) or compose(one, event))
    event = dp.SelfComposedDpEvent(sample(dp.GaussianDpEvent(sigma)), steps)
    found = renyi.epsilon(event, 1e-5)
    least, best = RenyiAccountant(renyi.ORDERS[:250], relation).compose(event).get_epsilon_and_optimal_order(1e-5)
    assert found == pytest.approx(least, rel=1e-12)
    assert max(asked) < best + 90 and len(asked) < 70


def test_small_orders_without_any_bound_do_not_end_the_search(monkeypatch):
    class Late(RenyiAccountant):
        def get_epsilon_and_optimal_order(self, delta):
            self._rdp[self._orders < 101] = math.inf  # as where their series do not converge
            return super().get_epsilon_and_optimal_order(delta)

    event = dp.GaussianDpEvent(40.0)
    least = renyi.epsilon(event, 1e-5)
    monkeypatch.setattr(renyi, "RenyiAccountant", Late)
    assert least <= renyi.epsilon(event, 1e-5) < 1.05 * least

"""The curve holds what it promises: no attack on a Gaussian is better, and the best one is hardly worse."""

import math
from dataclasses import replace

import dp_accounting as dp
import numpy as np
import pytest
from dp_accounting import pld
from scipy.stats import norm

from murmura.errors import PrivacyError
from murmura.privacy.curve import Curve
from murmura.privacy.mechanisms.gaussian import GaussianNoise
from murmura.privacy.samplers import FixedSizeSampling, FullParticipation
from tests.privacy.plans import RECORDS

PLAIN = replace(RECORDS, sampler=FullParticipation())


@pytest.mark.parametrize("mu", [0.1, 1.0, 3.0, 8.0])
@pytest.mark.parametrize("rate", [0.1, 0.01, 0.001])
def test_the_best_attack_on_a_gaussian(mu, rate):
    """Neyman and Pearson: true positives Φ(Φ⁻¹(α) + μ); the curve never says less, and not much more."""
    exact = norm.cdf(norm.ppf(rate) + mu)
    found = Curve.of(dp.GaussianDpEvent(1 / mu), RECORDS.adjacency).true_positives(rate)
    assert exact <= found <= exact + 0.003


def test_the_best_attack_on_sampled_steps_is_not_better_than_the_curve_says():
    """One step of Poisson sampling: the likelihood ratio's own attack, by simulation."""
    q, z, count = 0.5, 0.5, 200_000
    curve = Curve.of(dp.PoissonSampledDpEvent(q, dp.GaussianDpEvent(z)), RECORDS.adjacency)
    random = np.random.default_rng(0)
    out = random.normal(0, z, count)
    there = random.normal(0, z, count) + (random.random(count) < q)
    for rate in (0.1, 0.01):
        threshold = np.quantile(out, 1 - rate)  # the ratio rises with the sum
        found = float(np.mean(there > threshold))
        assert found - 0.01 <= curve.true_positives(rate) and curve.true_positives(rate) <= found + 0.05


def test_the_table_and_the_points_are_those_of_the_tightest_accountant():
    curve = Curve.of(RECORDS.event(), RECORDS.adjacency)
    accountant = pld.PLDAccountant().compose(RECORDS.event())
    for delta, epsilon in curve.table:
        assert epsilon <= accountant.get_epsilon(delta) * (1 + 1e-3) + 1e-4
    for epsilon, delta in curve.points[::20]:
        assert delta <= accountant.get_delta(epsilon) * 1.01 + 1e-12
    assert dict(curve.table)[1e-5] == pytest.approx(RECORDS.epsilon().value, rel=1e-3)
    deltas = [delta for _, delta in curve.points]
    assert deltas == sorted(deltas, reverse=True) and 0 <= deltas[-1] <= deltas[0] <= 1


def test_where_a_pld_ends_renyi_goes_on():
    curve = Curve.of(RECORDS.event(), RECORDS.adjacency, (1e-20,))
    assert curve.table[0][1] < math.inf


@pytest.mark.parametrize(
    "plan", [replace(RECORDS, noise=GaussianNoise(0.0)), replace(PLAIN, noise=GaussianNoise(1e-9))]
)
def test_without_noise_an_attack_may_always_be_right(plan):
    curve = Curve.of(plan.event(), plan.adjacency)
    assert curve.true_positives(0.01) == 1.0 and curve.table[0][1] > 1e9
    assert "finds at most 100 % of those who were" in curve.words()[0]


def test_with_endless_noise_an_attack_can_only_guess():
    curve = Curve.of(replace(PLAIN, noise=GaussianNoise(1e6)).event(), PLAIN.adjacency)
    assert curve.true_positives(0.01) == pytest.approx(0.01, abs=1e-4)
    assert curve.words()[1].startswith(
        "An attack that is wrong about 0.1 % of those who were not there finds at most 0.2 %"
    )


@pytest.mark.parametrize("adjacency", [RECORDS.adjacency, "replace-one"])
def test_every_sampler_has_a_curve(adjacency):
    fixed = replace(RECORDS, sampler=FixedSizeSampling(4, 100), adjacency=adjacency)
    curve = Curve.of(fixed.event(), adjacency, (1e-5,))
    assert curve.table[0][1] == pytest.approx(fixed.epsilon().value, rel=1e-3)


def test_what_no_accountant_knows():
    with pytest.raises(PrivacyError, match="no accountant"):
        Curve.of(dp.UnsupportedDpEvent(), RECORDS.adjacency)

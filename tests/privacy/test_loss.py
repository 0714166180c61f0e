"""Privacy loss distributions never say less than the truth, where their arithmetic ends either."""

import math

import dp_accounting as dp
import pytest
from dp_accounting import pld
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from murmura.privacy.accounting import epsilon, profile
from murmura.privacy.loss import LossAccountant
from tests.privacy import losses

ZERO_OUT, GRID = dp.NeighboringRelation.ADD_OR_REMOVE_ONE, 1e-4
SOME = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
ALL_BUT = 1 - 1e-9  # a rate that no closed form is used for, and that makes no difference


def sampled(rate, noise, steps):
    return dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(noise)), steps)


def exact_delta(mu, at):
    """Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ), with 50 digits."""
    if at == math.inf:
        return 0.0
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(50):
        first, second = (mpmath.ncdf(sign * mpmath.mpf(mu) / 2 - mpmath.mpf(at) / mu) for sign in (1, -1))
        return float(first - mpmath.exp(at) * second)


@pytest.mark.parametrize("adjacency", ["zero-out", "replace-one"])
@pytest.mark.parametrize(("noise", "steps", "delta"), [(30, 1000, 1e-13), (50, 10_000, 3e-13), (50, 10_000, 3e-10)])
@pytest.mark.parametrize("accountant", ["pld", "best"])
def test_no_small_delta_has_a_smaller_epsilon_than_it_has(noise, steps, delta, adjacency, accountant):
    found = epsilon(sampled(ALL_BUT, noise, steps), delta, adjacency, accountant).value
    assert exact_delta(math.sqrt(steps) / noise, found) <= delta * (1 + 1e-6)


@SOME
@given(st.floats(10, 60), st.integers(200, 10_000), st.floats(-14, -9), st.sampled_from(["zero-out", "replace-one"]))
def test_whatever_the_noise_and_the_steps_are(noise, steps, power, adjacency):
    found = epsilon(sampled(ALL_BUT, noise, steps), 10**power, adjacency, "pld").value
    assert exact_delta(math.sqrt(steps) / noise, found) <= 10**power * (1 + 1e-6)


@pytest.mark.parametrize("adjacency", ["zero-out", "replace-one"])
@pytest.mark.parametrize(
    ("rate", "noise", "steps", "delta", "cell"),
    [
        (0.1, 10.0, 4096, 3e-13, 1e-4),
        (0.1, 10.0, 4096, 3e-9, 1e-4),
        (0.3, 5.0, 300, 1e-12, 2e-4),
        (0.04, 2.0, 50, 1e-5, 1.5e-4),
        (0.5, 1.0, 7, 1e-10, 2e-3),
    ],
)
def test_of_sampled_steps_neither(rate, noise, steps, delta, cell, adjacency):
    true = losses.epsilon(rate, noise, steps, delta, adjacency, cell)
    slack = steps * cell**2 / 24 * 60  # which the oracle is above the truth
    for accountant in ("pld", "best"):
        found = epsilon(sampled(rate, noise, steps), delta, adjacency, accountant).value
        assert found >= true - slack
    if delta >= 1e-10:
        assert epsilon(sampled(rate, noise, steps), delta, adjacency, "pld").value <= true * 1.01


def test_the_oracle_knows_what_a_closed_form_knows():
    for at in (0.5, 3.0, 9.0):
        mu = math.sqrt(400) / 15
        assert losses.delta(ALL_BUT, 15, 400, at, "zero-out", 1e-4) == pytest.approx(exact_delta(mu, at), rel=1e-4)


@pytest.mark.parametrize(("noise", "steps"), [(30.0, 1000), (50.0, 10_000), (100.0, 40_000)])
def test_what_may_be_lost_is_more_than_what_is(noise, steps):
    """Where δ is nothing to speak of, what a transform makes of it is what it has lost: on each grid something else."""
    event, mu = sampled(ALL_BUT, noise, steps), math.sqrt(steps) / noise
    at = [mu * mu / 2 + mu * (6.5 + tenth / 10) for tenth in range(0, 60, 3)]
    true = [exact_delta(mu, one) for one in at]
    for grid in (2e-4, 3e-4, 4e-4, 5e-4):
        bare, kept = (kind(ZERO_OUT, grid).compose(event) for kind in (pld.PLDAccountant, LossAccountant))
        lost = max(abs(delta - float(bare.get_delta(one))) for one, delta in zip(at, true, strict=True))
        assert 3 * lost < kept.lost < 1e-13 * steps
        assert all(delta <= kept.get_delta(one) for one, delta in zip(at, true, strict=True))


def test_a_curve_is_above_the_truth_where_it_is_lowest():
    """Groups are looked up there: of many members at a δ that is as many times as small."""
    event, at = sampled(ALL_BUT, 30, 1000), [8.0, 9.0, 9.5]
    bounds, shares = profile(event, "replace-one", [1e-13, 1e-12], at)
    mu = math.sqrt(1000) / 30
    assert all(exact_delta(mu, one) <= share * (1 + 1e-9) for one, share in zip(at, shares, strict=True))
    assert all(exact_delta(mu, one) <= d * (1 + 1e-6) for one, d in zip(bounds, (1e-13, 1e-12), strict=True))


def test_parts_that_are_composed_lose_each_their_own():
    parts = [sampled(ALL_BUT, 30, 500), sampled(ALL_BUT, 40, 700), dp.GaussianDpEvent(3.0)]
    mu = math.sqrt(500 / 30**2 + 700 / 40**2 + 1 / 9)
    found = LossAccountant(ZERO_OUT, GRID).compose(dp.ComposedDpEvent(parts))
    assert found.lost > sum(LossAccountant(ZERO_OUT, GRID).compose(part).lost for part in parts)
    for delta in (1e-9, 1e-6):
        at = found.get_epsilon(delta)
        assert exact_delta(mu, at) <= delta and at == pytest.approx(dp.get_epsilon_gaussian(1 / mu, delta), rel=0.02)


def test_ordinary_figures_stay_what_they_were():
    event = sampled(0.01, 1.0, 1000)
    bare = pld.PLDAccountant(ZERO_OUT, GRID).compose(event).get_epsilon(1e-5)
    assert bare < LossAccountant(ZERO_OUT, GRID).compose(event).get_epsilon(1e-5) < bare * (1 + 1e-5)


def test_an_epsilon_that_was_summed_up_too_low_is_raised():
    """The library adds up masses one by one, of which little is left where ε is nearly 0."""
    event = sampled(1e-3, 20.0, 100)
    found = LossAccountant(ZERO_OUT, 1e-5).compose(event)
    for delta in (1e-7, 1e-6, 4e-6):
        assert pld.PLDAccountant.get_delta(found, found.get_epsilon(delta)) <= delta * (1 - found.share) - found.lost


def test_releases_of_nothing_and_of_everything():
    found = LossAccountant(ZERO_OUT, GRID).compose(dp.SelfComposedDpEvent(dp.NoOpDpEvent(), 5))
    assert (found.get_epsilon(1e-9), found.lost, found.get_delta(0.0)) == (0.0, 0.0, 0.0)
    found.compose(dp.GaussianDpEvent(0.0))
    assert (found.get_epsilon(1e-9), found.get_delta(1.0)) == (math.inf, 1.0)

"""What protects one protects a group, only less: bounds held against mechanisms whose ε is known."""

import math
from dataclasses import replace

import dp_accounting as dp
import numpy as np
import pytest
from scipy.stats import norm

from murmura.errors import PrivacyError
from murmura.privacy import accounting
from murmura.privacy.clipping import BatchClipping
from murmura.privacy.groups import event
from murmura.privacy.mechanisms.gaussian import GaussianNoise
from murmura.privacy.mechanisms.tree import TreeNoise
from murmura.privacy.samplers import FixedSizeSampling, FullParticipation, PoissonSampling
from tests.privacy.plans import RECORDS, SITES, of_group

pytestmark = pytest.mark.slow

PLAIN = replace(RECORDS, sampler=FullParticipation(), noise=GaussianNoise(20.0))


@pytest.mark.parametrize("size", [2, 5])
@pytest.mark.parametrize("plan", [PLAIN, replace(PLAIN, adjacency="replace-one"), SITES])
def test_without_sampling_a_group_is_so_many_times_as_far(plan, size):
    z = plan.noise_multiplier / size / math.sqrt(plan.steps)
    assert of_group(plan, size).value == pytest.approx(dp.get_epsilon_gaussian(z, plan.delta))


def test_without_noise_there_is_no_bound_and_none_is_explained():
    found = of_group(SITES.with_noise(0.0), 2)
    assert (found.value, found.accountant, found.note) == (math.inf, "exact", "")


def test_a_tree():
    """Two units in every step are one that is twice as long."""
    tree, half = (replace(SITES, noise=TreeNoise(std, 4)) for std in (34.0, 17.0))
    assert of_group(tree, 2).value == pytest.approx(half.epsilon().value)


def delta_of(q, z, size, epsilon):
    """δ of one step in which a binomial number of a group's members moves a normal by one each, by integration."""
    x = np.linspace(-12 * z, size + 12 * z, 400_001)
    chances = [math.comb(size, k) * q**k * (1 - q) ** (size - k) for k in range(size + 1)]
    there = sum(chance * norm.pdf(x, k, z) for k, chance in enumerate(chances))
    out = norm.pdf(x, 0, z)
    step = x[1] - x[0]
    ways = (np.maximum(a - math.exp(epsilon) * b, 0).sum() * step for a, b in ((there, out), (out, there)))
    return max(ways)


@pytest.mark.parametrize(("q", "z", "size"), [(0.04, 2.0, 3), (0.5, 0.7, 5)])
def test_a_poisson_sample_has_a_binomial_number_of_members(q, z, size):
    plan = replace(RECORDS, sampler=PoissonSampling(q), noise=GaussianNoise(z), steps=1)
    found = accounting.epsilon(event(plan, size), plan.delta, plan.adjacency, "pld").value
    assert delta_of(q, z, size, found) <= plan.delta * 1.001  # a bound
    assert delta_of(q, z, size, found * 0.98) > plan.delta  # and no loose one


def test_over_steps_a_group_is_between_one_member_and_no_sampling():
    one, unsampled = RECORDS.epsilon().value, replace(RECORDS, sampler=FullParticipation())
    assert 4 * one < of_group(RECORDS, 4).value < of_group(unsampled, 4).value


@pytest.mark.parametrize("sampler", [PoissonSampling(0.04), FixedSizeSampling(4, 100)])
def test_where_nothing_is_known_of_sampled_groups_the_bound_is_the_smaller_of_two(sampler):
    plan = replace(RECORDS, sampler=sampler, adjacency="replace-one")
    unsampled = dp.get_epsilon_gaussian(plan.noise_multiplier / 2 / math.sqrt(50), 1e-5)
    found = of_group(plan, 2)
    assert 2 * plan.epsilon().value < found.value < unsampled and found.accountant == "group"


@pytest.mark.parametrize("sampler", [PoissonSampling(0.04), FixedSizeSampling(4, 100), FullParticipation()])
def test_a_batch_gradient_turns_around_once_however_many_turn_it(sampler):
    plan = replace(RECORDS, sampler=sampler, clipping=BatchClipping(1.5))
    many = of_group(plan, 50).value
    whole = replace(plan, sampler=FullParticipation()).epsilon().value
    assert plan.epsilon().value * 0.999 <= many <= whole * 1.001


def test_without_noise_nobody_is_protected():
    assert of_group(replace(RECORDS, noise=GaussianNoise(0.0)), 3).value == math.inf


def test_with_more_noise_than_a_mixture_is_accounted_for_the_bound_of_one_counts():
    """``dp_accounting`` halves an interval until Python's stack ends."""
    loud = replace(RECORDS, sampler=PoissonSampling(1e-4), noise=GaussianNoise(1e6))
    assert 0 <= of_group(loud, 3).value < 1e-2


def test_one_is_no_group_and_none_is_refused():
    assert of_group(RECORDS, 1) == RECORDS.epsilon()
    with pytest.raises(PrivacyError, match="at least 1 member"):
        of_group(RECORDS, 0)

"""Releases about one unit and about a group; of several runs, tests/privacy/test_odometer.py."""

import dp_accounting as dp
import pytest

from murmura.errors import PrivacyError
from murmura.privacy import accounting
from murmura.privacy.composition import PrivateSelection, ReleasedSteps, composed, undominated
from murmura.privacy.mechanisms.gaussian import GaussianNoise
from murmura.privacy.samplers import FullParticipation, PoissonSampling
from tests.privacy.plans import of_group, of_records, of_sites, of_votes


def test_a_group_over_several_releases():
    """Unsampled Gaussians are as far apart as the group is large."""
    plain = of_records(sampler=FullParticipation(), steps=1)
    found = composed([ReleasedSteps(plain, 1)] * 3, 1e-5, "zero-out", size=4)
    assert found.value == pytest.approx(dp.get_epsilon_gaussian(2.0 / (4 * 3**0.5), 1e-5))


@pytest.mark.slow
def test_sampled_releases_about_a_group_are_one_after_the_other():
    often = {"sampler": PoissonSampling(0.5), "noise": GaussianNoise(0.7)}  # a small ε takes a fine grid, which is slow
    sampled = ReleasedSteps(of_records(**often, steps=2), 2)
    pair = composed([sampled, sampled], 1e-5, "zero-out", size=2).value
    assert pair == pytest.approx(of_group(of_records(**often, steps=4), 2).value, rel=1e-3)
    assert composed([sampled, sampled], 1e-5, "zero-out").value < pair


def test_records_of_one_site_are_one_site_where_whole_sites_are_protected():
    release = ReleasedSteps(of_sites(), 11, by_record=True)
    assert composed([release], 1e-5, "zero-out", size=5).value == composed([release], 1e-5, "replace-one").value


def test_integer_noise_composes_with_other_noise_about_one_unit_and_about_a_group():
    votes, updates = ReleasedSteps(of_votes(), 11), ReleasedSteps(of_sites(), 11)
    alone = composed([votes], 1e-5, "zero-out").value
    both = composed([votes, updates], 1e-5, "zero-out")
    assert both.accountant == "rdp"
    twice = dp.GaussianDpEvent(11.3 / 22**0.5)
    assert both.value == pytest.approx(accounting.epsilon(twice, 1e-5, "zero-out", "rdp").value, rel=1e-3)
    pair = composed([votes], 1e-5, "zero-out", size=2).value
    assert 2 * alone < pair == pytest.approx(composed([votes], 1e-5, "replace-one").value)
    assert composed([ReleasedSteps(of_votes(), 11, by_record=True)], 1e-5, "zero-out").value == pytest.approx(pair)
    assert composed([votes], 1e-5, "zero-out", PrivateSelection(10)).value > alone


def test_what_no_accountant_knows_together_has_the_bound_that_any_release_has():
    """A group in Poisson samples is for privacy loss distributions alone, integer noise for Rényi divergences alone."""
    both = [
        ReleasedSteps(of_records(sampler=PoissonSampling(0.5), steps=1), 1),
        ReleasedSteps(of_votes(), 11, by_record=True),
    ]
    pair = composed(both, 1e-5, "zero-out", size=2)
    assert pair.accountant == "group" and composed(both, 1e-5, "zero-out").value < pair.value < 30


def test_a_group_of_nobody_is_refused():
    with pytest.raises(PrivacyError, match="a group of 0"):
        composed([ReleasedSteps(of_records(), 1)], 1e-5, "zero-out", size=0)


def test_of_rates_alone_the_largest_counts():
    plans = [of_records(sampler=PoissonSampling(rate)) for rate in (0.02, 0.04, 0.03)]
    milder = of_records(noise=GaussianNoise(9.0))
    kept = undominated(
        [*(ReleasedSteps(plan, 5) for plan in plans), ReleasedSteps(milder, 5), ReleasedSteps(plans[0], 6)]
    )
    assert kept == [ReleasedSteps(plans[1], 5), ReleasedSteps(milder, 5), ReleasedSteps(plans[0], 6)]

import logging
import math

import dp_accounting as dp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from murmura.errors import PrivacyError
from murmura.privacy.accounting import epsilon, profile
from murmura.privacy.clipping import BatchClipping, ExampleClipping
from murmura.privacy.samplers import FixedSizeSampling, FullParticipation, PoissonSampling
from tests.privacy.plans import of_records

pytestmark = pytest.mark.slow

DELTAS = st.sampled_from([1e-7, 1e-5, 1e-3])
SIGMAS = st.floats(0.5, 20)
STEPS = st.integers(1, 500)
QUICK = settings(max_examples=25, deadline=None)
SLOW = settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def full(sigma, steps, delta):
    return of_records(sampler=FullParticipation(), steps=steps, delta=delta).with_noise(sigma)


def sampled(rate, sigma, steps):
    return of_records(sampler=PoissonSampling(rate), steps=steps).with_noise(sigma)


@QUICK
@given(SIGMAS, STEPS, DELTAS, st.sampled_from(["rdp", "exact"]))
def test_epsilon_falls_in_noise_and_grows_in_steps(sigma, steps, delta, accountant):
    value = full(sigma, steps, delta).epsilon(accountant=accountant).value
    assert full(sigma * 1.05, steps, delta).epsilon(accountant=accountant).value < value
    assert full(sigma, steps + 1, delta).epsilon(accountant=accountant).value > value


@SLOW
@given(st.floats(0.005, 0.5), st.floats(0.7, 5), st.integers(1, 100), st.sampled_from(["rdp", "pld"]))
def test_with_sampling_it_grows_in_the_rate_too(rate, sigma, steps, accountant):
    value = sampled(rate, sigma, steps).epsilon(accountant=accountant).value
    assert sampled(rate, sigma * 1.2, steps).epsilon(accountant=accountant).value < value
    assert sampled(rate, sigma, 2 * steps).epsilon(accountant=accountant).value > value
    assert sampled(rate * 1.2, sigma, steps).epsilon(accountant=accountant).value > value


@QUICK
@given(SIGMAS, STEPS, DELTAS)
def test_the_closed_form_is_the_smallest_and_pld_agrees_with_it(sigma, steps, delta):
    plan = full(sigma, steps, delta)
    exact = plan.epsilon(accountant="exact").value
    assert exact <= plan.epsilon(accountant="rdp").value
    found = plan.epsilon(accountant="pld").value
    assert exact * (1 - 1e-9) <= found
    # Where next to nothing is protected the tail that PLD leaves out is above δ, and it says infinity.
    assert found <= exact * (1 + 1e-3) or exact > 300
    assert plan.epsilon() == plan.epsilon(accountant="exact")


def test_halves_of_a_run_are_accounted_as_a_whole():
    both = dp.ComposedDpEvent([full(3.0, 4, 1e-5).event(), full(5.0, 9, 1e-5).event()])
    sigma = (4 / 9 + 9 / 25) ** -0.5
    for accountant in ("exact", "rdp", "pld"):
        expected = epsilon(dp.GaussianDpEvent(sigma), 1e-5, "zero-out", accountant).value
        assert epsilon(both, 1e-5, "zero-out", accountant).value == pytest.approx(expected, rel=1e-4)


def test_replacing_is_between_one_and_two_times_adding_or_removing():
    one = sampled(0.04, 2.0, 50)
    both = of_records(adjacency="replace-one", sampler=PoissonSampling(0.04)).epsilon().value
    assert one.epsilon().value < both < 2 * one.epsilon().value


def test_replacing_everybody_in_a_full_batch_is_gaussian_with_twice_the_distance():
    # The two libraries' conventions for the multiplier differ here by a factor of 2.
    plan = of_records(adjacency="replace-one", sampler=PoissonSampling(1 - 1e-9))
    exact = of_records(adjacency="replace-one", sampler=FullParticipation()).epsilon(accountant="exact").value
    assert plan.epsilon(accountant="pld").value == pytest.approx(exact, rel=1e-3)


@pytest.mark.parametrize(
    ("sampler", "adjacency", "accountant", "known"),
    [
        (PoissonSampling(0.04), "zero-out", "rdp", True),
        (PoissonSampling(0.04), "zero-out", "pld", True),
        (PoissonSampling(0.04), "replace-one", "rdp", False),
        (PoissonSampling(0.04), "replace-one", "pld", True),
        (FixedSizeSampling(8, 200), "zero-out", "rdp", True),
        (FixedSizeSampling(8, 200), "zero-out", "pld", False),
        (FixedSizeSampling(8, 200), "replace-one", "rdp", True),
        (FixedSizeSampling(8, 200), "replace-one", "pld", False),
    ],
)
def test_a_sampling_that_is_unknown_is_left_out_and_named(sampler, adjacency, accountant, known):
    plan = of_records(sampler=sampler, adjacency=adjacency)
    found = plan.epsilon(accountant=accountant)
    z = plan.noise_multiplier
    unsampled = epsilon(dp.SelfComposedDpEvent(dp.GaussianDpEvent(z), 50), 1e-5, adjacency, accountant).value
    assert (found.note == "") == known
    if known:
        assert found.value < unsampled / 5
    else:
        assert found.value == unsampled
        unsupported = f"{accountant.upper()} does not support it under {adjacency}"
        assert found.note == f"without amplification by sampling: {unsupported}"


def test_best_is_the_tightest_that_is_known():
    assert of_records().epsilon().accountant == "pld"
    assert of_records(adjacency="replace-one").epsilon().accountant == "pld"
    fixed = of_records(sampler=FixedSizeSampling(8, 200), adjacency="replace-one")
    assert fixed.epsilon().accountant == "rdp" and not fixed.epsilon().note
    quiet = fixed.with_noise(0.3).epsilon()
    assert quiet.accountant == "exact" and "closed form does not support it" in quiet.note
    assert quiet.value < fixed.with_noise(0.3).epsilon(accountant="rdp").value


@pytest.mark.parametrize("clipping", [ExampleClipping(1.5), BatchClipping(1.5, groups=2)])
@pytest.mark.parametrize("sampler", [FullParticipation(), PoissonSampling(0.04), FixedSizeSampling(8, 200)])
def test_a_blanked_record_is_never_less_protected_than_a_replaced_one(sampler, clipping):
    """Blanking is to replace by a record that contributes nothing."""
    name = "exact" if sampler == FullParticipation() else "rdp"
    blanked, replaced = (
        of_records(sampler=sampler, clipping=clipping, adjacency=adjacency).epsilon(accountant=name).value
        for adjacency in ("zero-out", "replace-one")
    )
    assert blanked <= replaced


@pytest.mark.parametrize(("delta", "std"), [(1e-15, 2.0), (1e-5, 0.6)])
@pytest.mark.parametrize("sampler", [PoissonSampling(0.04), PoissonSampling(0.9), FixedSizeSampling(8, 200)])
@pytest.mark.parametrize("adjacency", ["zero-out", "replace-one"])
def test_best_is_the_least_of_all_bounds(delta, sampler, adjacency, std):
    plan = of_records(delta=delta, sampler=sampler, adjacency=adjacency).with_noise(std)
    every = [plan.epsilon(accountant=name).value for name in ("rdp", "pld")]
    every.append(epsilon(dp.GaussianDpEvent(plan.noise_multiplier / math.sqrt(50)), delta, adjacency, "exact").value)
    assert plan.epsilon().value == min(every)


def test_a_delta_below_what_pld_computes():
    """Privacy loss distributions leave out a tail that is heavier than δ: they say ∞, or ask for 336,636 norms."""
    plan = of_records(delta=1e-15)
    assert plan.epsilon(accountant="pld").value == math.inf
    found = plan.epsilon()
    assert (found.accountant, found.value) == ("rdp", pytest.approx(1.7192, abs=1e-4))
    assert plan.calibrated(2.0).noise.std == pytest.approx(1.8425, rel=2e-4)
    assert plan.calibrated(2.0).epsilon().value <= 2.0


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize(("std", "rate"), [(0.05, 0.5), (0.2, 0.01), (1e-9, 0.1), (500.0, 1e-4)])
def test_no_library_remarks_on_its_arithmetic(std, rate):
    assert sampled(rate, std, 2000).epsilon().value >= 0
    assert full(std, 2000, 1e-12).epsilon().value > 0


def test_two_groups_cost_the_root_of_two():
    two = of_records(clipping=ExampleClipping(1.5, groups=2)).with_noise(2.0 * math.sqrt(2))
    assert two.epsilon().value == pytest.approx(of_records().epsilon().value)


def test_a_large_epsilon_does_not_fill_the_memory():
    assert 1000 < sampled(0.5, 0.1, 50).epsilon().value < 10_000


@pytest.mark.parametrize("sampler", [FullParticipation(), PoissonSampling(0.1), FixedSizeSampling(10, 100)])
@pytest.mark.parametrize("adjacency", ["zero-out", "replace-one"])
@pytest.mark.parametrize("std", [1e-9, 1e-200])
def test_next_to_no_noise_bounds_nothing_that_matters(sampler, adjacency, std):
    plan = of_records(sampler=sampler, adjacency=adjacency, steps=3).with_noise(std)
    for accountant in ("best", "rdp", "pld"):
        assert plan.epsilon(accountant=accountant).value > 1e17


def test_orders_that_do_not_converge_make_no_noise_in_the_log(monkeypatch):
    said, logger, handler = [], logging.getLogger("absl"), logging.Handler()
    monkeypatch.setattr(handler, "emit", said.append)
    monkeypatch.setattr(logger, "handlers", [handler])
    monkeypatch.setattr(logger, "level", logging.INFO)
    assert sampled(0.04, 0.61, 50).epsilon(accountant="rdp").value < 9
    assert not said
    logger.info("which is heard")
    assert len(said) == 1


def test_an_event_that_no_accountant_knows():
    tree = dp.SingleEpochTreeAggregationDpEvent(3.0, 8)
    for accountant in ("rdp", "pld"):
        with pytest.raises(PrivacyError, match="does not support such a release"):
            epsilon(tree, 1e-5, "zero-out", accountant)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1.0, math.nan])
def test_delta_is_a_probability(delta):
    with pytest.raises(PrivacyError, match="δ lies between 0 and 1"):
        epsilon(dp.GaussianDpEvent(1.0), delta, "zero-out")


@pytest.mark.parametrize("sigma", [1e7, 1e9, 1e12])
def test_noise_beyond_all_measure_has_the_exact_profile(sigma):
    """Moments of it are rounded to nothing, of which no logarithm is taken."""
    plan = full(sigma, 10, 1e-5)
    bounds, shares = profile(plan.event(), "zero-out", [1e-5], [0.0, 1.0])
    assert bounds == [plan.epsilon(accountant="exact").value] and 0 <= shares[1] <= shares[0] < 1e-5

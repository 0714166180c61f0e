"""What DP-FedAvg promises, against published figures and dp_accounting."""

import math

import dp_accounting as dp
import pytest
from dp_accounting import pld, rdp

from murmura.errors import PrivacyError
from murmura.methods.dpfedavg.config import DPFedAvgConfig
from murmura.methods.dpfedavg.method import draw, plan
from murmura.privacy.entropy import SeededEntropy
from murmura.privacy.samplers import FixedSizeSampling, FullParticipation, PoissonSampling
from murmura.streams import Stream

SITES = 1250
DELTA = 3e-6


def made(sites=SITES, **options):
    return plan(DPFedAvgConfig(**{"rounds": 100, "delta": DELTA} | options), sites)


@pytest.mark.parametrize(
    ("epsilon", "rounds", "by_rdp", "exact"),
    [
        (1.29, 10, 10.755, 9.998),
        (1.29, 20, 15.210, 14.139),
        (1.29, 100, 34.011, 31.616),
        (7.58, 10, 2.2022, 2.0790),
        (7.58, 20, 3.1144, 2.9402),
        (7.58, 100, 6.9641, 6.5745),
    ],
)
def test_noise_at_the_baseline_s_levels(epsilon, rounds, by_rdp, exact):
    assert made(epsilon=epsilon, rounds=rounds).noise.std == pytest.approx(exact, rel=1e-4)
    calibrated = made(epsilon=epsilon, rounds=rounds, accountant="rdp")
    assert calibrated.noise.std == pytest.approx(by_rdp, rel=1e-4)


def test_the_unit_is_a_site():
    promised = made(noise_multiplier=2.0)
    assert (promised.unit, promised.adjacency, promised.steps, promised.delta) == ("site", "zero-out", 100, DELTA)
    assert promised.clipping.norm == 0.1 and promised.sensitivity == 1


def test_full_participation_is_the_closed_form():
    expected = dp.get_epsilon_gaussian(34.01 / math.sqrt(100), DELTA)
    assert made(noise_multiplier=34.01).epsilon().value == pytest.approx(expected)


def test_poisson_sampling_by_dp_accounting():
    promised = made(noise_multiplier=1.2, sampler={"kind": "poisson", "sites_per_round": 125}, rounds=30)
    event = dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(0.1, dp.GaussianDpEvent(1.2)), 30)
    expected = pld.PLDAccountant().compose(event).get_epsilon(DELTA)
    assert promised.epsilon().value == pytest.approx(expected, rel=1e-3)
    assert promised.epsilon().value < made(noise_multiplier=1.2, rounds=30).epsilon().value / 3


def test_a_fixed_sample_by_dp_accounting():
    """ε is for a site exchanged, which moves a sum by twice the norm."""
    promised = made(noise_multiplier=1.2, sampler={"kind": "fixed", "sites_per_round": 125}, rounds=30)
    assert promised.noise.std == 2.4 and promised.adjacency == "replace-one"
    gaussian = dp.GaussianDpEvent(1.2)
    event = dp.SelfComposedDpEvent(dp.SampledWithoutReplacementDpEvent(SITES, 125, gaussian), 30)
    accountant = rdp.RdpAccountant(neighboring_relation=dp.NeighboringRelation.REPLACE_ONE)
    expected = accountant.compose(event).get_epsilon(DELTA)
    assert promised.epsilon(accountant="rdp").value == pytest.approx(expected, rel=1e-2)


@pytest.mark.parametrize("sampler", [{}, {"sampler": {"kind": "poisson", "sites_per_round": 400}}])
def test_adaptive_clipping_costs_no_epsilon_but_some_noise(sampler):
    fixed, adaptive = made(noise_multiplier=8.0, **sampler), made(noise_multiplier=8.0, adaptive=True, **sampler)
    assert adaptive.noise_multiplier == pytest.approx(8.0)
    spent = [promised.epsilon(accountant="rdp").value for promised in (fixed, adaptive)]
    assert spent[1] == pytest.approx(spent[0], rel=1e-6)
    assert adaptive.noise.std == pytest.approx((8.0**-2 - (2 * adaptive.clipping.count_noise) ** -2) ** -0.5)


def test_adaptive_clipping_as_published():
    promised = made(noise_multiplier=34.01, adaptive=True)
    assert promised.noise.std == pytest.approx(35.3, abs=0.05)
    clipping = promised.clipping
    assert (clipping.norm, clipping.quantile, clipping.learning_rate, clipping.count_noise) == (0.1, 0.5, 0.2, 62.5)
    assert made(epsilon=1.29, adaptive=True).epsilon().value == pytest.approx(1.29, rel=1e-5)


def test_a_target_is_kept_for_every_sampler():
    for sampler in (
        {},
        {"sampler": {"kind": "poisson", "sites_per_round": 125}},
        {"sampler": {"kind": "fixed", "sites_per_round": 125}},
    ):
        promised = made(epsilon=2.0, rounds=3, accountant="rdp", **sampler)
        assert promised.epsilon(accountant="rdp").value == pytest.approx(2.0, abs=1e-3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sampler": {"kind": "poisson", "sites_per_round": 6}}, "sampling rate = 1.2"),
        ({"sampler": {"kind": "fixed", "sites_per_round": 6}}, "5 units, batch 6. Make the batch at most 5"),
        ({"adaptive": True, "noise_multiplier": 1.0}, "Make count_noise larger than 0.5"),
        ({"adaptive": {"count_noise": 0.5}, "noise_multiplier": 1.0}, "spends the whole budget"),
    ],
)
def test_plans_that_make_no_sense(options, message):
    with pytest.raises(PrivacyError) as error:
        made(sites=5, **options)
    assert message in str(error.value)


# ---- who takes part --------------------------------------------------------------------------------------------------


def cohorts(sampler, count=3000):
    entropy, sites = SeededEntropy(Stream(7) / "draw"), list("abcde")
    return [draw(sampler, sites, entropy) for _ in range(count)]


def shares(drawn):
    return [sum(site in cohort for cohort in drawn) / len(drawn) for site in "abcde"]


def test_every_site_in_every_round():
    assert cohorts(FullParticipation(), 3) == [list("abcde")] * 3


def test_a_poisson_cohort_varies_in_size():
    drawn = cohorts(PoissonSampling(0.4))
    assert {len(cohort) for cohort in drawn} == {0, 1, 2, 3, 4, 5}
    assert shares(drawn) == pytest.approx([0.4] * 5, abs=0.05)


def test_a_fixed_cohort_does_not():
    drawn = cohorts(FixedSizeSampling(2, 5))
    assert {len(set(cohort)) for cohort in drawn} == {2}
    assert shares(drawn) == pytest.approx([0.4] * 5, abs=0.05)

"""ε against ``dp_accounting`` and Opacus, and against the figures that were worked out for the papers we rebuild."""

import math
import warnings

import dp_accounting as dp
import pytest
from dp_accounting import pld, rdp
from opacus.accountants import PRVAccountant, RDPAccountant

from murmura.errors import PrivacyError
from murmura.privacy.clipping import BatchClipping, ExampleClipping, SiteClipping, VoteLimit
from murmura.privacy.mechanisms.discrete_gaussian import DiscreteGaussianNoise
from murmura.privacy.mechanisms.gaussian import GaussianNoise
from murmura.privacy.mechanisms.skellam import SkellamNoise
from murmura.privacy.mechanisms.tree import TreeNoise
from murmura.privacy.plan import PrivacyPlan
from murmura.privacy.renyi import ORDERS
from murmura.privacy.samplers import FixedSizeSampling, FullParticipation, OncePerTree, PoissonSampling

THOUSAND_ORDERS = [1 + tenth / 10 for tenth in range(1, 1000)]


def plan(sigma, steps, delta, rate=1.0, clipping=None, adjacency="zero-out"):
    sampler = FullParticipation() if rate == 1 else PoissonSampling(rate)
    clipping = clipping or ExampleClipping(1.0)
    return PrivacyPlan("record", adjacency, sampler, clipping, GaussianNoise(sigma), steps, delta)


def ours(sigma, accountant, steps=11, delta=3e-6, rate=1.0):
    return plan(sigma, steps, delta, rate).epsilon(accountant=accountant).value


def theirs(accountant, event, delta):
    return accountant.compose(event).get_epsilon(delta)


def opacus(accountant, sigma, rate, steps, delta, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of orders at the edge of the grid
        accountant.history = [(sigma, rate, steps)]
        return accountant.get_epsilon(delta=delta, **options)


@pytest.mark.parametrize(
    ("sigma", "renyi", "default_orders", "prv", "exact"),
    [
        (11.3, 1.28748, 1.28758, 1.19903, 1.18896),
        (2.31, 7.57898, 7.57898, 7.09044, 7.08012),
        (24.626, 0.55665, 0.55665, None, 0.51130),
        (5.0342, 3.12228, 3.12228, None, 2.89929),
    ],
)
def test_eleven_rounds_with_everybody(sigma, renyi, default_orders, prv, exact):
    event = dp.SelfComposedDpEvent(dp.GaussianDpEvent(sigma), 11)
    assert plan(sigma, 11, 3e-6).event() == event
    assert ours(sigma, "rdp") == pytest.approx(renyi, abs=1e-5)
    assert ours(sigma, "rdp") == pytest.approx(theirs(rdp.RdpAccountant(ORDERS), event, 3e-6), rel=1e-12)
    assert opacus(RDPAccountant(), sigma, 1.0, 11, 3e-6, alphas=THOUSAND_ORDERS) == pytest.approx(renyi, abs=1e-5)
    assert theirs(rdp.RdpAccountant(), event, 3e-6) == pytest.approx(default_orders, abs=1e-5)
    zcdp = dp.ZCDpEvent(11 / (2 * sigma**2))
    assert theirs(rdp.RdpAccountant(ORDERS), zcdp, 3e-6) == pytest.approx(renyi, abs=1e-5)
    assert ours(sigma, "exact") == pytest.approx(exact, abs=1e-5)
    assert ours(sigma, "pld") == pytest.approx(exact, abs=1e-5)
    assert theirs(pld.PLDAccountant(), event, 3e-6) == pytest.approx(exact, abs=1e-5)
    if prv is not None:  # Opacus rounds upwards by up to eps_error
        assert opacus(PRVAccountant(), sigma, 1.0, 11, 3e-6) == pytest.approx(prv, abs=1e-4)
        assert exact < prv < exact + 0.011


@pytest.mark.parametrize(
    ("votes", "sigma", "gaussian", "skellam", "distributed_noise"),
    [
        (8, 11.3, 1.2876, 1.2877, 1.2876),
        (8, 2.31, 7.6120, 7.6237, None),
        (16, 11.3, 1.2876, 1.2876, 1.2876),
        (16, 2.31, 7.6120, 7.6148, 7.6173),
    ],
)
def test_eleven_rounds_of_votes_of_1250_sites(votes, sigma, gaussian, skellam, distributed_noise):
    """The figures for shares are those of 1,024 numbers that all change; here at most as many do as there are votes."""

    def spent(noise):
        cast = PrivacyPlan("site", "zero-out", FullParticipation(), VoteLimit(votes), noise, 11, 3e-6)
        return cast.epsilon(accountant="rdp").value

    whole = rdp.RdpAccountant(list(range(2, 257)))
    event = dp.SelfComposedDpEvent(dp.GaussianDpEvent(sigma), 11)
    assert spent(DiscreteGaussianNoise(sigma)) == pytest.approx(gaussian, abs=5e-5)
    assert spent(DiscreteGaussianNoise(sigma)) == pytest.approx(theirs(whole, event, 3e-6), rel=1e-12)
    assert spent(SkellamNoise(sigma)) == pytest.approx(skellam, abs=5e-5)
    assert spent(GaussianNoise(sigma)) == ours(sigma, "rdp")
    if distributed_noise is None:
        with pytest.raises(PrivacyError, match="Use Skellam noise"):
            spent(DiscreteGaussianNoise(sigma, 1250))
    else:
        assert gaussian - 5e-5 <= spent(DiscreteGaussianNoise(sigma, 1250)) <= distributed_noise + 5e-5


@pytest.mark.parametrize(("epsilon", "renyi", "exact"), [(1.29, 11.280, 10.486), (7.58, 2.3097, 2.1805)])
def test_noise_for_eleven_rounds(epsilon, renyi, exact):
    digits = 5e-4 if epsilon < 2 else 5e-5
    assert plan(1.0, 11, 3e-6).calibrated(epsilon, "rdp").noise.std == pytest.approx(renyi, abs=digits)
    assert plan(1.0, 11, 3e-6).calibrated(epsilon).noise.std == pytest.approx(exact, abs=digits)
    assert dp.get_sigma_gaussian(epsilon, 3e-6) * math.sqrt(11) == pytest.approx(exact, abs=digits)


@pytest.mark.parametrize(("rate", "sigma", "steps"), [(0.04, 2.0, 50), (0.01, 0.8, 300), (0.3, 4.0, 20)])
def test_poisson_sampling(rate, sigma, steps):
    event = dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(sigma)), steps)
    assert plan(sigma, steps, 1e-5, rate).event() == event
    renyi, numeric = (ours(sigma, name, steps, 1e-5, rate) for name in ("rdp", "pld"))
    assert renyi == pytest.approx(theirs(rdp.RdpAccountant(ORDERS), event, 1e-5), rel=1e-9)
    assert renyi == pytest.approx(opacus(RDPAccountant(), sigma, rate, steps, 1e-5, alphas=ORDERS), rel=1e-4)
    assert numeric == pytest.approx(theirs(pld.PLDAccountant(), event, 1e-5), rel=1e-3)
    # Opacus' other accountant brackets ε within its eps_error.
    assert numeric == pytest.approx(opacus(PRVAccountant(), sigma, rate, steps, 1e-5), abs=0.011)
    assert numeric < renyi


def test_fixed_size_sampling():
    fixed = PrivacyPlan(
        "record", "replace-one", FixedSizeSampling(8, 200), ExampleClipping(1.0), GaussianNoise(4.0), 50, 1e-5
    )
    event = dp.SelfComposedDpEvent(dp.SampledWithoutReplacementDpEvent(200, 8, dp.GaussianDpEvent(2.0)), 50)
    assert fixed.event() == event
    accountant = rdp.RdpAccountant(neighboring_relation=dp.NeighboringRelation.REPLACE_ONE)
    assert fixed.epsilon().value == pytest.approx(theirs(accountant, event, 1e-5), rel=1e-3)


@pytest.mark.parametrize(("rate", "sigma"), [(0.04, 2.0), (0.2, 1.0)])
def test_poisson_sampling_with_a_record_replaced(rate, sigma):
    # dp_accounting takes the multiplier relative to C here, where the plan's event has it relative to 2C.
    replaced = plan(sigma, 50, 1e-5, rate, adjacency="replace-one")
    event = dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(sigma)), 50)
    accountant = pld.PLDAccountant(dp.NeighboringRelation.REPLACE_ONE)
    assert replaced.epsilon().value == pytest.approx(theirs(accountant, event, 1e-5), rel=1e-3)


@pytest.mark.parametrize(("steps", "restart_every"), [(100, 100), (96, 32), (30, 1), (70, 7)])
def test_trees_with_one_participation_each(steps, restart_every):
    tree = PrivacyPlan(
        "site", "zero-out", OncePerTree(2), SiteClipping(1.0), TreeNoise(20.0, restart_every), steps, 3e-6
    )
    single = dp.SingleEpochTreeAggregationDpEvent(20.0, restart_every)
    accountant = rdp.RdpAccountant(ORDERS, dp.NeighboringRelation.REPLACE_SPECIAL)
    event = dp.SelfComposedDpEvent(single, steps // restart_every)
    assert tree.epsilon(accountant="rdp").value == pytest.approx(theirs(accountant, event, 3e-6), rel=1e-12)
    assert tree.epsilon().value < tree.epsilon(accountant="rdp").value


# What DP-LoRA's noise is worth at δ = 1e-5 over 50 steps. The first figure names the ε per step that its paper claims
# for the noise √(2·ln(1.25/δ))/ε; σ = 2 is its own setting. The figures were made with whole orders only.
CLAIMED = [
    (2, (17.6, 27.2, 78, 0.53, 0.06)),
    (None, (22.6, 35.1, 110, 0.70, 0.09)),
    (4, (44, 78, 283, 1.7, 0.29)),
    (6, (87, 163, 623, 4.4, 0.80)),
    (8, (146, 282, 1099, 11.2, 1.6)),
]
WHOLE_ORDERS = list(range(2, 257))


@pytest.mark.parametrize(("claimed", "figures"), CLAIMED)
def test_what_dp_lora_claims_and_what_it_has(claimed, figures):
    sigma = math.sqrt(2 * math.log(1.25e5)) / claimed if claimed else 2.0
    settings = [
        plan(sigma, 50, 1e-5),
        plan(sigma, 50, 1e-5, clipping=ExampleClipping(1.0, groups=2)),
        plan(sigma, 50, 1e-5, clipping=BatchClipping(1.0, groups=2), adjacency="replace-one"),
        plan(sigma, 50, 1e-5, rate=8 / 200),
        plan(sigma, 50, 1e-5, rate=8 / 52_000),
    ]
    for setting, figure in zip(settings, figures, strict=True):
        printed = theirs(rdp.RdpAccountant(WHOLE_ORDERS), setting.event(), 1e-5)
        digit = 10.0 ** -len(str(figure).partition(".")[2])
        assert printed == pytest.approx(figure, abs=max(digit / 2, 0.003 * figure))  # some of them are cut, not rounded
        assert setting.epsilon(accountant="rdp").value <= printed * 1.001


def test_finer_orders_and_the_closed_form_say_less_than_the_figures():
    # σ of the claim ε = 8: the large figures owe much to orders no smaller than 2.
    loud = plan(math.sqrt(2 * math.log(1.25e5)) / 8, 50, 1e-5)
    assert loud.epsilon(accountant="rdp").value == pytest.approx(122.2, abs=0.1)
    assert loud.epsilon().value == pytest.approx(117.1, abs=0.1)

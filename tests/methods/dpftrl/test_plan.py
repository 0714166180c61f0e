"""What DP-FTRL promises: by how often a site is really in a tree."""

import math

import dp_accounting as dp
import pytest

from murmura.errors import PrivacyError
from murmura.methods.dpftrl.config import DPFTRLConfig
from murmura.methods.dpftrl.method import plan
from murmura.privacy.mechanisms.banded import BandedNoise
from murmura.privacy.samplers import FullParticipation, MinSeparation, OncePerTree

SITES = 1250
DELTA = 3e-6


def made(sites=SITES, *, restart_every=None, honaker=True, **options):
    tree = {"kind": "tree", "restart_every": restart_every, "honaker": honaker}
    return plan(DPFTRLConfig(**{"rounds": 100, "delta": DELTA, "noise": tree} | options), sites)


def spent(squared_sensitivity, z):
    return dp.get_epsilon_gaussian(z / math.sqrt(squared_sensitivity), DELTA)


@pytest.mark.parametrize(("epsilon", "by_rdp", "exact"), [(1.29, 34.011, 31.616), (7.58, 6.9641, 6.5745)])
def test_a_tree_a_round_is_what_dpfedavg_costs(epsilon, by_rdp, exact):
    assert made(epsilon=epsilon).noise.std == pytest.approx(exact, rel=1e-4)
    assert made(epsilon=epsilon, accountant="rdp").noise.std == pytest.approx(by_rdp, rel=1e-4)
    assert made().sampler == FullParticipation() and made().noise.restart_every == 1


def test_one_tree_with_every_site_in_every_round():
    """100 leaves with the site in each move the nodes by √10172 and not by √7."""
    promised = made(noise_multiplier=34.0, restart_every=100)
    assert promised.epsilon().value == pytest.approx(spent(10_172, 34.0))
    assert promised.epsilon().value > 10 * spent(7, 34.0)


@pytest.mark.parametrize(("rounds", "squared"), [(8, 2 * 36), (10, 2 * 36 + 8), (3, 1 + 1 + 1 + 4)])
def test_restarts(rounds, squared):
    """A tree of four: leaves 4·1, pairs 2·2², the whole 4² = 28 with every site in each of its rounds."""
    by_hand = {4: 4 + 8 + 16, 3: 3 + 4, 2: 2 + 4, 1: 1}
    whole, rest = divmod(rounds, 4)
    expected = whole * by_hand[4] + by_hand.get(rest, 0)
    promised = made(noise_multiplier=20.0, restart_every=4, rounds=rounds)
    assert promised.epsilon().value == pytest.approx(spent(expected, 20.0))


def test_once_a_tree_by_dp_accounting():
    """Its tree event, once for each tree that a site is in."""
    promised = made(noise_multiplier=6.0, sites_per_round=125, rounds=30, accountant="rdp")
    assert promised.sampler == OncePerTree(125) and promised.noise.restart_every == 10
    tree = dp.SelfComposedDpEvent(dp.SingleEpochTreeAggregationDpEvent(6.0, 10), 3)
    relation = dp.NeighboringRelation.REPLACE_SPECIAL
    accountant = dp.rdp.RdpAccountant(neighboring_relation=relation).compose(tree)
    assert promised.epsilon(accountant="rdp").value == pytest.approx(accountant.get_epsilon(DELTA), rel=1e-3)
    assert promised.epsilon().value == pytest.approx(spent(3 * 4, 6.0))


def test_trees_end_when_every_site_had_its_turn():
    assert made(sites_per_round=125, rounds=7).noise.restart_every == 10
    assert made(sites=11, sites_per_round=2).noise.restart_every == 5
    assert made(sites_per_round=125, restart_every=4).noise.restart_every == 4


@pytest.mark.parametrize("honaker", [True, False])
def test_honaker_costs_nothing(honaker):
    expected = made(noise_multiplier=30.0, restart_every=8).epsilon().value
    assert made(noise_multiplier=30.0, restart_every=8, honaker=honaker).epsilon().value == expected


@pytest.mark.parametrize("options", [{"sites_per_round": 6}, {"sites_per_round": 2, "restart_every": 3}])
def test_a_site_cannot_be_in_a_tree_twice_and_be_accounted_once(options):
    with pytest.raises(PrivacyError) as error:
        made(sites=5, **options)
    assert "5 sites cannot take part at most once in" in str(error.value)
    assert "Restart the tree sooner" in str(error.value)


def test_banded_noise_is_accounted_by_the_turns_that_a_site_has():
    """Two turns in 20 rounds, ten apart; a turn moves four rows, by 1, 1/2, 3/8 and 5/16."""
    promised = made(noise={"kind": "banded", "bands": 4}, sites_per_round=125, rounds=20, noise_multiplier=6.0)
    assert (promised.sampler, promised.noise) == (MinSeparation(125, 10), BandedNoise(6.0, 4))
    column = 1 + 1 / 4 + 9 / 64 + 25 / 256
    assert promised.epsilon().value == pytest.approx(spent(2 * column, 6.0))
    assert made(noise="banded", sites_per_round=125, rounds=7, noise_multiplier=6.0).noise.bands == 7
    assert made(noise="banded", sites_per_round=125, epsilon=2.0).epsilon().value == pytest.approx(2.0, rel=1e-4)


@pytest.mark.parametrize(
    "options", [{"sites_per_round": 6}, {"sites_per_round": 2, "noise": {"kind": "banded", "bands": 3}}]
)
def test_a_site_cannot_be_back_while_its_noise_is_not_spent(options):
    with pytest.raises(PrivacyError, match="of 5 sites a round, no site can keep away for"):
        made(sites=5, **{"noise": "banded"} | options)

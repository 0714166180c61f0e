"""The noise on votes, added by the server or in shares by the sites."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from murmura import methods
from murmura.aggregation.config import AggregationConfig
from murmura.errors import BudgetError, PrivacyError
from murmura.methods.pretext.config import PretextConfig
from murmura.methods.pretext.guarantee import noise_added, noise_in_shares, plan, share_added
from murmura.privacy.budget import Budget
from murmura.privacy.ledger import PrivacyLedger
from murmura.privacy.mechanisms.skellam import SkellamNoise
from murmura.privacy.plan import PrivacyPlan
from murmura.training.config import LocalTraining
from tests.privacy.attack import given_away, of_sites


def config(**options):
    return PretextConfig(public="x", noise_multiplier=2.31, **options)


@pytest.mark.parametrize("noise", ["skellam", "discrete-gaussian"])
def test_shares_make_up_the_planned_noise_and_too_few_are_no_guarantee(noise):
    shares, sites = 20, [f"site-{k}" for k in range(25)]
    promised = plan(config(noise=noise), shares)
    own = [torch.full((900,), 2, dtype=torch.int32) for _ in sites]
    sent = share_added(promised, own, shares, sites, 1)
    assert all(one.dtype == torch.int32 for one in sent)
    added = np.sum([(one - 2).numpy() for one in sent[:shares]], axis=0)
    assert added.std() == pytest.approx(8 * 2.31, rel=0.13)  # five standard errors
    for replies in (20, 25):  # more than enough, and just enough
        ledger = PrivacyLedger(promised)
        ledger.record(1, [noise_in_shares(promised, shares, replies, 25)])
        assert 0 < ledger.epsilon().value <= promised.epsilon(1).value * 1.0001
    ledger.record(2, [noise_in_shares(promised, shares, 19, 25)])
    with pytest.raises(PrivacyError, match="no ε"):
        ledger.epsilon()


def test_a_share_that_is_missing_does_not_leave_the_site(monkeypatch):
    promised = plan(config(noise="skellam"), 20)
    monkeypatch.setattr(SkellamNoise, "add", lambda noise, votes, *rest: votes)
    with pytest.raises(PrivacyError, match="site north, round 3"):
        share_added(promised, [torch.zeros(900, dtype=torch.int32)], 20, ["north"], 3)


@pytest.mark.parametrize("round", [0, 12])
def test_no_share_leaves_in_a_round_that_no_epsilon_is_for(round):
    promised = plan(config(noise="skellam"), 20)
    with pytest.raises(PrivacyError, match=f"votes are asked for in round {round}, and ε is for 11 rounds"):
        share_added(promised, [torch.zeros(900, dtype=torch.int32)], 20, ["north"], round)


def test_each_time_that_a_site_votes_with_skellam_noise_in_shares_its_owners_budget_counts(tmp_path):
    """Whatever the server's ledger says: of sums that are asked for again and again one more is too many."""
    secure, training = AggregationConfig(secure=True), LocalTraining()
    made = {noise: methods.build(config(noise=noise), secure) for noise in ("skellam", "discrete-gaussian")}
    assert made["discrete-gaussian"].cost("vote", 8, training) is None
    assert methods.build(config(noise="skellam"), AggregationConfig()).cost("vote", 8, training) is None
    assert made["skellam"].cost("report_distance", 8, training) is None
    cost = made["skellam"].cost("vote", 8, training)
    replaced = replace(cost.plan, adjacency="replace-one", delta=1e-5)
    budget = Budget(tmp_path, "north", "digest", replaced.epsilon(2).value * 1.01, 1e-5)
    for _ in range(2):
        budget.reserve("run", cost)
    with pytest.raises(BudgetError, match="another 1 step would exceed the owner's budget"):
        budget.reserve("run", cost)


@pytest.mark.parametrize("votes", ["nearest", "normalised"])
def test_noisy_votes_rule_no_site_out(votes):
    """Neither of whole votes nor of others: both histograms are kept, and told in ``evolution.json``."""
    promised = plan(config(votes=votes, texts_per_site=2000))
    cast = np.random.default_rng(0).multinomial(2000, [1 / 2000] * 2000, size=50)
    whole = torch.from_numpy(cast.sum(0)).double(), torch.from_numpy(cast[1:].sum(0)).double()
    sums = whole if votes == "nearest" else of_sites(2000, norm=1.0)
    std = promised.noise.std * promised.clipping.norm
    assert given_away(lambda sum, entropy: noise_added(promised, sum, 50, 50, entropy)[0], sums, std) == [0, 0]


def test_a_plan_says_what_is_counted():
    assert plan(config()).clipping.norm == 8 and plan(config(votes="normalised")).clipping.norm == 1.0
    made = plan(config(noise="discrete-gaussian"), 20)
    assert made.noise.sites == 20 and PrivacyPlan.from_json(made.to_json()) == made

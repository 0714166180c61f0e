"""SCAFFOLD's control variates: those of sites are zero at first, and the server's is the mean of them all along."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from murmura.aggregation.config import AggregationConfig
from murmura.errors import RefusedError
from murmura.federation.wire.messages import Ask
from murmura.federation.wire.sums import Sum
from murmura.methods.local_rules import local_rule
from murmura.training.adapter import subtract

SITES = 4
NOT_ASKED, NOT_REACHED, LOST, COUNTS = range(4)  # what may become of a site in a round


class World:
    """Sites that are known to the server by their replies alone, and train to wherever a test says."""

    def __init__(self):
        self.rule = local_rule(AggregationConfig(local="scaffold"))
        self.server = SimpleNamespace(store={}, adapter={"x": torch.ones(2)}, round=0)
        self.sites = [SimpleNamespace(name=f"site-{k}", store={}) for k in range(SITES)]
        self.own = [torch.zeros(2) for _ in self.sites]  # c_k as it is when the changes that counted are in it

    @property
    def common(self):
        return self.rule.sends(self.server)["control"]["x"]

    def round(self, fates, generator):
        self.server.round += 1
        ask, sums = Ask("train", self.server.round, {"lr": 0.5, **self.rule.sends(self.server)}), Sum()
        for site, fate in enumerate(fates):
            if fate in (LOST, COUNTS):
                change = self.trained(site, ask, torch.randn(2, generator=generator))
                if fate == COUNTS:
                    sums.add(self.sites[site].name, {"control_change": change})
                    self.own[site] = self.own[site] + change["x"]
        asked = [site.name for site, fate in zip(self.sites, fates, strict=True) if fate != NOT_ASKED]
        self.rule.settle(self.server, asked, sums, SITES)

    def trained(self, site, ask, moved):
        """The change that a site reports, which has trained with what it holds for its control variate."""
        common, start = ask["control"], {"x": torch.zeros(2)}
        cohort = SimpleNamespace(sites=[self.sites[site]], given=lambda ask, name: [ask[name]])
        [correction] = self.rule.options(cohort, ask, [start])["corrections"]
        torch.testing.assert_close(correction["x"], common["x"] - self.own[site], rtol=1e-5, atol=1e-5)
        result = SimpleNamespace(state=subtract(start, {"x": moved}), steps=2)
        [change] = self.rule.told(cohort, ask, [start], [result])["control_change"]
        torch.testing.assert_close(change["x"], moved / (2 * 0.5) - common["x"])
        return change


@settings(max_examples=200)
@given(rounds=st.lists(st.lists(st.integers(0, 3), min_size=SITES, max_size=SITES), max_size=8))
def test_it_stays_the_mean_of_all_sites_own_ones(rounds):
    """Whoever is asked, and whatever becomes of a reply. It fails where the sum is divided by the number of replies,
    and where a site takes in what did not count, or leaves out what did."""
    world, generator = World(), torch.Generator().manual_seed(0)
    for fates in rounds:
        world.round(fates, generator)
        torch.testing.assert_close(world.common, torch.stack(world.own).mean(0), rtol=1e-4, atol=1e-4)


def test_sites_are_told_of_only_where_their_last_reply_did_not_count():
    world, generator = World(), torch.Generator().manual_seed(0)
    told = []
    for fates in (
        [COUNTS, COUNTS, COUNTS, COUNTS],
        [COUNTS, LOST, NOT_REACHED, NOT_ASKED],
        [COUNTS, LOST, COUNTS, COUNTS],
        [COUNTS, COUNTS, COUNTS, COUNTS],
    ):
        world.round(fates, generator)
        told.append(world.rule.sends(world.server).get("control_uncounted"))
    assert told == [None, {"site-1": 2, "site-2": 2}, {"site-1": 2}, None]


def test_an_ask_of_an_earlier_round_that_arrives_late_is_refused():
    """It changes nothing: the server has counted a later reply since then."""
    world, generator = World(), torch.Generator().manual_seed(0)
    early = Ask("train", 1, {"lr": 0.5, **world.rule.sends(world.server)})
    world.round([NOT_REACHED, COUNTS, COUNTS, COUNTS], generator)
    world.round([COUNTS] * SITES, generator)
    before = dict(world.sites[0].store)
    with pytest.raises(RefusedError, match="a later round already"):
        world.trained(0, early, torch.ones(2))
    assert world.sites[0].store == before


@pytest.fixture
def settle():
    """Lets the server take in the sum of the changes of some sites' control variates; returns its own."""
    world = World()

    def settled(changes, sites):
        sums = Sum()
        for number, change in enumerate(changes):
            sums.add(f"site-{number}", {"control_change": {"x": change}})
        world.rule.settle(world.server, sums.sites, sums, sites)
        return world.common

    return settled


def test_the_common_control_variate_moves_by_the_changes_over_all_sites(settle):
    first = settle([torch.tensor([4.0, 0.0]), torch.tensor([4.0, 2.0])], 4)
    assert (first.tolist(), first.dtype) == ([2.0, 0.5], torch.float32)
    assert settle([torch.tensor([-4.0, 1.0])], 4).tolist() == [1.0, 0.75]


def test_without_replies_nothing_changes(settle):
    assert settle([], 3).tolist() == [0.0, 0.0]
    before = settle([torch.tensor([3.0, 0.0])], 3).tolist()
    assert settle([], 3).tolist() == before == [1.0, 0.0]

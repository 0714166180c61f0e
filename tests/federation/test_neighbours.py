"""Sums of many sites, each of which has neighbours: what a lying server can do there that it cannot where all sites are
neighbours, and that it comes to nothing. The bounds are looser than in a run, so that sixty sites are many."""

import random

import pytest
import torch

from murmura.aggregation.config import SecureSumConfig
from murmura.errors import RunError, SecureSumError
from murmura.federation.wire import neighbours
from murmura.federation.wire.shamir import join
from tests.federation.masked import Parties, votes

COUNT = 60
OPTIONS = SecureSumConfig(neighbours=2, threshold=0.55, dropouts=0.05)


@pytest.fixture
def parties(monkeypatch):
    monkeypatch.setattr(neighbours, "SECURITY", 4)
    monkeypatch.setattr(neighbours, "CORRECTNESS", 4)
    monkeypatch.setattr(neighbours, "_SLOW", 2)
    neighbours.graph.cache_clear()
    yield Parties(COUNT, options=OPTIONS)
    neighbours.graph.cache_clear()


def shared(parties):
    """As far as the shares; nobody has dropped out. Returns the graph."""
    parties.advertise(parties.names)
    parties.share(parties.names)
    found = parties.server.graph
    assert not found.is_full and found.rows < COUNT // 2
    return found


def summed_over(parties, members):
    """What sites reveal of a sum that a server says is over these places alone, though it has the vectors of all."""
    parties.collect({name: votes(1, 0, 0, 0) for name in parties.names})
    parties.server.members = sorted(members)
    names = parties.server.names(parties.server.members)
    parties.confirm(names)
    return {name: parties.reveal(name) for name in names}


def shares_of(parties, place, revealed):
    """The shares of one site's secrets among what sites have revealed, by where they were made for."""
    graph, names = parties.server.graph, parties.names
    return {
        graph.row(place, one) + 1: share
        for one in graph.holders(place)
        if names[one] in revealed and any(share := revealed[names[one]][graph.row(one, place)])
    }


def can_be_joined(parties, place, revealed):
    return len(shares_of(parties, place, revealed)) >= parties.server.graph.threshold


def test_the_sum_is_exact_whoever_drops_out(parties):
    drawn = random.Random(0)
    shared(parties)
    there = drawn.sample(parties.names, COUNT - 2)
    parties.collect({name: votes(1, place, -place, 2**40) for place, name in enumerate(there)})
    helpers = drawn.sample(sorted(there), COUNT - 3)
    parties.confirm(helpers)
    found = parties.unmask(helpers)
    every = sum(range(COUNT - 2))
    assert found["votes"].tolist() == [COUNT - 2, every, -every, 2**40 * (COUNT - 2)]
    assert sorted(found.sites) == sorted(there)


def test_a_sum_needs_as_many_sites_as_where_all_are_neighbours(parties):
    """For so many the shares of noise are sized."""
    shared(parties)
    assert {site.least for site in parties.sites.values()} == {OPTIONS.least(COUNT)} == {parties.server.least}
    few = list(range(OPTIONS.least(COUNT) - 1))
    parties.collect({name: votes(1, 1, 1, 1) for name in parties.names})
    with pytest.raises(SecureSumError, match="fewer than the threshold"):
        parties.sites[parties.names[0]].confirm(parties.server.number, few)


def test_each_site_sends_shares_to_its_neighbours_alone_and_masks_with_these(parties, monkeypatch):
    from murmura.federation.site import masking

    found = shared(parties)
    seeds = []
    monkeypatch.setattr(masking, "add_mask", lambda vector, seed, sign: seeds.append(seed))
    parties.sites[parties.names[5]].mask(1, "vote", parties.terms, b"asked", votes(1, 1, 1, 1))
    assert len(seeds) == found.rows  # its own, and one with each neighbour
    assert {len(rows) for rows in parties.server._sealed.values()} == {found.rows}


def test_where_more_drop_out_than_foreseen_the_run_says_so(parties):
    found = shared(parties)
    victim = 7
    gone = [one for one in found.holders(victim) if one != victim][: found.rows - found.threshold + 1]
    there = [name for place, name in enumerate(parties.names) if place not in gone]
    parties.collect({name: votes(1, 1, 1, 1) for name in there})
    parties.confirm(there)
    with pytest.raises(RunError, match=r"only \d+ of site site-\d+'s \d+ neighbours") as error:
        parties.unmask(there)
    assert "aggregation.secure.dropouts" in error.value.fix


# ---- a server that lies ------------------------------------------------------------------------------------------


def test_a_site_whose_neighbours_are_all_said_to_have_dropped_out_keeps_its_mask(parties):
    """Else its vector alone could be read: all masks that it shares would be known, and then its own."""
    found = shared(parties)
    victim = 11
    revealed = summed_over(parties, set(range(COUNT)) - set(found.holders(victim)) | {victim})
    assert shares_of(parties, victim, revealed).keys() == {found.row(victim, victim) + 1}
    assert not can_be_joined(parties, victim, revealed)


def test_no_part_of_the_ring_can_be_cut_off(parties):
    """The server names all in two gaps as dropped out, each as long as neighbours reach. Then sites on the edges have
    too few left who hold shares of their seeds; and these are in the sum of either part."""
    found = shared(parties)
    half, order = found.half, found.order
    first = 2 * half + 3
    gaps = {*order[:half], *order[half + first : 2 * half + first]}
    part = order[half : half + first]
    revealed = summed_over(parties, set(range(COUNT)) - gaps)
    assert not can_be_joined(parties, part[0], revealed) and not can_be_joined(parties, part[-1], revealed)
    assert can_be_joined(parties, part[first // 2], revealed)  # in the middle all are left
    assert not can_be_joined(parties, order[-1], revealed)


def test_a_site_that_was_told_of_none_of_its_neighbours_is_given_away_by_none(parties):
    """It would have masked with nobody, and its own mask would come off with the others'."""
    found = shared(parties)
    victim = 11
    alone = sorted(set(range(COUNT)) - set(found.holders(victim)) | {victim})
    assert len(alone) >= OPTIONS.least(COUNT)  # which the site cannot object to
    name = parties.names[victim]
    replies = {name: votes(1, 2, 3, 4) for name in parties.names}
    parties.collect(replies, told={name: {"sharers": alone}})
    others = [one for one in parties.names if one != name]
    parties.confirm(others)
    neighbour = next(one for one in found.holders(victim) if one != victim)
    with pytest.raises(SecureSumError, match=f"the signature that is said to be of site {name} is not"):
        parties.reveal(parties.names[neighbour])
    far = next(place for place in range(COUNT) if place not in found.holders(victim))
    revealed = {parties.names[far]: parties.reveal(parties.names[far])}
    assert shares_of(parties, victim, revealed) == {}


@pytest.mark.parametrize("change", ["none", "another's", "of an earlier sum"])
def test_what_a_neighbour_signed_cannot_be_made_up(parties, change):
    shared(parties)
    parties.collect({name: votes(1, 1, 1, 1) for name in parties.names})
    earlier = dict(parties.server._vouchers)
    if change == "of an earlier sum":
        parties.confirm(parties.names)
        parties.unmask(parties.names)
        parties.begin(round=2)
        shared(parties)
        parties.collect({name: votes(1, 1, 1, 1) for name in parties.names})
    parties.confirm(parties.names)
    victim = 3
    one = next(one for one in parties.server.graph.holders(victim) if one != victim)
    changed = {"none": bytes(64), "another's": parties.server._vouchers[victim], "of an earlier sum": earlier[one]}
    parties.server._vouchers[one] = changed[change]
    with pytest.raises(SecureSumError, match=f"said to be of site {parties.names[one]} is not"):
        parties.reveal(parties.names[victim])
    parties.server._vouchers = {}
    parties.server.vouchers_for = lambda site: []
    with pytest.raises(SecureSumError, match="signatures or shares are missing"):
        parties.reveal(parties.names[victim - 1])


def test_of_no_site_both_kinds_of_shares_are_revealed(parties):
    """Whichever list the server names: enough for the seed of who is in it, for the key of who is not, never both."""
    shared(parties)
    members = set(range(COUNT)) - {4, 9}
    secrets = {name: (site._sum.seed, site._sum.masking.private_bytes_raw()) for name, site in parties.sites.items()}
    revealed = summed_over(parties, members)
    for place, name in enumerate(parties.names):
        found = dict(list(shares_of(parties, place, revealed).items())[: parties.server.graph.threshold])
        assert join(found) == secrets[name][0 if place in members else 1]
    with pytest.raises(SecureSumError, match="a step of a sum that this site is not at"):
        parties.reveal(parties.names[0])


def test_sites_that_were_sent_other_keys_have_other_neighbours_and_nothing_comes_of_it(parties):
    """The order is not the server's to choose for single sites: it follows from the keys, which all sign in the end."""
    parties.advertise(parties.names)
    roll, first = parties.server.roll, parties.names[0]
    parties.share(parties.names, told={first: (roll.names[::-1], roll.offers[::-1])})
    there = parties.names[1:]
    parties.collect({name: votes(1, 1, 1, 1) for name in there})
    parties.confirm(there)
    for place, name in enumerate(there, start=1):
        if place in parties.server.graph.holders(0):
            with pytest.raises(SecureSumError, match=f"what site {first} has encrypted for this one was changed"):
                parties.reveal(name)
        else:
            parties.reveal(name)


def test_vectors_of_reals_are_summed_too(parties):
    like = {"update": torch.zeros(5)}
    reals = Parties(COUNT, like, OPTIONS)
    shared(reals)
    reals.collect({name: {"update": torch.full((5,), place / 8)} for place, name in enumerate(reals.names)})
    reals.confirm(reals.names)
    total = reals.unmask(reals.names)["update"]
    torch.testing.assert_close(total, torch.full((5,), sum(range(COUNT)) / 8).double(), rtol=0, atol=COUNT * 2.0**-20)

"""The sum is that of who is in, exactly, whoever drops out where; and with too few there is none."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from murmura.errors import RunError
from murmura.federation.wire import neighbours
from murmura.federation.wire.neighbours import Degree
from tests.federation.masked import Parties, each_graph, votes  # noqa: F401 (fixture)


@settings(max_examples=12, deadline=None)
@given(st.integers(3, 6), st.data())
def test_the_sum_is_exact_whoever_drops_out_at_whichever_step(count, data):
    like = {"votes": torch.zeros(3, dtype=torch.int64), "note": 0}
    parties = Parties(count, like)
    least = parties.server.least

    def left(before):
        keep = data.draw(st.integers(least, len(before)))
        return sorted(data.draw(st.permutations(before))[:keep])

    numbers = st.lists(st.integers(-(2**60), 2**60), min_size=3, max_size=3)
    sites = left(parties.names)
    parties.advertise(sites)
    sites = left(sites)
    parties.share(sites)
    sites = left(sites)
    replies = {name: {"votes": torch.tensor(data.draw(numbers)), "note": 1} for name in sites}
    parties.collect(replies)
    helpers = left(sites)
    parties.confirm(helpers)
    found = parties.unmask(left(helpers))
    exact = sum((reply["votes"] for reply in replies.values()), torch.zeros(3, dtype=torch.int64))
    assert torch.equal(found["votes"], exact.double())
    assert found.sites == sites and found["note"] == len(sites) == found.heard["votes"]


@pytest.mark.parametrize("step", ["advertise", "share", "collect", "confirm", "unmask"])
def test_below_the_threshold_there_is_no_sum_at_any_step(step):
    parties = Parties(4)
    assert parties.server.least == 3
    few = ["a", "d"]
    said = {
        "advertise": "advertised keys",
        "share": "shared their secrets",
        "collect": "sent their part",
        "confirm": "confirmed who is in the sum",
        "unmask": "helped to take the masks off",
    }
    with pytest.raises(RunError, match=f"only 2 of 4 sites {said[step]}; a secure sum needs 3, and nothing") as error:
        parties.advertise(few if step == "advertise" else parties.names)
        parties.share(few if step == "share" else parties.names)
        parties.collect({name: votes(1, 1, 1, 1) for name in (few if step == "collect" else parties.names)})
        parties.confirm(few if step == "confirm" else parties.names)
        parties.unmask(few)
    assert "Bring the sites back" in error.value.fix and error.value.passing


@pytest.mark.parametrize("left_out", [True, False])
def test_without_a_neighbour_whose_share_is_needed_there_is_no_sum(monkeypatch, left_out):
    monkeypatch.setattr(neighbours, "degree", lambda count, asked, options: Degree(2, 3))
    monkeypatch.setattr(neighbours, "_SLOW", 2)
    parties = Parties(4)
    parties.advertise(parties.names)
    parties.share(parties.names)
    parties.collect({name: votes(1, 1, 1, 1) for name in parties.names})
    parties.confirm(parties.names)
    parties.server.left_out |= {"d"} if left_out else set()
    with pytest.raises(RunError, match=r"only 2 of site .'s 2 neighbours and itself helped") as error:
        parties.unmask("abc")
    assert error.value.passing is not left_out


@pytest.mark.usefixtures("each_graph")
def test_the_server_sees_nothing_but_the_sum():
    """What it holds before sites reveal is uniform: the same vectors look different, and no difference tells."""
    totals = []
    for _ in range(2):
        parties = Parties(3)
        parties.advertise(parties.names)
        parties.share(parties.names)
        parties.collect({name: votes(0, 0, 0, 0) for name in parties.names})
        totals.append(parties.server._total.copy())
    assert not np.equal(*totals).any() and all((total > 2**32).all() for total in totals)


@pytest.mark.usefixtures("each_graph")
@pytest.mark.parametrize("present", ["abcd", "bcd"])
def test_shares_that_do_not_fit_are_noticed(present):
    """Else masks would stay on the sum, and nobody would know."""
    parties = Parties(4)
    parties.advertise(parties.names)
    parties.share(parties.names)
    parties.collect({name: votes(1, 1, 1, 1) for name in present})
    parties.confirm(present)
    revealed = {name: parties.reveal(name) for name in present}
    graph = parties.server.graph
    for place, name in enumerate(parties.names):
        if place and name in revealed and place in graph.holders(0):
            revealed[name][graph.row(place, 0)] = bytes(33)
    with pytest.raises(RunError, match="the sites' shares for site a do not fit together"):
        parties.server.unmasked(revealed)

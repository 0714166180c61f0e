"""What a site does in a secure sum, and what it does not do for a server that lies."""

import copy
import re
from contextlib import nullcontext

import numpy as np
import pytest
import torch

from murmura.aggregation.config import SecureSumConfig
from murmura.errors import SecureSumError
from murmura.federation.site.masking import Masking
from murmura.federation.wire.layout import Agreement
from murmura.federation.wire.shamir import join
from murmura.privacy.journal import Journal
from tests.federation.masked import Parties, each_graph, votes  # noqa: F401 (fixture)

pytestmark = pytest.mark.usefixtures("each_graph")


def refused(why):
    return pytest.raises(SecureSumError, match=re.escape(why))


@pytest.fixture
def parties():
    """Four sites, the threshold of which is three."""
    return Parties(4)


def collected(parties, present=("a", "b", "c", "d"), **options):
    """As far as the masked vectors."""
    parties.advertise(parties.names)
    parties.share(parties.names)
    parties.collect({name: votes(1, 2, 3, 4) for name in present}, **options)


def test_a_masked_vector_looks_like_any_other(parties):
    parties.advertise(parties.names)
    parties.share(parties.names)
    vector, _ = parties.sites["a"].mask(1, "vote", parties.terms, b"asked", votes(0, 0, 0, 0))
    assert len(set(vector.tolist())) == 5 and (vector > 2**32).all()


def test_nothing_that_leaves_holds_a_secret(parties):
    """Neither the seed nor the keys, nor a share of one that is not encrypted."""
    parties.advertise(parties.names)
    a = parties.sites["a"]
    secrets = [a._sum.seed, a._sum.masking.private_bytes_raw(), a._sum.encrypting.private_bytes_raw()]
    left = [a._sum.offer, *a.share(parties.server.number, parties.server.roll.names, parties.server.roll.offers)]
    secrets.append(a._sum.own)
    left.append(a.mask(1, "vote", {**parties.terms, "sharers": [0, 1, 2, 3]}, b"asked", votes(1, 1, 1, 1))[0].tobytes())
    left.append(a.confirm(parties.server.number, [0, 1, 2, 3])[0])
    assert not any(secret in message for secret in secrets for message in left)


def test_a_site_knows_by_itself_for_how_many_sites_shares_of_noise_are_sized(parties):
    with refused("a share of noise is asked for, and there is no sum"):
        _ = parties.sites["a"].least
    parties.advertise(parties.names)
    parties.share(parties.names)
    assert [site.least for site in parties.sites.values()] == [3] * 4


def test_nothing_of_a_sum_is_left_when_it_is_over(parties):
    collected(parties)
    parties.confirm(parties.names)
    parties.unmask(parties.names)
    assert all(site._sum is None for site in parties.sites.values())


# ---- a server that lies ------------------------------------------------------------------------------------------


def test_a_key_that_the_server_has_swapped_is_noticed(parties):
    """It would read what is encrypted for that site, and know the masks that it shares."""
    parties.advertise(parties.names)
    names, offers = parties.server.roll.names, parties.server.roll.offers
    other = Parties(4)
    other.advertise(other.names)
    theirs = other.server.roll.offers[1]
    for changed in (theirs, theirs[:96] + offers[1][96:], offers[1][:32] + offers[2][32:]):
        again = copy.copy(parties.sites["a"])
        with refused("the signature that is said to be of site b is not"):
            again.share(parties.server.number, names, (offers[0], changed, *offers[2:]))
    with refused("the keys that are said to be this site's are not"):
        parties.sites["a"].share(parties.server.number, names, (offers[1], *offers[1:]))


def test_sites_that_the_roster_does_not_have_are_none(parties):
    parties.advertise(parties.names)
    names, offers = parties.server.roll.names, parties.server.roll.offers
    with refused("site made-up is not in the roster of sites"):
        parties.sites["a"].share(parties.server.number, (*names[:3], "made-up"), offers)


def test_two_sites_that_are_told_different_lists_of_who_is_in_reveal_nothing():
    """Else shares of both kinds could be had of one site, from different others."""
    parties = Parties(5)  # of which four are enough
    collected(parties, parties.names)
    parties.confirm(parties.names, told={"a": [0, 1, 2, 3], "b": [0, 1, 2, 3]})
    for name, why in {"a": "names some that are not in the sum", "c": "or it has signed something else"}.items():
        with refused(why):
            parties.reveal(name)
    assert all(parties.sites[name]._sum is None for name in "ac")


def test_sites_that_were_asked_different_things_reveal_nothing(parties):
    """As by a server that sends all but one site a model whose update it knows."""
    collected(parties, asked={"a": b"another model"})
    parties.confirm(parties.names)
    with refused("or it has signed something else"):
        parties.reveal("a")
    with refused("the signature that is said to be of site a"):
        parties.reveal("b")


def test_sites_that_were_told_different_layouts_reveal_nothing(parties):
    layout = parties.layout.to_payload()
    parties.advertise(parties.names)
    parties.share(parties.names)
    parties.collect(
        {"a": votes(1, 2, 3, 4), "b": votes(1, 2, 3, 4), "c": votes(1, 2, 3, 4)},
        told={"a": {"layout": {**layout, "note": "as the others"}}},
    )
    parties.confirm("abc")
    with refused("or it has signed something else"):
        parties.reveal("b")


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ([["votes", None, "tensor", [4]], ["votes", None, "whole tensor", [4]]], "a field is to leave twice"),
        ([["votes", None, "tensor", [4]]], "'votes' is not what the secure sum that was asked for has a place for"),
        ([["votes", None, "short tensor", [4]]], "'votes' is not what"),
        ([["votes", None, "whole number", []]], "'votes' is not what"),
        ([["votes", None, "whole tensor", [2, 2]]], "'votes' is not what"),
        ([["votes", "a", "whole tensor", [4]]], "'votes' has no place in the secure sum"),
        ([["other", None, "whole tensor", [4]]], "'votes' has no place"),
    ],
)
def test_a_site_masks_no_other_layout_than_that_of_its_own_reply(parties, entries, why):
    """With both forms of the first, a server has the sum and the sum of what was clipped: the noise comes off."""
    parties.advertise(parties.names)
    parties.share(parties.names)
    with refused(why):
        parties.sites["a"].mask(1, "vote", {**parties.terms, "layout": {"entries": entries}}, b"", votes(1, 2, 3, 99))
    assert parties.sites["a"]._sum is None


@pytest.mark.parametrize("told", [{}, {"weights": {}}, {"weights": {"update": "other"}}])
def test_what_a_sum_is_weighed_by_a_site_knows_by_itself(told):
    parties = Parties(3, like={"update": torch.zeros(2), "examples": 0}, weights={"update": "examples"})
    layout = {**parties.layout.to_payload(), **told}
    parties.advertise(parties.names)
    parties.share(parties.names)
    replies = {name: {"update": torch.ones(2), "examples": k} for k, name in enumerate(parties.names, start=1)}
    parties.collect(replies, told={name: {"layout": layout} for name in parties.names})
    parties.confirm(parties.names)
    assert parties.unmask(parties.names)["update"].tolist() == [6, 6]


def test_no_site_reveals_twice_so_never_both_kinds_of_shares(parties):
    collected(parties)
    parties.confirm(parties.names)
    parties.reveal("a")
    with refused("a step of a sum that this site is not at"):
        parties.reveal("a")
    with refused("a step of a sum that this site is not at"):
        parties.sites["b"].confirm(parties.server.number, [0, 1, 2])  # another list than before


def test_of_each_peer_the_share_revealed_is_of_one_kind(parties):
    """Of its seed where it is in the sum, of its key where it has dropped out."""
    collected(parties, "abc")
    key, seed = parties.sites["d"]._sum.masking.private_bytes_raw(), parties.sites["d"]._sum.seed
    parties.confirm("abc")
    graph, revealed = parties.server.graph, {}
    for place, name in enumerate("abc"):
        shares = parties.reveal(name)
        if place in graph.holders(3):
            revealed[graph.row(3, place) + 1] = shares[graph.row(place, 3)]
    assert len(revealed) == graph.threshold
    assert join(revealed) == key != seed


def test_a_sum_is_not_asked_for_twice_nor_in_another_round(parties):
    parties.advertise(parties.names)
    with refused("a sum is asked for a second time"):
        parties.offer("a")
    parties.begin(round=2)
    parties.advertise(parties.names)
    parties.share(parties.names)
    with refused("keys were made for round 2 and verb 'vote'"):
        parties.sites["a"].mask(3, "vote", parties.terms, b"asked", votes(0, 0, 0, 0))
    with refused("keys were made for round 2 and verb 'vote'"):
        parties.sites["b"].mask(2, "train", parties.terms, b"asked", votes(0, 0, 0, 0))


def test_a_round_is_summed_again_over_the_same_sites_alone(parties):
    """Of two sums over different sites the difference would be what one site has sent."""
    collected(parties, "abc")
    parties.confirm("abc")
    parties.unmask("abc")
    parties.begin(round=1)
    collected(parties, "abc")
    [told] = parties.sites["a"].confirm(parties.server.number, [0, 1, 2])[1]
    assert "is made again" in told
    for member in "bcd":
        parties.begin(round=1)
        collected(parties)
        with refused("round 1 is summed again over other sites than before") if member != "d" else nullcontext():
            parties.sites[member].confirm(parties.server.number, [0, 1, 2, 3])
    parties.begin(round=2)
    collected(parties)
    parties.confirm(parties.names)


def test_what_a_site_has_signed_it_knows_after_it_was_started_again(tmp_path):
    found = []
    for members in ("abc", "abc", "abd"):
        parties = Parties(4)
        site = parties.sites["a"]
        site._journal = Journal(tmp_path / "sums.journal")
        collected(parties, members)
        try:
            told = site.confirm(parties.server.number, parties.server.members)[1]
            found.append(any("is made again" in one for one in told))
        except SecureSumError as error:
            assert "aggregation.secure.allow_cohort_change_on_retry = true" in error.fix
            assert "another run, that needs another run.seed and a new folder" in error.fix
            found.append("refused")
    assert found == [False, True, "refused"]


def test_an_owner_may_let_a_round_be_summed_over_others():
    parties = Parties(4, options=SecureSumConfig(allow_cohort_change_on_retry=True))
    for present in ("abc", "abd"):
        parties.begin(round=1)
        collected(parties, present)
        parties.confirm(present)
        assert parties.unmask(present).sites == list(present)


def test_what_was_signed_in_one_round_counts_for_nothing_in_another(parties):
    parties.advertise(parties.names)
    earlier = parties.server.roll.offers
    collected_in_first = parties.server
    parties.begin(round=2)
    parties.advertise(parties.names)
    names, offers = parties.server.roll.names, parties.server.roll.offers
    with refused("the signature that is said to be of site b"):
        parties.sites["a"].share(parties.server.number, names, (offers[0], earlier[1], *offers[2:]))
    with refused("a step of a sum that this site is not at"):
        parties.sites["b"].share(collected_in_first.number, names, earlier)


def test_signatures_of_an_earlier_sum_open_none(parties):
    collected(parties)
    parties.confirm(parties.names)
    signed = parties.server.signatures
    parties.unmask(parties.names)
    parties.begin(round=2)
    collected(parties)
    parties.confirm(parties.names)
    parties.server.signatures = signed
    with refused("or it has signed something else"):
        parties.reveal("a")


def test_too_few_are_not_enough_at_any_step():
    parties = Parties(4)
    parties.advertise(parties.names)
    names, offers = parties.server.roll.names, parties.server.roll.offers
    with refused("2 of 4 sites have keys, which are too few"):
        parties.sites["a"].share(parties.server.number, names[:2], offers[:2])
    parties.share("bcd")
    with refused("2 sites of 4 are left, fewer than the threshold 3"):
        parties.sites["b"].mask(1, "vote", {**parties.terms, "sharers": [1, 2]}, b"asked", votes(0, 0, 0, 0))
    again = Parties(4)
    collected(again)
    with refused("2 sites of 4 are left"):
        again.sites["a"].confirm(again.server.number, [0, 1])
    again.confirm("bcd")
    again.server.signatures = dict(list(again.server.signatures.items())[:2])
    with refused("2 sites of 4 are left"):
        again.reveal("b")


def test_a_sum_over_fewer_sites_than_the_experiment_has_is_refused():
    parties = Parties(4, cohort=4)
    with refused("a sum over 3 sites, where the experiment has 4 or more take part"):
        parties.sites["a"].advertise(1, "vote", 3, "number")
    with refused("a sum over 9 sites, where this site's roster has 4") as told:
        parties.sites["a"].advertise(1, "vote", 9, "other")
    assert "newer roster (@federation/roster.json)" in told.value.fix and "do not trust this server" in told.value.fix


def test_a_sum_over_other_sites_than_the_round_asks_is_refused():
    """A server would else have those that help it asked beside the same one site, round after round."""
    for among, why in {"abc": None, "abf": "among sites that this run does not ask in round 2"}.items():
        parties = Parties(6, cohort=3, drawn=lambda round: "abc" if round == 2 else "def")
        parties.names = [*among]
        parties.begin(round=2)
        parties.advertise(among)
        with refused(why) if why else nullcontext():
            parties.share(among)


def test_a_list_that_does_not_have_the_site_or_is_not_in_order_is_refused():
    for members, why in (([1, 2, 3], "does not have this one"), ([0, 2, 1], "not in order"), ([0, 1, 2, 9], "names")):
        parties = Parties(4)
        collected(parties)
        with refused(why):
            parties.sites["a"].confirm(parties.server.number, members)


def test_a_message_that_was_changed_on_its_way_is_noticed(parties):
    collected(parties)
    parties.confirm(parties.names)
    sealed, graph = parties.server.sealed_for("a"), parties.server.graph
    row = next(row for row, place in enumerate(graph.holders(0)) if place != 0)
    sealed[row] = bytes([sealed[row][0] ^ 1]) + sealed[row][1:]
    sender = parties.names[graph.holders(0)[row]]
    signed, vouchers = parties.server.signatures, parties.server.vouchers_for("a")
    with refused(f"what site {sender} has encrypted for this one was changed on its way"):
        parties.sites["a"].reveal(parties.server.number, list(signed), list(signed.values()), sealed, vouchers)


def test_a_roster_with_another_key_for_the_site_is_refused(parties):
    site = parties.sites["a"]
    with refused("the roster of sites does not have this site's identity key"):
        Masking("b", "run", site._key, parties.roster, Agreement(SecureSumConfig(), 4))


def test_the_owner_is_told_what_was_clipped():
    parties = Parties(3, like={"update": torch.zeros(2)})
    parties.advertise(parties.names)
    parties.share(parties.names)
    _, told = parties.sites["a"].mask(1, "vote", parties.terms, b"asked", {"update": torch.tensor([99.0, 1.0])})
    assert told == ["1 numbers of 'update' were clipped to ±16"]


def test_masks_are_fresh_in_each_sum(parties):
    seen = []
    for round in (1, 2):
        parties.begin(round)
        parties.advertise(parties.names)
        parties.share(parties.names)
        seen.append(parties.sites["a"].mask(round, "vote", parties.terms, b"asked", votes(1, 1, 1, 1))[0])
    assert not np.equal(*seen).any()

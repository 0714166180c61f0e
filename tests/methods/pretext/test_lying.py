"""What a server that lies gets from sites that vote: no more than ε is for."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from murmura import methods
from murmura.aggregation.config import AggregationConfig
from murmura.data.records import Document
from murmura.errors import RefusedError, RunError
from murmura.federation.engines.local import LocalEngine
from murmura.federation.membership import Membership
from murmura.federation.server.fleet import Fleet
from murmura.federation.server.ledger import Ledger
from murmura.federation.site.answer import Host
from murmura.federation.site.answered import Answered
from murmura.federation.site.identity import identity, read_roster, write_roster
from murmura.federation.site.masking import Masking
from murmura.federation.site.site import Site
from murmura.federation.site.store import SiteStore
from murmura.federation.summing import SecureSumming
from murmura.federation.wire.layout import Agreement, Layout
from murmura.federation.wire.messages import Ask, Failure
from murmura.methods.pretext.config import PretextConfig
from murmura.runs.names import ANSWERS_JOURNAL, ROSTER, site_folder
from murmura.streams import Stream

SECURE, ROUNDS = AggregationConfig(secure=True), 3
WHERE = torch.eye(4)


class Encoder:
    """To whom a text is one of the unit vectors."""

    def embed_apart(self, groups):
        return [np.eye(4, dtype=np.float32)[[int(text) for text in group]].reshape(-1, 4) for group in groups]


def fleet(folder, **options):
    """Four sites with three texts each, whose votes leave in shares of noise; one process of theirs."""
    config = PretextConfig(public="x", rounds=ROUNDS, noise="skellam", noise_multiplier=1.0, **options)
    method = methods.build(config, SECURE)
    names = [f"site-{k}" for k in range(4)]
    places = {name: folder / site_folder(name) for name in names}
    write_roster(folder / ROSTER, places)
    roster, agreement, sites = read_roster(folder / ROSTER), Agreement(SECURE.secure, len(names)), []
    for k, name in enumerate(names):
        place = places[name]
        masking = Masking(name, "run", identity(place), roster, agreement)
        records = [Document(str(number)) for number in (k, 0, 1)]
        kept, answered = SiteStore(folder / name, name), Answered(place / ANSWERS_JOURNAL)
        sites.append(Site(name, records, kept=kept, masking=masking, answered=answered))
    resources = SimpleNamespace(encoder=lambda option: Encoder())
    bench = SimpleNamespace(slots=4, device="cpu", resources=resources, training=None)
    verbs = [method, Membership("document", counts=False), SecureSumming()]
    host = Host(sites, verbs, bench, Stream(0), run="run", rounds=config.total_rounds)
    return Fleet(LocalEngine(host), verbs, Ledger(), Stream(0), run="run", agreement=agreement)


def vote(to, round=1):
    to.begin(round)
    return to.sum("vote", to.sites, like={"votes": torch.zeros(4, dtype=torch.int32)}, candidates=WHERE)["votes"]


def test_the_noise_of_one_round_cannot_be_averaged_out(tmp_path):
    """Of a run of three rounds a server gets three sums, whatever rounds it calls them."""
    to = fleet(tmp_path)
    sums = [vote(to) for _ in range(ROUNDS)]
    assert len({tuple(one.tolist()) for one in sums}) > 1
    for round in (1, 2, 3):
        with pytest.raises(RefusedError, match=r"'vote' is asked for once more, .* answered it 3 times"):
            vote(to, round)
        to.stores.rewind(0)
    assert "do not trust this server" in (tmp_path / "site-0" / "notes.txt").read_text(encoding="utf-8")


FORM = ["votes", None, "short tensor", [4]]


@pytest.mark.parametrize(
    ("entries", "spent"),
    [
        ([["votes", None, "tensor", [4]], FORM], False),  # the sum, and the sum of what lies within ±range
        ([FORM, FORM], False),
        ([FORM, ["votes", "a", "number", []]], False),
        ([FORM, ["texts", None, "whole number", []]], False),
        ([["votes", None, "tensor", [4]]], True),
        ([["votes", None, "whole tensor", [4]]], True),
        ([["votes", None, "number", []]], True),
        ([["votes", None, "short tensor", [2, 2]]], True),
    ],
)
def test_a_server_does_not_choose_in_what_form_votes_leave(tmp_path, monkeypatch, entries, spent):
    """Nothing leaves; and where it can be told without the vote, none of the site's answers is spent either."""
    to, left = fleet(tmp_path), []
    entered = Host._entered

    def as_engines_tell(host, ask, answer):
        found = entered(host, ask, answer)
        left.append((ask.verb, found))
        return Failure(found.site, found.why) if isinstance(found, Failure) else found

    monkeypatch.setattr(Host, "_entered", as_engines_tell)
    monkeypatch.setattr(Layout, "to_payload", lambda layout: {"entries": entries})
    with pytest.raises(RunError, match="only 0 of 4 sites"):
        vote(to)
    answers = [answer for verb, answer in left if verb == "vote"]
    assert [one.why for one in answers if isinstance(one, Failure)] == ["SecureSumError"] * 4 and len(answers) == 4
    assert "do not trust this server" in (tmp_path / "site-0" / "notes.txt").read_text(encoding="utf-8")
    assert (tmp_path / site_folder("site-0") / ANSWERS_JOURNAL).exists() == spent


def test_a_run_that_was_killed_and_resumed_votes_once_more_and_owners_are_told(tmp_path):
    to = fleet(tmp_path)
    vote(to)
    vote(to, 2)
    resumed = fleet(tmp_path)  # the server had not saved round 2
    vote(resumed, 2)
    vote(resumed, 3)
    with pytest.raises(RefusedError):
        vote(resumed, 3)
    told = (tmp_path / "site-0" / "notes.txt").read_text(encoding="utf-8")
    assert "'vote' is answered for the 4th time, as the site was told to answer again" in told


@pytest.mark.parametrize(
    "candidates",
    [
        torch.tensor([[1.0, 0, 0, 0], [float("inf"), 0, 0, 0]]),
        torch.tensor([[1.0, 0, 0, 0], [float("nan"), 0, 0, 0]]),
        torch.tensor([[1.0, 0, 0, 0], [3e38, 3e38, 3e38, 3e38]]),
        torch.zeros(0, 4),
        torch.zeros(4),
        torch.eye(4, dtype=torch.float64),
    ],
)
@pytest.mark.parametrize("verb", ["vote", "report_distance"])
def test_whether_a_site_fails_does_not_depend_on_its_texts(tmp_path, candidates, verb):
    """With such numbers it did, as far as one half of a coordinate's values overflow: that would be a vote without
    noise."""
    to = fleet(tmp_path, distance=True)
    terms = {"sum": "x", "layout": {"entries": [FORM]}} if verb == "vote" else None
    asked = Ask(verb, 1, {"candidates": candidates}, run="run", masked=terms)
    answers = list(to.engine.host.answer(asked, to.sites))
    assert {one.why for one in answers if isinstance(one, Failure)} == {"RefusedError"} and len(answers) == 4

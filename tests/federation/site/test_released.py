"""What has left a site is in its journal before it leaves."""

import hashlib
import json
from types import SimpleNamespace

import pytest
import torch

from murmura.errors import CheckpointError, PrivacyError, RunError
from murmura.federation.method import Method
from murmura.federation.site import released as module
from murmura.federation.site.answer import Host
from murmura.federation.site.released import ReleaseJournal
from murmura.federation.site.store import SiteStore, released
from murmura.federation.traits import Traits
from murmura.federation.wire.layout import MASKED
from murmura.federation.wire.messages import Ask, Failure, Reply
from murmura.federation.wire.releases import VOUCHED, Count, DifferentialPrivacy, SecureSum, Votes, Weights, verb
from murmura.privacy.journal import Journal
from murmura.streams import Stream
from tests.federation.world import make_sites

NOISY = DifferentialPrivacy("record", "site", "noise on each vote")


class Voting(Method):
    """Replies with a tensor, a state and a number."""

    traits = Traits(label="Voting")

    def lead(self, server, fleet):
        """Nothing to do."""

    @verb(releases={"votes": Votes("votes", NOISY), "adapter": Weights(), "examples": Count()}, slots=False)
    def vote(self, cohort, ask):
        states = [{"a": torch.full((2, 2), float(size)), "b": torch.ones(1)} for size in cohort.sizes]
        votes = [torch.tensor([size, ask.round], dtype=torch.int64) for size in cohort.sizes]
        return cohort.reply(votes=votes, adapter=states, examples=cohort.sizes)

    @verb(releases={"examples": Count()}, slots=False)
    def fall(self, cohort, ask):
        raise ValueError("patient 12 has the flu")

    @verb(releases={}, slots=False)
    def repeat(self, cohort, ask):
        raise RunError(f"there is no {ask['text']}")


@pytest.fixture
def host(tmp_path):
    sites = make_sites(3, 2, folder=tmp_path)
    for site in sites:
        site.released = ReleaseJournal(site.kept.released)
    return Host(sites, [Voting(None)], SimpleNamespace(slots=1), Stream(0), run="")


def lines(host, site="site-0"):
    return list(released(host.sites[site].kept.folder))


def ask(host, verb="vote", round=1, sites=None, **options):
    return list(host.answer(Ask(verb, round, **options), list(host.sites) if sites is None else sites))


def test_each_answer_is_a_line_with_what_left_as_it_left(host):
    first, _ = ask(host)
    [line] = lines(host)
    assert (line["run"], line["round"], line["verb"]) == ("", 1, "vote")
    found = {field.pop("field"): field for field in line["fields"]}
    assert {name: (one["kind"], one["bytes"]) for name, one in found.items()} == {
        "votes": ("votes", 2 * 8),
        "adapter": ("weights", 5 * 4),
        "examples": ("count", len('{"examples": 3}')),
    }
    assert found["adapter"]["protection"] is None and found["votes"]["protection"]["added_by"] == "site"
    # By hand, as messages.digest has it: name and content, each behind its length.
    content = b"torch.int64 (2,) " + hashlib.sha256(first["votes"].numpy().tobytes()).digest()
    whole = hashlib.sha256(b"".join(len(one).to_bytes(8) + one for one in (b"votes", content)))
    assert found["votes"]["sha256"] == whole.hexdigest()
    assert lines(host, "site-1") and len(lines(host, "site-1")) == 1


def test_an_answer_is_in_the_journal_before_it_leaves_and_one_that_nobody_took_is_not(host):
    answers = host.answer(Ask("vote", 1), list(host.sites))
    next(answers)
    assert len(lines(host)) == 1 and lines(host, "site-1") == []
    answers.close()
    assert lines(host, "site-1") == []


def test_a_voucher_beside_a_masked_vector_is_no_second_one():
    """It leaves as it is: no record and no mask is in it."""
    kept, terms = Journal(), {"layout": {"entries": [["examples", None, "whole number", []]]}}
    reply = Reply("site-0", {MASKED: torch.ones(3, dtype=torch.int32), VOUCHED: torch.ones(1, 64, dtype=torch.uint8)})
    ReleaseJournal(kept).enter(Ask("vote", 1, masked=terms), reply, {"examples": Count()}, SecureSum("by masks"))
    vector, voucher = kept.lines[0]["fields"]
    assert (vector["field"], vector["kind"], vector["holds"][0]["field"]) == (MASKED, "masked", "examples")
    assert (voucher["field"], voucher["kind"], voucher["protection"]) == (VOUCHED, "keys", None)
    assert "holds" not in voucher and voucher["bytes"] == 64


def test_what_cannot_be_entered_does_not_leave(host, monkeypatch):
    journal = host.sites["site-0"].kept.released

    def full(line):
        raise CheckpointError("the disk is full")

    monkeypatch.setattr(journal, "append", full)
    failed, other = ask(host)
    assert isinstance(failed, Failure) and failed.why == "CheckpointError"
    assert isinstance(other, Reply)
    ask(host, "fall")
    monkeypatch.undo()
    ask(host, "fall")
    assert [line["failed"] for line in lines(host)] == ["ValueError"], "what could not be entered never is"


def test_an_answer_that_is_none_is_entered_with_its_reason_and_the_same_one_once(host):
    for round in (1, 2):
        ask(host, "fall", round)
        ask(host, "steal", round)
    assert [(line["verb"], line["failed"]) for line in lines(host)] == [
        ("fall", "ValueError"),
        ("steal", "RefusedError"),
    ]
    assert "flu" in lines(host)[0]["why"] and "steal" in lines(host)[1]["why"]


def test_what_a_server_has_asked_with_does_nothing_on_the_owners_terminal(host):
    ask(host, "vote\nRound 3: all is well\x1b[2J", run="x' asks\nRound 3: all is well\x1b[2J")
    ask(host, run="x' asks\nRound 3: all is well\x1b[2J")
    ask(host, "repeat", shared={"text": "x\nRound 3: all is well\x1b[2J"})
    for line in lines(host):
        assert all(str(value).isprintable() for value in line.values()), line


def test_a_server_cannot_fill_the_disk_with_refusals(host, monkeypatch):
    monkeypatch.setattr(module, "_NOTED", 3)
    for number in range(9):
        ask(host, f"steal {number}" + "x" * 10_000, run="y" * 10_000)
    assert len(lines(host)) == 3
    assert all(len(line["verb"]) == len(line["run"]) == module._WIDTH for line in lines(host))


def test_no_later_round_that_is_undone_takes_anything_out(host):
    ask(host, round=1)
    site = host.sites["site-0"]
    site.commit(1)
    ask(host, round=2)
    site.commit(2)
    site.rewind(1)
    ask(host, round=2)
    again = SiteStore(site.kept.folder, site.name)
    assert [line["round"] for line in again.released.lines] == [1, 2, 2]


def test_the_first_line_that_was_changed_is_named_and_those_before_it_are_read(host):
    for round in (1, 2, 3):
        ask(host, round=round)
    folder = host.sites["site-0"].kept.folder
    path = folder / "released.journal"
    kept = path.read_text()
    path.write_text(kept.replace('"round": 2', '"round": 4'))
    read = released(folder)
    assert next(read)["round"] == 1
    with pytest.raises(PrivacyError) as error:
        next(read)
    assert error.value.where == f"{path}:2"
    path.write_text("".join(line for line in kept.splitlines(keepends=True) if '"round": 2' not in line))
    with pytest.raises(PrivacyError):
        list(released(folder))


def test_lines_that_were_cut_off_are_missed_once_the_site_has_kept_a_round(host):
    for round in (1, 2):
        ask(host, round=round)
    host.sites["site-0"].commit(2)
    folder = host.sites["site-0"].kept.folder
    path = folder / "released.journal"
    path.write_text(path.read_text().splitlines(keepends=True)[0])
    with pytest.raises(PrivacyError, match="has 1 lines, and had 2"):
        list(released(folder))
    with pytest.raises(PrivacyError):
        SiteStore(folder, "site-0")


def test_where_nothing_has_left_there_is_no_journal(host):
    folder = host.sites["site-0"].kept.folder
    assert not (folder / "released.journal").exists() and list(released(folder)) == []


def test_what_a_line_holds_is_json_that_reads_back(host):
    ask(host)
    text = (host.sites["site-0"].kept.folder / "released.journal").read_text()
    assert json.loads(text.partition(" ")[2]) == lines(host)[0]

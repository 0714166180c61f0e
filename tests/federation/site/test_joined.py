"""A site knows which runs it has answered, whatever becomes of its process, and asks its owner before another one."""

from types import SimpleNamespace

import pytest

from murmura.errors import RefusedError
from murmura.federation.membership import Membership
from murmura.federation.site.answer import Host
from murmura.federation.site.answered import Answered
from murmura.federation.site.joined import Joined
from murmura.federation.site.site import Site
from murmura.federation.site.store import SiteStore
from murmura.federation.wire.messages import Ask, Reply
from murmura.federation.wire.releases import Count, Verbs, verb
from murmura.privacy.budget import ACCOUNT, Budget
from murmura.streams import Stream


class Counting(Verbs):
    """A method whose answers depend on records."""

    @verb(releases={"records": Count()}, slots=False)
    def count(self, cohort, ask):
        return cohort.reply(records=cohort.sizes)


class Planned(Counting):
    """A method that asks once."""

    def answers(self, name):
        return 1


class Once:
    """An owner who lets one run be answered."""

    experiment = "x"

    def objection(self, before):
        return "one run is enough" if before else None

    def exceeded(self, before):
        return "that was enough" if len(before) > 1 else None

    def noted(self):
        return {"noted": True}


def started(folder, owner):
    """A process of the site: what it answers when a run asks it to join, and then for something."""
    kept = SiteStore.held(folder, "north")
    site = Site("north", ["record"], kept=kept, runs=Joined(folder / "runs.journal", owner))
    runtime = SimpleNamespace(slots=1, training=None)
    host = Host([site], [Counting(), Membership("instruction", counts=False)], runtime, Stream(0), run=None)

    def asked(run, verb="join"):
        told = {"experiment": "", "resumed": False} if verb == "join" else {}
        [answer] = host.answer(Ask(verb, 1, told, run=run), ["north"])
        return "answered" if isinstance(answer, Reply) else answer.why

    return asked, host


def test_an_id_that_is_none_joins_no_site(tmp_path):
    asked, host = started(tmp_path / "north", Once())
    assert asked(["first"]) == "RefusedError" and host.sites["north"].run is None
    assert [asked("first"), asked("first", "count")] == ["answered", "answered"]
    host.close()


def test_a_process_that_was_started_again_answers_the_run_that_it_has_answered_and_no_other(tmp_path):
    asked, host = started(tmp_path / "north", Once())
    assert [asked("first"), asked("first", "count"), asked("second")] == ["answered", "answered", "RefusedError"]
    host.close()
    asked, host = started(tmp_path / "north", Once())
    assert [asked("second"), asked("second", "count")] == ["RefusedError", "RefusedError"]
    assert [asked("first"), asked("first", "count")] == ["answered", "answered"]
    host.close()
    told = [line for line in (tmp_path / "north" / "notes.txt").read_text().splitlines() if "is enough" in line]
    assert len(told) == 2  # of each process once
    assert all("for the site's owner to decide" in one and "do not trust this server" not in one for one in told)


def test_a_process_joins_no_second_run_and_its_owner_is_told_what_to_do(tmp_path):
    """It stays with the first, whatever a server asks: what lacks is the owner's word, or a new process."""
    asked, host = started(tmp_path / "north", Once())
    notes = tmp_path / "north" / "notes.txt"
    assert [asked("first"), asked("second"), asked("first", "count")] == ["answered", "RefusedError", "answered"]
    assert "start the site again: `murmura site start`" in notes.read_text() and "one run" not in notes.read_text()
    assert [asked("second"), asked("first", "count")] == ["RefusedError", "answered"]
    assert "one run is enough. That is for the site's owner to decide" in notes.read_text()
    host.close()


def test_a_run_that_was_joined_and_came_to_nothing_is_none(tmp_path):
    for run in ("first", "second"):
        asked, host = started(tmp_path / "north", Once())
        assert [asked(run), asked(run, "commit")] == ["answered", "answered"]
        host.close()


def test_of_each_further_run_that_the_owner_allows_they_are_told(tmp_path):
    always = SimpleNamespace(experiment="x", objection=lambda before: None, noted=dict)
    told = [Joined(tmp_path / "runs", always).enter(run) for run in ("a", "a", "b", "a", "c")]
    assert [bool(one) for one in told] == [False, False, True, False, True]
    assert "run 'c' is number 3" in told[-1]


def test_of_two_runs_that_ask_at_once_in_two_folders_one_is_answered(tmp_path):
    """Whichever enters first: the other counts it, though it came after the other had been asked."""
    owners = Once(), Once()
    first, second = (
        Joined(tmp_path / f"{k}.journal", owner, Budget(tmp_path / "accounts", "north", "records", None, 1e-5))
        for k, owner in enumerate(owners)
    )
    first.require("a")
    owners[0].noted = lambda: {"noted": not second.enter("b")}
    with pytest.raises(RefusedError, match="one run is enough"):
        first.enter("a")
    assert not (tmp_path / "0.journal").exists()
    [account] = (tmp_path / "accounts").glob(f"*/{ACCOUNT}")
    assert len(account.read_text().splitlines()) == 1


def test_a_server_that_gives_two_runs_one_id_has_one_of_them_answered(tmp_path):
    """Where they are of two experiments: as of a run that goes on with other options, its owner is asked."""
    Joined(tmp_path / "runs", Once()).enter("a")
    other = Once()
    other.experiment = "y"
    with pytest.raises(RefusedError):
        Joined(tmp_path / "runs", other).enter("a")


def test_an_answer_that_is_refused_uses_up_no_consent(tmp_path):
    """It tells nothing of records."""
    asked, host = started(tmp_path / "north", Once())
    site = host.sites["north"]
    site.budget = SimpleNamespace(reserve=None, lose=lambda run, why: (_ for _ in ()).throw(RefusedError("no room")))
    assert [asked("first"), asked("first", "count")] == ["answered", "RefusedError"]
    assert not (tmp_path / "north" / "runs.journal").exists()
    host.close()


def test_an_answer_more_than_the_run_was_planned_to_ask_for_counts_as_another_run(tmp_path):
    """The owner has allowed it; what the first promises does not cover it."""
    runs = Joined(tmp_path / "runs", Once())
    assert not runs.enter("a") and not runs.enter("a", more=True) and not runs.enter("a")
    first, second = (line.partition(" ")[2] for line in (tmp_path / "runs").read_text().splitlines())
    assert first == second
    with pytest.raises(RefusedError, match="that was enough"):
        runs.enter("a", more=True)
    assert len((tmp_path / "runs").read_text().splitlines()) == 2


def test_a_site_that_is_started_again_notes_the_answer_that_is_more_than_planned(tmp_path):
    for again, expected in ((False, "answered"), (False, "RefusedError"), (True, "answered")):
        asked, host = started(tmp_path / "north", Once())
        host.verbs[0] = Planned()
        host.sites["north"].answered = Answered(tmp_path / "answers", again=again)
        assert [asked("first"), asked("first", "count")] == ["answered", expected]
        host.close()
    assert len((tmp_path / "north" / "runs.journal").read_text().splitlines()) == 2


def test_of_an_answer_more_that_is_refused_after_all_its_owner_reads_that_alone(tmp_path):
    owner = Once()
    owner.exceeded = lambda before: "there is no room for it"
    for again, expected in ((False, "answered"), (True, "RefusedError")):
        asked, host = started(tmp_path / "north", owner)
        host.verbs[0] = Planned()
        host.sites["north"].answered = Answered(tmp_path / "answers", again=again)
        assert [asked("first"), asked("first", "count")] == ["answered", expected]
        host.close()
    notes = (tmp_path / "north" / "notes.txt").read_text()
    assert "there is no room for it" in notes and "is answered for the" not in notes


def test_where_nobody_is_asked_nothing_is_noted(tmp_path):
    runs = Joined(tmp_path / "runs")
    assert runs.enter("a") == runs.enter("b") == "" and not list(tmp_path.iterdir())


def test_what_is_refused_is_not_noted(tmp_path):
    Joined(tmp_path / "runs", Once()).enter("a")
    for _ in range(2):
        with pytest.raises(RefusedError):
            Joined(tmp_path / "runs", Once()).enter("b")

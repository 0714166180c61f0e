"""Workers that are spoken to in bytes, where they do more than every engine does."""

from functools import partial
from multiprocessing import Pipe
from pathlib import Path

import pytest

from murmura.errors import CheckpointError, RunError
from murmura.federation.engines import worker
from murmura.federation.engines.processes import ProcessesEngine
from murmura.federation.engines.worker import Worker, relay_to
from murmura.federation.membership import Membership
from murmura.federation.server.fleet import Fleet
from murmura.federation.server.ledger import Ledger
from murmura.federation.site.answer import Host
from murmura.federation.wire.frames import ask_frame, frame, unframe
from murmura.federation.wire.messages import Ask
from murmura.federation.wire.releases import verb
from murmura.progress import bar, collect_phases, phase
from murmura.streams import Stream
from tests.federation.engines.wired import Inbox, ThreadProcess, Wired
from tests.federation.engines.working import ANSWER, Working
from tests.federation.world import connect, make_sites, make_workbench, verbs_of


def test_what_went_wrong_is_said_at_the_site(tokenizer, capfd):
    engine = connect(Wired, make_sites(1, 2), Working(None), make_workbench(tokenizer, slots=2), Stream(0))
    list(engine.ask(Ask("break_one", 1), engine.sites))
    assert "flu" in capfd.readouterr().err
    engine.close()


def test_what_a_server_elsewhere_has_a_site_say_is_one_line_that_does_nothing(tokenizer, capfd):
    class Repeating(Working):
        @verb(releases={})
        def repeat(self, cohort, ask):
            raise (RunError if ask["known"] else ValueError)(ask["text"])

    host = Host(make_sites(1), [Repeating(None)], make_workbench(tokenizer), Stream(0), run="")
    for known in (True, False):
        asked = Ask("repeat", 1, {"known": known, "text": "none\nRound 3: all is well\x1b[2J"})
        list(Worker(None, host).handle(ask_frame(asked, ["site-0"], number=1)))
        said = capfd.readouterr().err
        assert "none\\nRound 3" in said and "\x1b" not in said and "\nRound 3" not in said


def test_a_round_that_a_busy_worker_could_not_keep_after_all_is_told(tokenizer, tmp_path, monkeypatch):
    sites, method = make_sites(1, folder=tmp_path), Working(None)
    engine = connect(Wired, sites, method, make_workbench(tokenizer), Stream(0))
    fleet, commit = Fleet(engine, verbs_of(method), Ledger(), Stream(0), seconds=ANSWER / 4), sites[0].kept.commit
    monkeypatch.setattr(sites[0].kept, "commit", lambda round, store: full() if round == 1 else commit(round, store))
    fleet.begin(1)
    list(engine.ask(Ask("dawdle", 1, seconds=ANSWER / 4), ["site-0"]))
    assert fleet.stores.commit() == ["site-0"]
    fleet.begin(2)
    fleet.seconds = None
    assert fleet.stores.commit() == []
    assert fleet.events == ["site site-0 has not kept round 1 after all (CheckpointError)"]
    engine.close()


def full():
    raise CheckpointError("the disk is full")


@pytest.mark.parametrize("counts", [True, False])
def test_how_far_sites_are_is_told_where_they_tell_how_many_records_they_have(tokenizer, monkeypatch, counts):
    verbs = [Working(None), Membership("instruction", counts=counts)]
    host = Host(make_sites(1), verbs, make_workbench(tokenizer), Stream(0), run="")
    player, (ours, theirs) = Worker(lambda folders: host), Pipe()
    monkeypatch.setattr("murmura.progress._relay", None)
    relay_to(Inbox(theirs), player)
    list(player.handle(frame({"folders": [], "number": 1})))
    with phase("train"), bar("patients", 1) as handle:
        handle.advance()
    assert ours.poll() == counts
    while ours.poll():
        assert unframe(ours.recv_bytes())[0]["told"]["phase"] == "train"


@pytest.mark.parametrize("counts", [True, False])
def test_memory_is_told_and_phases_are_where_sites_tell_how_many_records_they_have(tokenizer, monkeypatch, counts):
    monkeypatch.setattr(worker, "peak_memory", lambda device, mapped: 1000)
    verbs = [Working(None), Membership("instruction", counts=counts)]
    engine = Wired(Host(make_sites(1, 2), verbs, make_workbench(tokenizer), Stream(0), run=""))
    phases = collect_phases()
    list(engine.ask(Ask("dawdle", 1), engine.sites))
    assert (phases.seconds.get("train", 0) > 0) == counts and bool(phases.seconds) == counts
    assert phases.memory == 2000
    engine.close()


def test_a_worker_that_cannot_be_set_up_is_told_with_its_sites():
    def broken(folders):
        raise ValueError("no")

    with pytest.raises(RunError) as error:
        ProcessesEngine([ThreadProcess(broken)], {"a": Path("a"), "b": Path("b")})
    assert error.value.where == "sites a, b"


@pytest.mark.parametrize("workers", [2, 3])
def test_no_protected_site_keeps_others_out_of_a_sum_by_ending_their_worker(tokenizer, workers):
    """As the system does for want of memory, where one has long records."""
    protected = partial(Wired, workers=workers, protected=True)
    engine = connect(protected, make_sites(1, 2, 1), Working(None), make_workbench(tokenizer), Stream(0))
    gone = engine.kill("site-0")
    asked = Ask("dawdle", 1)
    if len(gone) == 1:
        assert [type(one).__name__ for one in engine.ask(asked, engine.sites)] == ["Failure", "Reply", "Reply"]
    else:
        with pytest.raises(RunError, match=r"2 sites do not answer any more.*\(run\.workers = 3\)"):
            list(engine.ask(asked, engine.sites))
    engine.close()

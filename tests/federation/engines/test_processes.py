"""Workers that are spoken to in bytes: what comes back, in which order, and what happens when one dies."""

from __future__ import annotations

import threading
import time
from functools import partial
from multiprocessing import Pipe

import pytest
import torch

from murmura.errors import CheckpointError, RunError
from murmura.federation.engines.processes import ProcessesEngine
from murmura.federation.engines.worker import Worker, relay_to
from murmura.federation.joining import Joining
from murmura.federation.method import Method
from murmura.federation.site.answer import Host
from murmura.federation.wire.frames import frame, unframe
from murmura.federation.wire.messages import Ask, Failure, Reply
from murmura.federation.wire.releases import Count, Metric, Weights, verb
from murmura.progress import bar, collect_phases, phase
from murmura.streams import Stream
from tests.federation.engines.wired import Inbox, ThreadProcess, Wired
from tests.federation.world import connect, make_sites, make_workbench

GATE = threading.Event()
IMPATIENT = partial(Wired, workers=1, patience=0.05)  # one: another may be done by then, or not


class Working(Method):
    label = "Working"

    def lead(self, server, fleet):
        """Nothing to do."""

    @verb(releases={"adapter": Weights(), "examples": Count(), "lr": Metric("rate")})
    def train(self, cohort, ask):
        with phase("train"):
            adapters = cohort.given(ask, "adapter")
        for adapter in adapters:
            adapter["w"].add_(100)  # a verb that spoils what it got
        for site in cohort.sites:
            site.store["seen"] = [*site.store.get("seen", []), ask.round]
        sent = [{"w": torch.full((2,), float(size))} for size in cohort.sizes]
        return cohort.reply(adapter=sent, examples=cohort.sizes, lr=[ask["lr"]] * len(cohort.sites))

    @verb(releases={"examples": Count()})
    def break_one(self, cohort, ask):
        if any(site.name == "site-1" for site in cohort.sites):
            raise ValueError("patient 12 has the flu")
        return cohort.reply(examples=cohort.sizes)

    @verb(releases={"examples": Count()})
    def leak(self, cohort, ask):
        return cohort.reply(records=[len(site.records) for site in cohort.sites])

    @verb(releases={"examples": Count()})
    def wait(self, cohort, ask):
        GATE.wait(20)
        return cohort.reply(examples=cohort.sizes)


@pytest.fixture
def engine(tokenizer):
    GATE.clear()
    made = connect(Wired, make_sites(1, 2, 3, 4, 5), Working(None), make_workbench(tokenizer, slots=2), Stream(0))
    yield made
    GATE.set()
    made.close()


def processes(engine):
    return [line.process for line in engine._lines]


def test_replies_come_in_the_order_of_the_sites(engine):
    adapter = {"w": torch.zeros(2)}
    replies = list(engine.ask(Ask("train", 1, {"adapter": adapter, "lr": 0.5}), ["site-4", "site-1", "site-0"]))
    assert [reply.site for reply in replies] == ["site-4", "site-1", "site-0"]
    assert [reply["adapter"]["w"].tolist() for reply in replies] == [[5, 5], [2, 2], [1, 1]]
    assert {reply["lr"] for reply in replies} == {0.5}
    assert adapter["w"].tolist() == [0, 0]  # nothing crossed by reference


def test_a_site_that_fails_is_named_with_a_class_and_nothing_else(engine, capfd):
    answers = list(engine.ask(Ask("break_one", 1), engine.sites))
    failed = [answer for answer in answers if isinstance(answer, Failure)]
    assert {answer.why for answer in failed} == {"ValueError"}
    assert "site-1" in {answer.site for answer in failed} and "site-0" not in {answer.site for answer in failed}
    assert "flu" in capfd.readouterr().err  # at the site


def test_what_is_not_declared_does_not_leave(engine):
    assert {answer.why for answer in engine.ask(Ask("leak", 1), engine.sites)} == {"UndeclaredReleaseError"}


def test_nothing_of_a_failure_crosses_but_its_class(engine, monkeypatch):
    crossed = bytearray()
    monkeypatch.setattr(
        "murmura.federation.engines.processes.unframe", lambda message: crossed.extend(message) or unframe(message)
    )
    for name in ("break_one", "leak"):
        list(engine.ask(Ask(name, 1), engine.sites))
    assert b"ValueError" in crossed and b"UndeclaredReleaseError" in crossed
    assert not any(word in crossed for word in (b"patient", b"flu", b"records", b"Traceback"))


def test_another_run_is_not_answered(engine):
    assert {answer.why for answer in engine.ask(Ask("train", 1, {"lr": 1}, run="other"), engine.sites)} == {
        "RefusedError"
    }


def test_a_worker_that_dies_is_noticed_at_once_and_its_sites_named(engine):
    replies = engine.ask(Ask("wait", 1), ["site-0", "site-1"])
    processes(engine)[0].kill()
    GATE.set()
    first, second = replies
    assert first == Failure("site-0", "worker 0 was killed by signal 9")
    assert isinstance(second, Reply) and second.site == "site-1"
    assert engine.commit(1) == dict.fromkeys(["site-0", "site-2", "site-4"], "worker 0 was killed by signal 9")
    later = list(engine.ask(Ask("break_one", 2), ["site-2", "site-3"]))
    assert later[0] == Failure("site-2", "worker 0 was killed by signal 9")


def test_a_worker_that_is_busy_has_lost_nothing_and_keeps_the_round_afterwards(tokenizer, tmp_path):
    GATE.clear()
    sites = make_sites(1, folder=tmp_path)
    engine = connect(IMPATIENT, sites, Working(None), make_workbench(tokenizer), Stream(0))
    list(engine.ask(Ask("train", 1, {"adapter": {"w": torch.zeros(2)}, "lr": 1.0}), ["site-0"]))
    assert list(engine.ask(Ask("wait", 1, seconds=0.05), ["site-0"])) == [Failure("site-0", "time is up")]
    assert engine.commit(1) == {
        "site-0": "worker 0 is still busy, and lets them keep it afterwards, if the run goes on so long"
    }
    GATE.set()
    engine.rewind(1)  # it waits until all that was asked before is done
    assert sites[0].store == {"seen": [1]}
    engine.close()


@pytest.mark.parametrize("dies", [False, True])
def test_a_round_that_a_late_worker_could_not_keep_after_all_is_told_once(tokenizer, tmp_path, monkeypatch, dies):
    GATE.clear()
    sites = make_sites(1, folder=tmp_path)
    engine = connect(IMPATIENT, sites, Working(None), make_workbench(tokenizer), Stream(0))
    list(engine.ask(Ask("wait", 1, seconds=0.05), ["site-0"]))
    engine.commit(1)
    assert engine.unkept() == {}
    commit, why = sites[0].kept.commit, CheckpointError.__name__
    monkeypatch.setattr(sites[0].kept, "commit", lambda round, store: full() if round == 1 else commit(round, store))
    if dies:
        processes(engine)[0].kill()
        why = "worker 0 was killed by signal 9"
    GATE.set()
    list(engine.ask(Ask("break_one", 2), ["site-0"]))
    assert engine.unkept() == {"site-0": {1: why}} and engine.unkept() == {}
    engine._patience = None
    assert engine.commit(2).keys() == ({"site-0"} if dies else set())
    engine.close()


@pytest.mark.parametrize("catches_up", [False, True])
def test_after_the_last_round_a_late_worker_is_waited_for_and_what_it_has_not_kept_by_then_is_told(
    tokenizer, tmp_path, monkeypatch, catches_up
):
    GATE.clear()
    sites = make_sites(1, folder=tmp_path)
    engine = connect(IMPATIENT, sites, Working(None), make_workbench(tokenizer), Stream(0))
    list(engine.ask(Ask("wait", 1, seconds=0.05), ["site-0"]))
    engine.commit(1)
    if catches_up:
        engine._patience = 5
        [line] = engine._lines
        rest = line.rest

        def once_more(number, until):
            if until - time.monotonic() > engine._patience:  # as long as after any other round, and more
                GATE.set()
            return rest(number, until)

        monkeypatch.setattr(line, "rest", once_more)
    why = "worker 0 is still busy, and nobody waits for it any longer"
    assert engine.commit(2, last=True) == ({} if catches_up else {"site-0": why})
    assert engine.unkept() == ({} if catches_up else {"site-0": {1: why}})
    GATE.set()
    engine.close()


def full():
    raise CheckpointError("the disk is full")


def test_an_answer_that_comes_too_late_is_not_taken_for_a_later_ones(engine):
    [late] = engine.ask(Ask("wait", 1, seconds=0.05), ["site-0"])
    assert late == Failure("site-0", "time is up")
    GATE.set()
    [reply] = engine.ask(Ask("train", 2, {"adapter": {"w": torch.zeros(2)}, "lr": 2.0}), ["site-0"])
    assert reply["lr"] == 2.0


@pytest.mark.parametrize("counts", [True, False])
def test_how_far_sites_are_is_told_where_they_tell_how_many_records_they_have(tokenizer, monkeypatch, counts):
    verbs = [Working(None), Joining("instruction", counts=counts)]
    host = Host(make_sites(1), verbs, make_workbench(tokenizer), Stream(0))
    worker, (ours, theirs) = Worker(lambda told: host, lambda device: 0), Pipe()
    monkeypatch.setattr("murmura.progress._relay", None)
    relay_to(Inbox(theirs), worker)
    list(worker.handle(frame({"do": "assemble", "number": 1})))
    with phase("train"), bar("patients", 1) as handle:
        handle.advance()
    assert ours.poll() == counts
    while ours.poll():
        assert unframe(ours.recv_bytes())[0]["told"]["phase"] == "train"


@pytest.mark.parametrize("counts", [True, False])
def test_memory_is_told_and_phases_are_where_sites_tell_how_many_records_they_have(tokenizer, counts):
    verbs = [Working(None), Joining("instruction", counts=counts)]
    engine = Wired(Host(make_sites(1, 2), verbs, make_workbench(tokenizer), Stream(0)))
    phases = collect_phases()
    list(engine.ask(Ask("train", 1, {"adapter": {"w": torch.zeros(2)}, "lr": 1.0}), engine.sites))
    assert (phases.seconds.get("train", 0) > 0) == counts and bool(phases.seconds) == counts
    assert engine.memory == 2000
    engine.close()


def test_stores_stay_with_the_workers_and_go_back_there(tokenizer, tmp_path):
    sites = make_sites(1, 2, 3, folder=tmp_path)
    engine = connect(Wired, sites, Working(None), make_workbench(tokenizer), Stream(0))
    for round in (1, 2, 3):
        list(engine.ask(Ask("train", round, {"adapter": {"w": torch.zeros(2)}, "lr": 1.0}), engine.sites))
        engine.commit(round)
    engine.rewind(2)
    assert [site.store["seen"] for site in sites] == [[1, 2]] * 3


@pytest.mark.parametrize("error", [CheckpointError("damaged"), RunError("it may not be read"), TypeError("no")])
def test_only_what_is_damaged_or_gone_lets_a_run_give_up_a_round(engine, monkeypatch, error):
    def rewind(host, round):
        raise error

    monkeypatch.setattr("murmura.federation.site.answer.Host.rewind", rewind)
    with pytest.raises(RunError, match=rf"worker 0 could not go back to round 2 \({type(error).__name__}\)") as told:
        engine.rewind(2)
    assert isinstance(told.value, CheckpointError) == isinstance(error, CheckpointError)


def test_a_worker_that_cannot_be_set_up_is_told_with_its_sites():
    def assemble(told):
        raise ValueError("no")

    with pytest.raises(RunError, match=r"worker 0 could not be set up \(ValueError\)") as error:
        ProcessesEngine([ThreadProcess(assemble)]).set_up([(["a", "b"], {})], ["a", "b"])
    assert error.value.where == "sites a, b"

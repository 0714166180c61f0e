"""What every engine does. A new one joins the fixture; where something crosses, it has
``crossing(monkeypatch)``, bytes that grow with all that comes from sites, and ``kill(site)``."""

import pytest
import torch

from murmura.errors import CheckpointError
from murmura.federation.server.fleet import Fleet
from murmura.federation.server.ledger import Ledger
from murmura.federation.wire.messages import LATE, Ask, Failure, Reply
from murmura.streams import Stream
from tests.federation.engines.flowered import Flowered
from tests.federation.engines.working import ANSWER, Working
from tests.federation.world import ENGINES, connect, make_sites, make_workbench, verbs_of

ADAPTER = {"w": torch.zeros(2)}


@pytest.fixture(scope="module")
def runtime(tokenizer):
    return make_workbench(tokenizer, slots=2)


@pytest.fixture(params=[*ENGINES, pytest.param("flower", marks=pytest.mark.deployed)])
def engine(request, runtime, tmp_path):
    sites = make_sites(1, 2, 3, 4, 5, folder=tmp_path)
    made = connect({**ENGINES, "flower": Flowered}[request.param], sites, Working(None), runtime, Stream(0))
    yield made
    made.close()


def fleet(engine, **options):
    return Fleet(engine, verbs_of(Working(None)), Ledger(), Stream(0), **options)


def train(engine, round, sites=None):
    ask = Ask("train", round, {"adapter": ADAPTER, "lr": round / 2})
    return list(engine.ask(ask, engine.sites if sites is None else sites))


def test_sites_stand_in_the_order_of_the_run(engine):
    assert engine.sites == [f"site-{k}" for k in range(5)]


def test_replies_come_in_the_order_in_which_sites_are_asked(engine):
    replies = train(engine, 1, ["site-4", "site-1", "site-0"])
    assert [reply.site for reply in replies] == ["site-4", "site-1", "site-0"]
    assert [reply["adapter"]["w"].tolist() for reply in replies] == [[5, 5], [2, 2], [1, 1]]
    assert {reply["lr"] for reply in replies} == {0.5}
    assert ADAPTER["w"].tolist() == [0, 0]


def test_a_site_gets_its_own_fields(engine):
    each = {site: {"lr": float(k)} for k, site in enumerate(engine.sites)}
    ask = Ask("train", 1, {"adapter": ADAPTER}, each)
    assert [one["lr"] for site in ("site-3", "site-2") for one in engine.ask(ask.narrowed([site]), [site])] == [3, 2]


def test_asking_nobody_brings_nothing(engine):
    assert train(engine, 1, []) == []


def test_of_a_failure_nothing_is_told_but_its_class_and_no_other_site_is_touched(engine, monkeypatch):
    crossed = engine.crossing(monkeypatch) if hasattr(engine, "crossing") else None
    answers = {one.site: one for one in engine.ask(Ask("break_one", 1), engine.sites)}
    assert {site for site, one in answers.items() if isinstance(one, Failure)} == {"site-1"}
    assert answers["site-1"] == Failure("site-1", "ValueError")
    assert answers.keys() == set(engine.sites)
    assert {one.why for one in engine.ask(Ask("leak", 1), engine.sites)} == {"UndeclaredReleaseError"}
    if crossed is not None:
        assert b"ValueError" in crossed and b"UndeclaredReleaseError" in crossed
        assert not any(word in crossed for word in (b"patient", b"flu", b"records", b"Traceback"))


@pytest.mark.parametrize(
    "ask",
    [
        Ask("train", 1, {"adapter": ADAPTER, "lr": 1}, run="other"),
        Ask("train", "1", {"adapter": ADAPTER, "lr": 1}),
        Ask("remember", 1),
    ],
    ids=["another run", "no round", "no verb"],
)
def test_what_a_run_does_not_ask_is_refused(engine, ask):
    assert {one.why for one in engine.ask(ask, engine.sites)} == {"RefusedError"}


def test_a_late_answer_does_not_come_and_is_not_taken_for_a_later_one(engine):
    [late] = engine.ask(Ask("dawdle", 1, seconds=ANSWER / 4), ["site-0"])
    assert late == Failure("site-0", LATE)
    [reply] = train(engine, 2, ["site-0"])
    assert reply["lr"] == 1.0


def test_answers_that_nobody_reads_do_not_come_later(engine):
    answers = engine.ask(Ask("break_one", 1), engine.sites)
    next(answers)
    answers.close()
    assert [reply["lr"] for reply in train(engine, 2)] == [1.0] * 5


def test_rounds_are_kept_and_gone_back_to(engine):
    to = fleet(engine)
    for round in (1, 2, 3):
        to.begin(round)
        train(engine, round)
        assert to.stores.commit() == []
    to.stores.rewind(2)
    assert seen(engine) == [[1, 2]] * 5


def seen(engine):
    return [site.store["seen"] for site in engine.host.sites.values()]


def test_a_site_that_is_late_keeps_the_round_all_the_same(engine):
    to = fleet(engine, seconds=ANSWER / 4)
    to.begin(1)
    train(engine, 1)
    late = list(engine.ask(Ask("dawdle", 1, seconds=ANSWER / 4), ["site-0"]))
    assert late == [Failure("site-0", LATE)]
    assert set(to.stores.commit()) <= set(engine.sites)
    to.stores.rewind(1)  # which waits until all that was asked before is done
    assert seen(engine) == [[1]] * 5


def test_a_site_that_cannot_go_back_says_so(engine):
    to = fleet(engine)
    to.begin(1)
    train(engine, 1)
    to.stores.commit()
    for file in engine.host.sites["site-1"].kept.folder.glob("round-*"):
        file.write_bytes(b"")
    with pytest.raises(CheckpointError):
        to.stores.rewind(1)


def test_of_a_site_that_is_gone_nothing_comes_and_the_others_answer(engine):
    if not hasattr(engine, "kill"):
        pytest.skip("its sites are where the server is")
    gone = engine.kill("site-0")
    first, second = engine.ask(Ask("break_one", 1), ["site-0", "site-3"])
    assert isinstance(first, Failure) and first.why != LATE and isinstance(second, Reply)
    to = fleet(engine)
    assert to.stores.commit() == gone
    [again] = engine.ask(Ask("break_one", 2), ["site-0"])
    assert isinstance(again, Failure) and again.why != LATE


def test_closing_twice_is_closing(engine):
    engine.close()
    engine.close()

"""What sites keep of a round, as far as the server knows."""

import re

import pytest
import torch

from murmura.errors import CheckpointError, RunError
from murmura.federation.server.fleet import Fleet
from murmura.federation.server.ledger import Ledger
from murmura.federation.wire.messages import LATE, Failure, Reply
from murmura.streams import Stream
from tests.federation.world import Scripted, Small, verbs_of


def keeping(answers, **options):
    """A fleet in round 4, whose sites answer so when they are to keep a round or to go back."""
    engine = Scripted(lambda site, ask: Reply(site, {"adapter": {"w": torch.zeros(4)}, "examples": 3}), ["a", "b", "c"])
    fleet = Fleet(engine, verbs_of(Small(None)), Ledger(), Stream(0), **options)
    engine.keep = lambda site, ask: answers.get(site, Reply(site, {}))
    fleet.begin(4)
    list(fleet.ask("train", ["a", "b"]))  # c takes no part
    return fleet


def dead_worker(site):
    return Failure(site, "worker 0 was killed")


def test_a_round_that_too_few_of_its_sites_have_kept_is_not_saved():
    fleet = keeping({"b": dead_worker("b"), "c": Failure("c", LATE)}, min_replies=2)
    told = "these sites have not kept their part of the round: b (worker 0 was killed)"
    with pytest.raises(RunError, match=re.escape(told)) as error:
        fleet.stores.commit()
    assert error.value.where == "round 4" and error.value.passing and fleet.events == []
    fleet.min_replies = 1
    assert fleet.stores.commit() == ["b", "c"]
    assert fleet.events == [told]


@pytest.mark.parametrize("dies", [False, True])
def test_an_earlier_round_that_a_late_site_has_not_kept_after_all_is_told_once(dies):
    answers = {"b": Failure("b", LATE)}
    fleet = keeping(answers)
    assert fleet.stores.commit() == ["b"]
    fleet.begin(5)
    answers["b"] = dead_worker("b") if dies else Reply("b", {"unkept": [[2, "ValueError"], [4, "CheckpointError"]]})
    why = "worker 0 was killed" if dies else "CheckpointError"
    for _ in range(2):
        assert fleet.stores.commit() == (["b"] if dies else [])
        assert fleet.events == [f"site b has not kept round 4 after all ({why})"]
    rows = [row for row in fleet.ledger.table() if row["verb"] == "commit"]
    assert [row["messages"] for row in rows] == ([] if dies else [2])  # what leaves is told, and only that


def test_a_late_site_that_has_kept_the_round_since_is_no_event():
    answers = {"b": Failure("b", LATE)}
    fleet = keeping(answers)
    fleet.stores.commit()
    answers.clear()
    fleet.begin(5)
    assert fleet.stores.commit() == [] and fleet.events == []


def test_after_the_last_round_a_late_site_gets_as_long_again_and_what_it_has_not_kept_by_then_is_lost():
    waited = []
    fleet = keeping({})
    fleet.seconds = 7.0
    fleet.engine.keep = lambda site, ask: (
        waited.append(ask.seconds) or (Failure(site, LATE) if site == "c" else Reply(site, {}))
    )
    fleet.stores.commit()
    fleet.begin(5)
    assert fleet.stores.commit(last=True) == ["c"]
    assert waited == [7.0] * 3 + [14.0] * 3
    [event] = fleet.events
    assert event.startswith("site c has not kept round 4 after all")


def test_a_site_that_cannot_keep_a_round_has_not_kept_it():
    assert keeping({"b": Failure("b", "CheckpointError")}).stores.commit() == ["b"]


@pytest.mark.parametrize("why", ["CheckpointError", "RunError", "TypeError"])
def test_only_what_is_damaged_or_gone_lets_a_run_give_up_a_round(why):
    with pytest.raises(RunError) as error:
        keeping({"b": Failure("b", why)}).stores.rewind(2)
    assert isinstance(error.value, CheckpointError) == (why == "CheckpointError") and error.value.where == "site b"


def test_keeping_rounds_is_no_part_of_a_rounds_traffic_and_says_nothing_of_who_answers():
    fleet = keeping({})
    before = fleet.ledger.state()
    fleet.answering.clear()
    fleet.stores.commit()
    fleet.stores.rewind(3)
    assert fleet.ledger.state() == before and not fleet.answering

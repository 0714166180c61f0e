"""Whom the server asks, what is entered in the ledger, and sites that do not answer."""

import json
import re
from collections import Counter
from datetime import datetime, timedelta

import pytest
import torch

from murmura.errors import RefusedError, RunError
from murmura.federation.server.fleet import Fleet
from murmura.federation.server.ledger import Ledger
from murmura.federation.wire.messages import Failure, Reply
from murmura.streams import Stream
from tests.federation.world import Scripted, Small, verbs_of


def make_fleet(answer, *, min_replies=1, sites=("a", "b", "c")):
    return Fleet(Scripted(answer, list(sites)), verbs_of(Small(None)), Ledger(), Stream(0), min_replies)


def healthy(site, ask):
    return Reply(site, {"adapter": {"w": torch.zeros(4)}, "examples": 3})


def dead(*gone):
    return lambda site, ask: Failure(site, "timed out") if site in gone else healthy(site, ask)


# ---- sampling ---------------------------------------------------------------------------------------------------

NAMES = [f"site-{k}" for k in range(20)]


def sampling(seed=0, names=NAMES):
    return Fleet(Scripted(healthy, list(names)), verbs_of(Small(None)), Ledger(), Stream(seed))


def test_a_sample_is_without_replacement_and_keeps_the_order():
    for round in range(1, 30):
        cohort = sampling().sample(7, round)
        assert len(set(cohort)) == 7
        assert cohort == [name for name in NAMES if name in cohort]


def test_a_sample_depends_on_seed_and_round_only():
    fleet = sampling()
    first = fleet.sample(7, 3)
    list(fleet.ask("train", NAMES))
    fleet.round = 9
    assert fleet.sample(7, 3) == first == sampling().sample(7, 3)
    assert fleet.sample(7, 4) != first
    assert sampling(seed=1).sample(7, 3) != first


def test_every_site_gets_its_turn():
    counts = Counter(name for round in range(200) for name in sampling().sample(5, round))
    assert counts.keys() == set(NAMES)
    assert max(counts.values()) < 2 * min(counts.values())


def test_no_number_or_too_large_a_one_means_all():
    assert sampling().sample(None, 1) == sampling().sample(20, 1) == sampling().sample(99, 1) == NAMES


# ---- asking ------------------------------------------------------------------------------------------------------


def test_replies_come_one_by_one_and_the_ledger_counts_them():
    fleet, heard = make_fleet(healthy), []
    fleet.listener = heard.append
    replies = fleet.ask("train", ["a", "c"], {"c": {"records": 5}}, adapter={"w": torch.zeros(4)})
    assert next(replies).site == "a"
    assert [reply.site for reply in heard] == ["a"]
    assert [reply.site for reply in replies] == ["c"]
    [(ask, sites)] = fleet.engine.asked
    assert (ask.verb, ask.round, sites) == ("train", 0, ["a", "c"])
    assert ask.payload("c")["records"] == 5
    traffic = fleet.ledger.traffic()
    assert traffic.down == 16 + 16 + len('{"records": 5}')
    assert traffic.up == 2 * (16 + len('{"examples": 3}'))
    assert {row["field"]: row["messages"] for row in fleet.ledger.table()} == {"adapter": 2, "examples": 2}


def test_only_verbs_can_be_asked_for():
    with pytest.raises(RefusedError, match=r"this run asks no site for 'trian'\. Did you mean 'train'\?"):
        next(make_fleet(healthy).ask("trian", ["a"]))


def test_a_site_that_does_not_answer_is_an_event_and_a_line_at_once(capsys, monkeypatch):
    monkeypatch.setenv("MURMURA_LOG", "json")
    fleet, told = make_fleet(dead("b")), []
    for reply in fleet.ask("train", fleet.sites):
        told.append((reply.site, capsys.readouterr().err))
    assert [site for site, _ in told] == ["a", "c"] and told[0][1] == ""
    assert fleet.events == ["site b did not answer 'train': timed out"]
    line = json.loads(told[1][1])
    assert datetime.fromisoformat(line.pop("time")).utcoffset() == timedelta(0)
    message = "round 0: site b did not answer 'train': timed out"
    assert line == {"message": message, "event": "unplanned", "round": 0, "site": "b", "verb": "train"}
    assert fleet.ledger.table()[0]["messages"] == 2


def test_a_site_answers_once_and_only_if_it_is_asked():
    names = {"a": "a", "b": "a", "c": "d"}
    fleet = make_fleet(lambda site, ask: healthy(names[site], ask))
    assert fleet.sum("train", fleet.sites)["examples"] == 3
    assert fleet.events == [
        "site a answered 'train' twice, or was not asked: that does not count",
        "site d answered 'train' twice, or was not asked: that does not count",
    ]


def test_too_few_answers_stop_the_run():
    fleet = make_fleet(dead("a", "b"), min_replies=2)
    fleet.round = 4
    replies = fleet.ask("train", fleet.sites)
    assert next(replies).site == "c"
    with pytest.raises(RunError, match="only 1 of 3 sites answered 'train', 2 are needed") as error:
        next(replies)
    assert error.value.where == "round 4" and error.value.passing
    assert "site a did not answer" in error.value.fix


def test_no_more_are_needed_than_were_asked():
    fleet = make_fleet(healthy, min_replies=3)
    assert len(list(fleet.ask("train", ["a", "b"]))) == 2
    with pytest.raises(RunError, match="only 1 of 2"):
        list(make_fleet(dead("a"), min_replies=3).ask("train", ["a", "b"]))


def test_a_figure_that_is_missing_stops_no_run():
    fleet = make_fleet(dead("a", "b", "c"), min_replies=3)
    assert list(fleet.ask("memorise", fleet.sites)) == []
    assert len(fleet.events) == 3


@pytest.mark.parametrize("other", [{"w": torch.zeros(5)}, {"v": torch.zeros(4)}])
def test_a_sum_refuses_tensors_that_are_not_those_of_the_others(other):
    def answer(site, ask):
        return Reply(site, {"adapter": other if site == "b" else {"w": torch.zeros(4)}})

    with pytest.raises(RunError, match=r"has shape|is missing"):
        make_fleet(answer).sum("train", ["a", "b", "c"])


BROKEN = [
    {"adapter": {"w": torch.full((4,), torch.nan)}, "examples": 3},
    {"adapter": {"w": torch.zeros(4)}, "examples": -3},
    {"adapter": {"w": torch.zeros(4)}, "examples": 3, "records": ["mine"]},
]


@pytest.mark.parametrize("fields", BROKEN)
def test_a_reply_that_is_not_what_its_verb_declares_counts_as_none_but_was_released(fields):
    def answer(site, ask):
        return Reply(site, fields) if site == "b" else healthy(site, ask)

    fleet, heard = make_fleet(answer), []
    fleet.listener = heard.append
    assert [reply.site for reply in fleet.ask("train", ["a", "b", "c"])] == ["a", "c"]
    assert [reply.site for reply in heard] == ["a", "c"]
    assert len(fleet.events) == 1 and "the answer of site b to 'train' is left out" in fleet.events[0]
    assert make_fleet(answer).sum("train", ["a", "b", "c"]).sites == ["a", "c"]
    with pytest.raises(RunError, match="only 2 of 3 sites answered 'train', 3 are needed") as error:
        list(make_fleet(answer, min_replies=3).ask("train", ["a", "b", "c"]))
    assert not error.value.passing  # so that no unit starts a server again and again, which asks the sites each time
    assert error.value.fix.startswith("Mend what answers are left out for and start again with --resume")
    told = make_fleet(answer, sites=["b"], min_replies=0)
    assert list(told.ask("train", ["b"])) == []
    assert {row["field"] for row in told.ledger.table() if row["bytes"]} == {"adapter", "examples"}


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (torch.zeros(5, dtype=torch.int32), r"'votes' has shape \(5,\), expected \(4,\)"),
        (torch.zeros(4), "'votes' is torch.float32, expected torch.int32"),
        (None, "'votes' is missing"),
        ([1, 2, 3, 4], "'votes' is no tensor"),
        (torch.full((4,), -3, dtype=torch.int32), "too few"),
    ],
)
def test_a_reply_that_is_not_like_the_others_is_left_out_of_a_sum_and_its_site_is_named(other, why):
    right = torch.tensor([1, 0, 2, 0], dtype=torch.int32)

    def answer(site, ask):
        return Reply(
            site, {} if site == "b" and other is None else {"adapter": {"votes": other if site == "b" else right}}
        )

    def refused(reply):
        return "too few" if bool((reply["adapter"]["votes"] < 0).any()) else None

    like = {"adapter": {"votes": torch.zeros(4, dtype=torch.int32)}}
    fleet = make_fleet(answer, min_replies=2)
    sums = fleet.sum("train", ["a", "b", "c"], like=like, refused=refused)
    assert sums.sites == ["a", "c"] and sums["adapter"]["votes"].tolist() == [2, 0, 4, 0]
    [event] = fleet.events
    assert re.match(f"the answer of site b to 'train' is left out: {why}", event)
    with pytest.raises(RunError, match="only 2 of 3 sites answered 'train', 3 are needed"):
        make_fleet(answer, min_replies=3).sum("train", ["a", "b", "c"], like=like, refused=refused)


def test_of_many_replies_what_travelled_is_not_written_down_after_each():
    kept, names = [], [f"site-{k}" for k in range(200)]
    for count in (3, 200):
        fleet = make_fleet(healthy, sites=names[:count])
        fleet.keeper = lambda kept=kept, fleet=fleet: kept.append(fleet.ledger.table()[:1])
        list(fleet.ask("train", fleet.sites))
        assert kept[-1][0]["messages"] == count  # the last one is there
    assert len(kept) == (1 + 3) + (1 + 64 + 2 + 1)


def test_what_goes_wrong_in_this_process_stops_the_run_as_it_is():
    fleet = make_fleet(lambda site, ask: Failure(site, "KeyError", KeyError("adapter")))
    with pytest.raises(KeyError, match="adapter"):
        list(fleet.ask("train", ["a"]))


def test_the_time_that_sites_take_is_counted_and_not_what_the_server_does_with_it(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("murmura.federation.server.fleet.time.perf_counter", lambda: now[0])

    def slow(site, ask):
        now[0] += 2.0
        return healthy(site, ask)

    fleet = make_fleet(slow)
    for _ in fleet.ask("train", fleet.sites):
        now[0] += 100.0
    assert fleet.at_sites == 6.0
    fleet.begin(2)
    assert fleet.at_sites == 0.0

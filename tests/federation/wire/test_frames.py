"""Asks and replies as bytes."""

from dataclasses import replace

import pytest
import torch

from murmura.errors import RunError
from murmura.federation.wire.frames import answer_frame, answer_of, ask_frame, ask_of, frame, unframe
from murmura.federation.wire.messages import LATE, Ask, Failure, Reply, encode


def test_an_ask_comes_through_with_every_sites_own_fields():
    adapter = {"layers.0.lora_A.weight": torch.arange(6.0).view(2, 3)}
    ask = Ask("train", 3, {"lr": 0.1, "adapter": adapter}, {"a.b": {"start": adapter, "n": 2}, "c": {}}, "run-1", 2.5)
    ask = replace(ask, masked={"sum": "1f", "sharers": [0, 1]})
    head, parts = unframe(ask_frame(ask, ["c", "a.b"], do="answer", number=7))
    assert (head["do"], head["number"]) == ("answer", 7)
    back, sites = ask_of(head, parts)
    assert sites == ["c", "a.b"]
    assert (back.verb, back.round, back.run, back.seconds) == ("train", 3, "run-1", 2.5)
    assert back.masked == {"sum": "1f", "sharers": [0, 1]}
    assert back.payload("c").keys() == {"lr", "adapter"}
    own = back.payload("a.b")
    assert own["n"] == 2 and own["start"]["layers.0.lora_A.weight"].equal(adapter["layers.0.lora_A.weight"])


@pytest.mark.parametrize("told", ["to all", "to each"])
def test_what_all_sites_get_is_there_once(told):
    big, lengths = {"adapter": {"w": torch.zeros(10_000)}}, []
    for count in (1, 50):
        sites = [str(k) for k in range(count)]
        each = {site: {"records": 1000 + int(site), **(big if told == "to each" else {})} for site in sites}
        buffer = ask_frame(Ask("v", 1, big if told == "to all" else {}, each), sites)
        lengths.append(len(buffer))
        back, _ = ask_of(*unframe(buffer))
        for site in sites:
            assert back.payload(site)["records"] == 1000 + int(site)
            assert back.payload(site)["adapter"]["w"].equal(big["adapter"]["w"])
    assert lengths[1] < 1.1 * lengths[0]


def test_a_field_of_some_sites_reaches_no_other():
    adapter = {"w": torch.zeros(2)}
    ask = Ask(
        "v", 1, {"n": 0}, {"a": {"adapter": adapter, "n": 1}, "b": {"adapter": adapter, "n": 1}, "c": {"m": None}}
    )
    for sites in (["a", "b", "c"], ["c", "a"], ["a", "b"]):
        back, _ = ask_of(*unframe(ask_frame(ask, sites)))
        assert {site: back.payload(site).keys() for site in sites} == {site: ask.payload(site).keys() for site in sites}
        assert [back.payload(site)["n"] for site in sites] == [ask.payload(site)["n"] for site in sites]


def test_a_reply_and_an_empty_one_come_through():
    for fields in ({"adapter": {"w": torch.ones(2)}, "loss": 1.5}, {}):
        answer = answer_of(*unframe(answer_frame(Reply("a", fields))))
        assert isinstance(answer, Reply) and answer.site == "a" and answer.fields.keys() == fields.keys()


def test_of_a_failure_nothing_but_its_class_travels():
    secret = ValueError("patient 12 has the flu")
    buffer = answer_frame(Failure("a", "ValueError", secret))
    assert b"flu" not in buffer
    assert answer_of(*unframe(buffer)) == Failure("a", "ValueError")


@pytest.mark.parametrize("why", [LATE, "KeyError", "_Hidden2", "A" * 81])
def test_of_what_went_wrong_a_class_is_told(why):
    assert answer_of({"failed": why, "site": "a"}, {}) == Failure("a", why)


@pytest.mark.parametrize("why", [[1], {}, None, 3, "", "all is well", "A\n", "A\x1b[2J", "x\ud800", "É", "A" * 82])
def test_and_nothing_else_that_a_site_would_have_shown(why):
    assert answer_of(*unframe(frame({"failed": why, "site": "a"}))).why == "an error without a name"


def test_a_damaged_frame_is_told():
    with pytest.raises(RunError, match="damaged"):
        unframe(frame({"do": "answer"})[:-3])


@pytest.mark.parametrize("fields", [{}, {"head": 3}, {"head": ["site"]}, {"head": {"w": torch.ones(1)}}])
def test_so_is_one_without_a_head_that_names_a_site(fields):
    with pytest.raises(RunError, match="damaged"):
        answer_of(*unframe(encode(fields)))

"""Bytes each way, and the disclosure table."""

import json

from murmura.federation.server.ledger import Ledger, Traffic
from murmura.federation.wire.releases import Count, DifferentialPrivacy, Metric, Votes, Weights

RELEASES = {
    "adapter": Weights(note="mixed, β = 0.7"),
    "examples": Count(),
    "noisy": Votes("counts", DifferentialPrivacy("site", "site", "Gaussian, σ = 2")),
}


def filled():
    ledger = Ledger()
    ledger.declare("train", RELEASES)
    ledger.declare("memorise", {"rouge": Metric("attack")}, measures=True)
    for size in (100, 50):
        ledger.asked("train", size)
    ledger.released("train", {"adapter": 30, "examples": 4})
    ledger.released("train", {"adapter": 31, "examples": 4})
    ledger.asked("memorise", 7)
    ledger.released("memorise", {"rouge": 2})
    return ledger


def test_traffic_of_the_method_and_of_measuring():
    traffic = filled().traffic()
    assert (traffic.up, traffic.down, traffic.measuring) == (30 + 31 + 4 + 4, 150, 9)


def test_asks_are_counted_answered_or_not_and_do_not_go_back():
    ledger = filled()
    before = ledger.state()
    ledger.asked("train", 1)
    ledger.restore(before)
    assert (ledger.asks("train"), ledger.asks("memorise"), ledger.asks("nothing")) == (3, 1, 0)
    again = Ledger()
    again.restore(json.loads(json.dumps(ledger.state())))
    assert again.asks("train") == 3


def test_the_table_holds_what_really_travelled():
    rows = {(row["verb"], row["field"]): row for row in filled().table()}
    assert rows.keys() == {("train", "adapter"), ("train", "examples"), ("memorise", "rouge")}
    adapter = rows["train", "adapter"]
    assert (adapter["messages"], adapter["bytes"]) == (2, 61)
    assert (adapter["kind"], adapter["protection"], adapter["note"]) == ("weights", None, "mixed, β = 0.7")


def test_declaring_again_forgets_nothing():
    ledger = filled()
    before = ledger.table()
    ledger.declare("train", RELEASES)
    assert ledger.table() == before


def test_it_goes_on_after_a_checkpoint():
    ledger, back = filled(), Ledger()
    back.restore(json.loads(json.dumps(ledger.state())))
    for one in (ledger, back):
        one.asked("train", 5)
        one.released("train", {"adapter": 1, "noisy": 2})
    assert back.table() == ledger.table()
    assert back.traffic() == ledger.traffic()


def test_it_does_not_go_back():
    ledger = filled()
    saved = json.loads(json.dumps(ledger.state()))
    ledger.asked("train", 5)
    later = ledger.table(), ledger.traffic()
    ledger.restore(saved)
    assert (ledger.table(), ledger.traffic()) == later


def test_records_that_are_set_apart_are_disclosed_as_measuring_alone():
    ledger = Ledger()
    ledger.set_apart(12, 3456)
    [row] = ledger.table()
    assert (row["kind"], row["protection"], row["messages"], row["bytes"]) == ("records", None, 12, 3456)
    assert ledger.traffic() == Traffic(0, 0, 3456)


def test_pooled_records_are_disclosed_and_are_all_that_travels():
    ledger = Ledger()
    ledger.pooled(12, 3456)
    [row] = ledger.table()
    assert (row["kind"], row["protection"], row["messages"], row["bytes"]) == ("records", None, 12, 3456)
    ledger.asked("train", 100)  # between a server and what is in the same place
    assert ledger.traffic() == Traffic(3456, 0, 0)

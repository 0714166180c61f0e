"""Replies as vectors of integers: exact where they are whole, fine where they are not, and never over the edge."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from murmura.aggregation.config import SecureSumConfig
from murmura.errors import RunError, SecureSumError
from murmura.federation.wire.layout import MASKED, Layout, as_tensor, entries_of
from murmura.federation.wire.sums import Sum

SECURE = SecureSumConfig(range=2.0, weight=10)


def summed(layout, replies):
    """The sum by vectors, without masks."""
    total = np.zeros(layout.length, layout.dtype)
    for reply in replies:
        total += layout.vector(reply)[0]
    return layout.sum(total, [str(k) for k in range(len(replies))])


def plain(replies, weights=None):
    total = Sum()
    for k, reply in enumerate(replies):
        total.add(str(k), reply, weights)
    return total


def test_whole_tensors_come_back_to_the_bit():
    replies = [{"votes": torch.randint(-(2**40), 2**40, (50,))} for _ in range(7)]
    layout = Layout.of({"votes": torch.zeros(50, dtype=torch.int64)}, {}, 7, SECURE)
    assert layout.bits == 64
    assert torch.equal(summed(layout, replies)["votes"], plain(replies)["votes"])
    short = [{"votes": reply["votes"].to(torch.int32) % 1000} for reply in replies]
    layout = Layout.of({"votes": torch.zeros(50, dtype=torch.int32)}, {}, 7, SECURE)
    assert layout.bits == 32
    assert torch.equal(summed(layout, short)["votes"], plain(short)["votes"])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-2, 2, width=32), min_size=1, max_size=6), st.integers(1, 3000), st.booleans())
def test_reals_come_back_within_the_resolution_and_no_sum_overflows(values, sites, weighed):
    weights = {"adapter": "examples"} if weighed else {}
    like = {"adapter": {"w": torch.zeros(1)}} | ({"examples": 0} if weighed else {})
    layout = Layout.of(like, weights, sites, SECURE)
    more = {"examples": 10} if weighed else {}
    replies = [{"adapter": {"w": torch.tensor([value])}, **more} for value in values[:sites]]
    found, exact = summed(layout, replies), plain(replies, weights)
    step = 2.0 ** -layout._shift("adapter", layout.bits)
    rounding = 2.0**-52 * len(replies) * 20 * len(replies)  # of float64's own sums
    assert abs(found["adapter"]["w"] - exact["adapter"]["w"]) <= len(replies) * step + rounding
    assert step <= 2.0 * 2**-20
    edge = {"adapter": {"w": torch.tensor([2.0])}, **more}
    word = int(layout.vector(edge)[0][1])
    assert word * sites < 2 ** (layout.bits - 1) <= 4 * word * sites  # as fine as it can be, to a factor of 2


def test_rounding_never_makes_a_vector_longer():
    layout = Layout.of({"update": torch.zeros(1000)}, {}, 100, SECURE)
    update = torch.randn(1000).clamp(-1, 1)
    back = summed(layout, [{"update": update}])["update"]
    assert (back.abs() <= update.abs()).all() and back.norm() <= update.double().norm()


def test_words_are_short_where_that_is_enough():
    assert Layout.of({"update": torch.zeros(3)}, {}, 2047, SECURE).bits == 32
    assert Layout.of({"update": torch.zeros(3)}, {}, 2048, SECURE).bits == 64
    weighed = Layout.of({"update": torch.zeros(3), "examples": 0}, {"update": "examples"}, 3, SECURE)
    assert weighed.bits == 64
    assert weighed.sizes() == {"update": 32, "examples": 16} and weighed.length == 6


def test_numbers_tables_and_fields_that_are_none():
    like = {"loss": 0.0, "counts": {"kept": 0, "lost": 0}, "examples": 0, "control": torch.zeros(2)}
    replies = [
        {"loss": 1.5, "counts": {"kept": 2}, "examples": 3, "control": None},
        {"loss": None, "counts": {"lost": 1}, "examples": 4},
    ]
    found = summed(Layout.of(like, {}, 2, SECURE), replies)
    assert found["loss"] == 1.5 and found.mean("loss") == 1.5
    assert found["counts"] == {"kept": 2, "lost": 1} and found["examples"] == 7
    assert found.heard == {"loss": 1, "counts": 2, "examples": 2}
    assert "control" not in found.fields and found.sites == ["0", "1"]


def test_what_is_clipped_is_told():
    layout = Layout.of({"update": torch.zeros(2), "examples": 0}, {"update": "examples"}, 3, SECURE)
    vector, told = layout.vector({"update": torch.tensor([5.0, 1.0]), "examples": 12})
    assert told == [
        "'examples' is 12 and counts as 10 (aggregation.secure.weight)",
        "1 numbers of 'update' were clipped to ±2",
    ]
    found = layout.sum(vector, ["a"])
    assert found["update"].tolist() == pytest.approx([20, 10]) and found["examples"] == 10


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ({"votes": torch.tensor([2**62, 0])}, "beyond ±3074457345618258602, with which a sum over 3 sites"),
        ({"loss": float("nan")}, "'loss' holds a number that is not finite"),
        ({"votes": torch.zeros(3, dtype=torch.int64)}, "'votes' is not what the secure sum that was asked for"),
        ({"votes": torch.zeros(2)}, "'votes' is not what"),
        ({"weighed": torch.zeros(1, dtype=torch.int64), "loss": 1.0}, "'weighed' is not what"),
        ({"votes": torch.zeros(2, dtype=torch.int32)}, "'votes' is not what"),
        ({"loss": 1}, "'loss' is not what the secure sum that was asked for"),
        ({"table": {"a": 0.5}}, "'a' in 'table' is not what"),
        ({"state": torch.zeros(1)}, "'state' has no place"),
        ({"loss": {"a": 0.5}}, "'a' in 'loss' has no place"),
        ({"loss": {}}, "'loss' is not what"),
        ({"other": 1}, "'other' has no place in the secure sum"),
        ({"table": {"c": 1}}, "'c' in 'table' has no place"),
        ({"state": {"w": torch.zeros(1)}}, "the tensor 'v' is missing in 'state'"),
        ({"weighed": torch.zeros(1)}, "'weighed' is weighed by 'loss', which is None and no weight"),
    ],
)
def test_what_does_not_fit_is_refused(reply, why):
    like = {
        "votes": torch.zeros(2, dtype=torch.int64),
        "loss": 0.0,
        "table": {"a": 0},
        "state": {"w": torch.zeros(1), "v": torch.zeros(1)},
        "weighed": torch.zeros(1),
    }
    with pytest.raises(RunError, match=why):
        Layout.of(like, {"weighed": "loss"}, 3, SECURE).vector(reply)


def test_of_what_a_site_lacks_a_server_has_no_more_sent_than_of_what_it_has():
    """It would have the site make as many zeros as it liked."""
    few, many = ({"votes": torch.zeros(2000), "other": torch.zeros(count)} for count in (2000, 2001))
    assert len(Layout.of(few, {}, 3, SECURE).vector({"votes": torch.ones(2000)})[0]) == 4002
    with pytest.raises(SecureSumError, match="would take more places"):
        Layout.of(many, {}, 3, SECURE).vector({"votes": torch.ones(2000)})


def test_a_layout_is_told_and_heard():
    layout = Layout.of({"a": {"x": torch.zeros(2, 3)}, "n": 0, "l": 0.5}, {"a": "n"}, 5, SECURE)
    assert entries_of({"layout": layout.to_payload()}) == layout.entries


VOTES = ["votes", None, "tensor", [2]]


@pytest.mark.parametrize(
    "entries",
    [
        [VOTES, ["votes", None, "short tensor", [2]]],
        [["table", "a", "number", []], ["loss", None, "number", []], ["table", "a", "whole number", []]],
        [["votes", "a", "tensor", [2]], VOTES],
    ],
)
def test_a_layout_has_no_field_twice(entries):
    with pytest.raises(SecureSumError, match="a field is to leave twice in one secure sum"):
        entries_of({"layout": {"entries": entries}})


@pytest.mark.parametrize(
    "terms",
    [
        None,
        [],
        {"sum": "x"},
        {"layout": {"entries": []}},
        {"layout": {"entries": [["votes"]]}},
        *(
            {"layout": {"entries": [VOTES, one]}}
            for one in (
                [["votes"], None, "tensor", [2]],
                ["other", 1, "tensor", [2]],
                ["other", None, "tensors", [2]],
                ["other", None, ["tensor"], [2]],
                ["other", None, "tensor", [-2]],
                ["other", None, "tensor", [2.0]],
                ["other", None, "tensor", 2],
                ["other", None, "number", [2]],
            )
        ),
    ],
)
def test_what_is_no_layout_is_refused(terms):
    with pytest.raises(SecureSumError, match="what its layout is cannot be read"):
        entries_of(terms)


def test_what_cannot_be_added_up_has_no_layout():
    with pytest.raises(RunError, match="'text' cannot be added up"):
        Layout.of({"text": "words"}, {}, 3, SECURE)


def test_a_masked_reply_of_another_form_is_told():
    layout = Layout.of({"votes": torch.zeros(2, dtype=torch.int64)}, {}, 3, SECURE)
    assert layout.misfit({MASKED: as_tensor(layout.vector({"votes": torch.ones(2).long()})[0])}) is None
    for found in (torch.zeros(2).long(), torch.zeros(3), torch.zeros(3, dtype=torch.int32), [1, 2, 3], None):
        assert layout.misfit({MASKED: found}) == "it is no masked vector of 3 words of 64 bits"
    assert layout.misfit({})

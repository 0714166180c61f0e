"""What a reply must look like to be one."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from murmura.federation.wire import well_formed
from murmura.federation.wire.releases import Count, Embeddings, Metric, Texts, Votes, Weights
from murmura.federation.wire.well_formed import malformed

RELEASES = {
    "adapter": Weights(),
    "examples": Count(),
    "loss": Metric("loss"),
    "votes": Votes("votes"),
    "centres": Embeddings("centres"),
    "texts": Texts("texts"),
}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"adapter": {"w": torch.ones(2)}, "examples": 3, "loss": 0.5, "votes": torch.tensor([1, 2])},
        {"adapter": {"codes": torch.tensor([1], dtype=torch.uint8)}, "loss": None, "centres": torch.ones(2, 3)},
        {"examples": torch.tensor([0, 2]), "loss": {"a": [1, "new"]}, "texts": ["one", ""]},
    ],
)
def test_what_a_verb_declares_passes(fields):
    assert malformed(fields, RELEASES) is None


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"secret": 1}, "does not declare"),
        ({"adapter": "all of it"}, "neither a tensor nor a number"),
        ({"adapter": {"w": torch.tensor([1.0, math.nan])}}, "NaN"),
        ({"adapter": {"w": torch.tensor([math.inf])}}, "infinity"),
        ({"examples": -1}, "whole number"),
        ({"examples": 2.0}, "whole number"),
        ({"examples": True}, "whole number"),
        ({"examples": [1, "2"]}, "whole number"),
        ({"examples": torch.tensor([1.0])}, "whole number"),
        ({"loss": math.nan}, "NaN"),
        ({"loss": {"deep": [math.inf]}}, "infinity"),
        ({"loss": object()}, "no figure"),
        ({"votes": ["x"]}, "neither"),
        ({"centres": torch.full((1, 2), -math.inf)}, "infinity"),
        ({"texts": "one"}, "no list of texts"),
        ({"texts": ["one", 2]}, "no list of texts"),
        ({"texts": ["one", "tw\ud800"]}, "half a character"),
        ({"loss": "\udfff"}, "half a character"),
        ({"loss": {"a": {"\ud800": 1}}}, "half a character"),
        ({"loss": [["\ud800"]]}, "half a character"),
        ({"examples": {"\ud800": 1}}, "half a character"),
        ({"votes": {"\ud800": 1}}, "half a character"),
    ],
)
def test_what_it_does_not_is_malformed(fields, why):
    assert why in malformed(fields, RELEASES)


def test_texts_are_bounded(monkeypatch):
    monkeypatch.setattr(well_formed, "TEXTS", 2)
    monkeypatch.setattr(well_formed, "CHARACTERS", 3)
    assert malformed({"texts": ["abc", "abc"]}, RELEASES) is None
    assert "more than 2 texts" in malformed({"texts": ["a"] * 3}, RELEASES)
    assert "more than 3 characters" in malformed({"texts": ["abcd"]}, RELEASES)
    assert "more than 3 characters" in malformed({"loss": "abcd"}, RELEASES)


def test_no_depth_is_too_much_for_the_check():
    deep = math.nan
    for _ in range(100_000):
        deep = [deep]
    assert "NaN" in malformed({"loss": deep}, RELEASES)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


@given(st.dictionaries(st.sampled_from([*RELEASES, "secret"]), ANYTHING))
def test_whatever_a_site_sends_the_check_itself_never_fails(fields):
    why = malformed(fields, RELEASES)
    assert why is None or isinstance(why, str)

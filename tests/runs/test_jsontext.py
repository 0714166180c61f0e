"""JSON that any reader takes, and that gives back what was written."""

import json
import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from murmura.runs import jsontext

WORDS = st.sampled_from(["NaN", "Infinity", "-Infinity", "\\NaN", "\\\\-Infinity", "nan", ""])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | WORDS,
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | WORDS, inner),
    max_leaves=10,
)


def refuse(token):
    raise AssertionError(f"{token} is no JSON")


def same(first, second):
    """Equality under which NaN equals itself."""
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[key], second[key]) for key in first)
    if isinstance(first, list):
        return len(first) == len(second) and all(map(same, first, second))
    if isinstance(first, float) and math.isnan(first):
        return isinstance(second, float) and math.isnan(second)
    return type(first) is type(second) and first == second


@given(VALUES)
@example({"loss": math.inf, "said": ["Infinity", "\\Infinity", -math.inf]})
def test_what_was_written_is_read_and_every_reader_takes_it(value):
    text = jsontext.dumps(value)
    json.loads(text, parse_constant=refuse)
    assert same(jsontext.loads(text), value)


def test_finite_figures_and_words_are_written_as_always():
    value = {"round": 1, "loss": 2.5, "events": ["site a", None], "pair": (1, 2)}
    assert jsontext.dumps(value) == json.dumps(value)


@pytest.mark.parametrize("token", ["NaN", "Infinity", "-Infinity"])
def test_tokens_that_are_no_json_are_refused(token):
    with pytest.raises(ValueError, match=f"{token} is no number of JSON"):
        jsontext.loads(f'{{"loss": {token}}}')

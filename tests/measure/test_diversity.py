"""Distinct-n against its definition."""

from hypothesis import given
from hypothesis import strategies as st

from murmura.measure.diversity import distinct
from murmura.measure.text import tokens

WORDS = st.lists(st.sampled_from(["dose", "skin", "rash"]), max_size=6).map(" ".join)


def test_by_hand():
    """Three different words and two different pairs, of five words."""
    assert distinct(["the dose the dose", "rash"], 1) == 3 / 5
    assert distinct(["the dose the dose", "rash"], 2) == 2 / 5
    assert distinct([], 1) == distinct(["薬"], 2) == 0


@given(st.lists(WORDS, max_size=5), st.integers(1, 3))
def test_by_brute_force(texts, n):
    runs, whole = [], 0
    for text in texts:
        words = tokens(text)
        whole += len(words)
        runs += [" ".join(words[k : k + n]) for k in range(len(words)) if k + n <= len(words)]
    assert distinct(texts, n) == (len(set(runs)) / whole if whole else 0)


@given(st.lists(WORDS, min_size=1, max_size=4))
def test_texts_that_repeat_are_less_diverse(texts):
    assert distinct(texts * 2, 2) <= distinct(texts, 2)

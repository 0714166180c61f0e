"""Annotation: how many texts an event takes, which ones, and what their labels are."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmura.measure.ensemble import soft_labels
from murmura.methods.lpfl.annotation import choose, due, forced, reads_scores, targets
from murmura.methods.lpfl.config import LPFLConfig
from murmura.streams import Stream

STREAM = Stream(0) / "annotate"
# Likeliest labels 0 0 1 0 1 2, and how sure: .9 .6 .8 .6 .5 .4
SIX = np.array([[0.9, 0.1, 0], [0.6, 0.4, 0], [0.2, 0.8, 0], [0.6, 0.3, 0.1], [0.5 - 1e-3, 0.5, 0], [0.3, 0.3, 0.4]])


def options(events=4, **given):
    """Of a run with so many events, also such as would be refused since others make them idle."""
    return LPFLConfig.model_construct(rounds=events + 1, **given)


def taken(config, first, accuracies):
    """How many texts each event takes of a pool."""
    left, counts = first, []
    for event, accuracy in enumerate(accuracies, start=1):
        counts.append(due(config, event, accuracy, first, left))
        left -= counts[-1]
    return counts


# ---- how many -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("accuracies", "counts"),
    [
        ([0.8, 0.8, 0.8, 0.8], [25, 25, 25, 25]),  # the golden example of the schedule
        ([0.5, 0.8, 0.8, 0.8], [0, 25, 25, 50]),
        ([0.7, 0.7, 0.7, 0.7], [0, 0, 0, 100]),  # must be above the gate; the last event does not ask
        ([0.8, 0.1, 0.8, 0.1], [25, 0, 25, 50]),
    ],
)
def test_a_quarter_of_the_first_pool_an_event(accuracies, counts):
    assert taken(LPFLConfig(), 100, accuracies) == counts


@pytest.mark.parametrize(
    ("first", "share", "counts"),
    [
        (10, 0.25, [3, 3, 3, 1]),  # rounded up
        (1, 0.25, [1, 0, 0, 0]),
        (0, 0.25, [0, 0, 0, 0]),
        (100, 0.07, [7, 7, 7, 79]),  # 0.07 · 100 > 7 in binary
        (100, 1.0, [100, 0, 0, 0]),
        (49, 1 / 49, [1, 1, 1, 46]),
    ],
)
def test_shares_of_pools_of_any_size(first, share, counts):
    assert taken(options(chunk=share), first, [0.8] * 4) == counts


def test_without_completion_the_gate_holds_to_the_end():
    config = options(force_complete=False)
    assert taken(config, 100, [0.5, 0.8, 0.8, 0.5]) == [0, 25, 25, 0]
    assert taken(config, 100, [0.5, 0.8, 0.8, 0.8]) == [0, 25, 25, 25]


def test_a_gate_of_zero_is_none():
    assert taken(options(gate=0.0, force_complete=False), 100, [0.0] * 4) == [25] * 4


@given(
    st.integers(0, 40),
    st.lists(st.floats(0, 1), min_size=1, max_size=6),
    st.floats(0.01, 1),
    st.sampled_from(["random", "confidence", "balanced"]),
    st.none() | st.floats(0.3, 0.9),
    st.booleans(),
    st.integers(0, 99),
)
def test_a_pool_is_annotated_completely_and_once_whatever_the_gate_does(
    first, accuracies, share, select, threshold, complete, seed
):
    config = options(len(accuracies), chunk=share, force_complete=complete, select=select, threshold=threshold)
    pool, annotated = list(range(first)), []
    everyone = np.random.default_rng(seed).dirichlet([1, 1, 1], first).reshape(first, 3)
    for event, accuracy in enumerate(accuracies, start=1):
        count = due(config, event, accuracy, first, len(pool))
        labels = everyone[pool] if reads_scores(config, event, count) else None
        chosen = choose(config, event, count, len(pool), Stream(seed) / event, labels)
        assert chosen == sorted(set(chosen)) and len(chosen) <= count
        if accuracy <= 0.7 and not forced(config, event):
            assert not chosen
        annotated += [pool[index] for index in chosen]
        pool = [text for index, text in enumerate(pool) if index not in set(chosen)]
    assert sorted(annotated + pool) == list(range(first))
    if complete:
        assert not pool
    elif threshold is not None:
        assert all(everyone[text].max() >= threshold for text in annotated)


# ---- which ones -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("select", "threshold", "count", "chosen"),
    [
        ("confidence", None, 2, [0, 2]),
        ("confidence", None, 3, [0, 1, 2]),  # 1 and 3 are as sure: the first of them
        ("confidence", None, 9, [0, 1, 2, 3, 4, 5]),
        ("confidence", 0.6, 9, [0, 1, 2, 3]),
        ("confidence", 0.95, 9, []),
        ("balanced", None, 1, [0]),  # the surest of its turn
        ("balanced", None, 3, [0, 2, 5]),  # one of each label
        ("balanced", None, 4, [0, 1, 2, 5]),
        ("balanced", None, 5, [0, 1, 2, 4, 5]),  # label 2 has no more; 0 and 1 have two each
        ("balanced", 0.5, 3, [0, 1, 2]),
        ("random", 0.7, 9, [0, 2]),
    ],
)
def test_which_texts_an_event_takes(select, threshold, count, chosen):
    config = options(select=select, threshold=threshold)
    assert reads_scores(config, 1, count)
    assert choose(config, 1, count, 6, STREAM, SIX) == chosen


def test_labels_as_likely_as_each_other_go_by_order():
    even = np.full((3, 2), 0.5)
    assert choose(options(select="confidence"), 1, 2, 3, STREAM, even) == [0, 1]
    assert choose(options(select="balanced"), 1, 2, 3, STREAM, even) == [0, 1]  # all are taken for label 0


def test_a_random_choice_is_fair_and_its_streams_own():
    config = options()
    assert not reads_scores(config, 1, 5)
    chosen = [choose(config, 1, 5, 20, STREAM / trial) for trial in range(400)]
    assert chosen[0] == choose(config, 1, 5, 20, STREAM / 0) != chosen[1]
    counts = Counter(index for one in chosen for index in one)
    assert len(counts) == 20 and all(60 < count < 140 for count in counts.values())  # 100 expected, σ = 8.7
    among = [choose(config, 1, 1, 6, STREAM / trial, None) for trial in range(50)]
    assert {len(one) for one in among} == {1}


def test_a_random_choice_among_sure_texts():
    config = options(threshold=0.55)
    chosen = [choose(config, 1, 2, 6, STREAM / trial, SIX) for trial in range(50)]
    assert {len(one) for one in chosen} == {2}
    assert {index for one in chosen for index in one} == {0, 1, 2, 3}


def test_the_last_event_takes_the_unsure_too_and_reads_no_scores():
    config = options(select="confidence", threshold=0.99)
    assert not reads_scores(config, 4, 6) and reads_scores(config, 3, 6)
    assert choose(config, 4, 6, 6, STREAM) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("labels", [None, SIX[:5]])
def test_a_choice_by_scores_needs_those_of_the_pool(labels):
    with pytest.raises(ValueError, match="for a pool of 6 texts"):
        choose(options(select="confidence"), 1, 2, 6, STREAM, labels)


# ---- what their labels are ------------------------------------------------------------------------------------------


def test_soft_targets_have_a_temperature():
    scores = np.array([[2.0, 0.0, -1.0], [0.0, 0.5, 0.0]])
    np.testing.assert_array_equal(targets(scores), soft_labels(scores))
    np.testing.assert_allclose(targets(scores, 2.0), soft_labels(scores / 2))


def test_hard_targets_are_the_first_of_the_likeliest():
    scores = np.array([[0.0, 2.0, 1.0], [3.0, 3.0, 0.0], [-1.0, -2.0, -1.0]])
    np.testing.assert_array_equal(targets(scores, hard=True), [[0, 1, 0], [1, 0, 0], [1, 0, 0]])
    assert targets(np.zeros((0, 3)), hard=True).shape == targets(np.zeros((0, 3))).shape == (0, 3)

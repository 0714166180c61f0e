"""Votes of texts, as numbers."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from murmura.methods.pretext import voting
from murmura.methods.pretext.voting import NOBODY, cosines, counted, distances, fault, nearest, normalised


def vectors(count, d=24, seed=0, length=1.0):
    found = np.random.default_rng(seed).standard_normal((count, d))
    return (length * found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


def plainly(texts, candidates):
    """Each text compared with each candidate, in float64."""
    difference = texts[:, None].astype(np.float64) - candidates[None].astype(np.float64)
    return np.square(difference).sum(axis=2).argmin(axis=1)


@given(
    texts=st.integers(0, 40),
    candidates=st.integers(1, 60),
    seed=st.integers(0, 2**16),
    twins=st.booleans(),
    at_once=st.sampled_from([1, 64, 2**22]),
)
@settings(max_examples=40)
def test_a_text_votes_for_the_nearest_candidate_and_of_equals_for_the_first(texts, candidates, seed, twins, at_once):
    where = vectors(candidates, seed=seed) * np.random.default_rng(seed).uniform(0.3, 1, (candidates, 1))
    where = where.astype(np.float32)
    if twins:  # copies, and some that differ in the last bit alone
        where = np.concatenate([where, where[::-1], np.nextafter(where, np.float32(2))])
    own = vectors(texts, seed=seed + 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(voting, "_AT_ONCE", at_once)
        patch.setattr(voting, "_PAIRS", 5)
        found = nearest(own, where, "cpu")
    assert found.tolist() == plainly(own, where).tolist()


def test_what_a_text_votes_for_depends_on_no_other_text():
    texts, where = vectors(50), vectors(30, seed=1)
    where[7] = np.nextafter(where[3], np.float32(2))
    together = nearest(texts, where, "cpu")
    assert [nearest(texts[[k]], where, "cpu")[0] for k in range(50)] == together.tolist()


def test_a_text_whose_vector_is_no_number_has_no_vote():
    texts = vectors(4)
    texts[1], texts[2, 0] = np.nan, np.inf
    where = vectors(3, seed=1)
    found = nearest(texts, where, "cpu")
    assert found[1] == found[2] == NOBODY and min(found[0], found[3]) >= 0
    assert counted(found, [2, 2], 3).sum(axis=1).tolist() == [1, 1]
    assert np.isfinite(distances(texts, where, "cpu")).tolist() == [True, False, False, True]


def test_votes_are_counted_site_by_site_and_a_site_without_texts_votes_zero():
    found = counted(np.array([2, 0, 2, 1, NOBODY]), [3, 0, 2], 4)
    assert found.dtype == np.int32 and found.tolist() == [[1, 0, 2, 0], [0, 0, 0, 0], [0, 1, 0, 0]]


def test_normalised_votes_move_a_sum_by_one_at_most_whatever_the_site():
    votes = np.array([[3, 4, 0], [0, 0, 0], [1000, 0, 0]])
    found = normalised(votes)
    assert np.allclose(found, [[0.6, 0.8, 0], [0, 0, 0], [1, 0, 0]], atol=1e-6)
    assert (np.linalg.norm(found.astype(np.float64), axis=1) <= 1).all()


def test_cosines_are_of_directions_standardised_and_clipped():
    where = vectors(6, d=8, seed=3) * np.linspace(0.2, 1, 6, dtype=np.float32)[:, None]
    own = [vectors(3, d=8, seed=4), vectors(0, d=8), np.full((1, 8), np.nan, np.float32)]
    found = cosines(own, where)
    directions = where / np.linalg.norm(where, axis=1, keepdims=True)
    scores = (own[0] @ directions.T).sum(axis=0)
    expected = scores - scores.mean()
    assert np.allclose(found[0], expected / np.linalg.norm(expected), atol=1e-5)
    assert not found[1:].any()  # no text, or none with a vector: zero, and no NaN
    assert not cosines([vectors(2, d=8)], np.repeat(vectors(1, d=8, seed=9), 5, axis=0)).any()  # candidates alike


@pytest.mark.parametrize(
    ("votes", "whole", "why"),
    [
        (torch.tensor([5, 3, 0], dtype=torch.int32), True, None),
        (torch.tensor([5, 4, 0], dtype=torch.int32), True, "it holds 9 votes, at most 8 may be cast"),
        (torch.tensor([9, -1, 0], dtype=torch.int32), True, "it holds votes below 0"),
        (torch.tensor([0.6, -0.8, 0.0]), False, None),
        (torch.tensor([0.6, -0.9, 0.0]), False, "its length is 1.08167, not 1"),
    ],
)
def test_votes_that_no_site_can_have_cast_are_told(votes, whole, why):
    found = fault(votes, 8 if whole else 1, whole=whole)
    assert found is None if why is None else found.startswith(why)

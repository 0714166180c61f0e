from __future__ import annotations

import tracemalloc
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmura.retrieval import search
from murmura.retrieval.search import in_turn, nearest
from tests.retrieval.pools import unit

SCORES = np.array([0.95, 0.9, 0.69, 0.2, 0.68])


def sorted_whole(query, vectors, most, below=None, without=None):
    """All rows, stably sorted by the float32 of their dot product in float64."""
    scores = (vectors.astype(np.float64) @ query.astype(np.float64)).astype(np.float32)
    eligible = np.ones(len(vectors), bool) if below is None else scores < below
    eligible[[] if without is None else without] = False
    rows = [row for row in np.argsort(-scores, kind="stable") if eligible[row]][:most]
    return rows, scores[rows]


def assert_same(found, query, vectors, most, below=None, without=None):
    rows, scores = sorted_whole(query, vectors, most, below, without)
    assert found.rows.dtype == np.int64 and found.scores.dtype == np.float32
    assert found.rows.tolist() == rows
    assert found.scores.tolist() == scores.tolist()


def at_cosines(scores):
    """Unit vectors in the plane with these cosines to (1, 0)."""
    return np.stack([scores, np.sqrt(1 - scores**2)], axis=1).astype(np.float32)


def test_what_is_too_close_is_left_out_and_rows_are_those_of_the_whole_pool():
    [found] = nearest(np.array([[1, 0]], np.float32), at_cosines(SCORES), 2, below=0.7)
    assert found.rows.tolist() == [2, 4]
    assert found.scores == pytest.approx([0.69, 0.68], abs=1e-6)


@pytest.mark.parametrize("block", [1, 7, 64, 500, 4096])
@pytest.mark.parametrize("below", [None, 0.15, -2.0])
def test_it_is_what_sorting_everything_gives(block, below):
    vectors = unit(500, 16)
    vectors[100:140] = vectors[:40]  # equal scores: the lower row first
    queries = np.concatenate([unit(3, 16, seed=1), 0.4 * unit(1, 16, seed=2), np.zeros((1, 16), np.float32)])
    without = [None, np.array([3, 130, 7]), np.arange(0, 500, 2), np.arange(500), np.array([], np.int64)]
    found = nearest(queries, vectors, 25, below=below, without=without, block=block)
    for one, query, exclusions in zip(found, queries, without, strict=True):
        assert_same(one, query, vectors, 25, below, exclusions)


@given(
    rows=st.integers(0, 60),
    width=st.integers(1, 6),
    most=st.integers(0, 70),
    block=st.integers(1, 80),
    below=st.sampled_from([None, 1.0, 0.5, 0.0]),
    seed=st.integers(0, 9),
)
def test_many_ties_and_all_sizes(rows, width, most, block, below, seed):
    """Coordinates of few values, so that many scores are equal and some are exactly the limit."""
    draw = np.random.default_rng(seed)
    vectors = draw.integers(-1, 2, (rows, width)).astype(np.float32)
    vectors[~vectors.any(axis=1)] = 1
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    queries = draw.integers(-1, 2, (2, width)).astype(np.float32)
    for found, query in zip(nearest(queries, vectors, most, below=below, block=block), queries, strict=True):
        assert_same(found, query, vectors, most, below)


def test_scores_that_a_float32_product_would_put_in_another_order():
    """Ten thousand vectors a hair apart: products of blocks in float32 cannot tell them apart."""
    draw = np.random.default_rng(0)
    vectors = unit(1, 64) + 1e-7 * draw.normal(size=(10_000, 64)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    query = unit(1, 64, seed=3)
    for block in (100, 3333):
        assert_same(nearest(query, vectors, 50, block=block)[0], query[0], vectors, 50)


def test_fewer_than_asked_come_back_where_fewer_are_eligible():
    vectors = at_cosines(SCORES)
    [found] = nearest(np.array([[1, 0]], np.float32), vectors, 9, below=0.3)
    assert found.rows.tolist() == [3]
    assert nearest(np.empty((0, 2), np.float32), vectors, 9) == []
    [none] = nearest(np.array([[1, 0]], np.float32), vectors[:0], 9)
    assert len(none.rows) == len(none.scores) == 0


def test_memory_is_that_of_a_block_and_not_of_the_vectors(tmp_path, monkeypatch):
    """Of vectors in a file, one per cent at a time."""
    np.save(tmp_path / "vectors.npy", unit(60_000, 32))
    vectors = np.load(tmp_path / "vectors.npy", mmap_mode="r")
    queries, multiplied = unit(4, 32, seed=1), set()
    tensor = search.tensor  # what torch allocates is not traced, so the sizes of what is multiplied are noted
    monkeypatch.setattr(search, "tensor", lambda array, device: (multiplied.add(len(array)), tensor(array, device))[1])
    tracemalloc.start()
    try:
        found = nearest(queries, vectors, 100, block=600)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert multiplied == {4, 600}
    assert peak < vectors.nbytes / 10
    assert_same(found[2], queries[2], vectors, 100)


def test_in_turn_what_one_query_has_taken_no_later_one_takes():
    vectors, queries = unit(50, 4), unit(3, 4, seed=1)
    taken: list[int] = []
    for found, query in zip(
        in_turn(queries, vectors, 12, below=0.9, search=partial(nearest, block=9)), queries, strict=True
    ):
        assert_same(found, query, vectors, 12, 0.9, taken)
        taken += found.rows.tolist()
    assert len(set(taken)) == 36


def test_in_turn_many_queries_take_as_few_would():
    """More than are searched for together, with rows of their own to leave out, until nothing is left."""
    vectors, queries = unit(90, 4), unit(20, 4, seed=1)
    without = [None if number % 3 else np.array([number, 40]) for number in range(20)]
    taken: set[int] = set()
    for found, query, rows in zip(in_turn(queries, vectors, 5, without=without), queries, without, strict=True):
        assert_same(found, query, vectors, 5, without=sorted(taken.union([] if rows is None else rows.tolist())))
        taken |= set(found.rows.tolist())
    assert len(taken) == 90


def test_in_turn_the_last_ones_get_what_is_left():
    vectors = unit(20, 4)
    found = in_turn(unit(3, 4, seed=1), vectors, 8)
    assert [len(one.rows) for one in found] == [8, 8, 4]

"""CMFL's rule: the share of signs that agree, and the threshold that falls."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from murmura.aggregation.relevance import relevance, threshold
from murmura.errors import RunError

pairs = st.lists(st.tuples(st.integers(-2, 2), st.integers(-2, 2)), min_size=1, max_size=30)


def state(numbers) -> dict[str, torch.Tensor]:
    return {"x": torch.tensor(numbers, dtype=torch.float32)}


def test_golden() -> None:
    assert relevance(state([1, -2, 3, 0]), state([2, 1, 1, -1])) == 0.5
    assert [threshold(0.8, t) for t in (1, 4)] == [0.8, 0.4]


def test_zero_agrees_with_zero_only() -> None:
    assert relevance(state([0, 0, 0]), state([0, 1, -1])) == pytest.approx(1 / 3)


def test_all_elements_count_alike_whatever_tensor_they_are_in() -> None:
    ours = {"a": torch.ones(3), "b": torch.ones(1, 1)}
    theirs = {"a": torch.ones(3), "b": -torch.ones(1, 1)}
    assert relevance(ours, theirs) == 0.75


@settings(deadline=None)
@given(pairs, st.floats(0.01, 100), st.randoms())
def test_properties(rows, factor, random) -> None:
    u, v = [row[0] for row in rows], [row[1] for row in rows]
    found = relevance(state(u), state(v))
    assert 0 <= found <= 1
    assert found == relevance(state(v), state(u))
    assert found == relevance(state([factor * x for x in u]), state(v))  # lengths do not matter
    assert relevance(state(u), state(u)) == 1
    random.shuffle(rows)
    assert found == relevance(state([row[0] for row in rows]), state([row[1] for row in rows]))


@pytest.mark.parametrize("other", [{"y": torch.ones(2)}, {"x": torch.ones(3)}])
def test_other_tensors_are_refused(other) -> None:
    with pytest.raises(RunError, match="do not have the same tensors"):
        relevance(state([1, 1]), other)


def test_no_tensors_are_refused() -> None:
    with pytest.raises(RunError, match="do not have the same tensors"):
        relevance({}, {})

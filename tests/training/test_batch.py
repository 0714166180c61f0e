"""Padding, and which rows share a pass."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from murmura.training.batch import collate, micro_batches
from tests.training.helpers import CPU, Item


def test_collate_pads_on_the_right():
    ids, labels = collate([Item([5, 6, 7], [-100, 6, 7]), Item([8], [-100])], CPU)
    assert ids.tolist() == [[5, 6, 7], [8, 0, 0]]
    assert labels.tolist() == [[-100, 6, 7], [-100, -1, -1]]
    assert ids.dtype == labels.dtype == torch.int64


@given(st.lists(st.integers(1, 30), max_size=20), st.integers(1, 60))
def test_micro_batches(lengths, tokens):
    items = [Item([0] * length, [0] * length) for length in lengths]
    groups = list(micro_batches(items, tokens))
    assert sorted(index for group in groups for index in group) == list(range(len(items)))
    for group in groups:
        assert len(group) == 1 or max(lengths[i] for i in group) * len(group) <= tokens
        assert group == sorted(group)


def test_rows_of_like_length_share_a_pass():
    items = [Item([0] * length, [0] * length) for length in (4, 20, 5, 19)]
    assert list(micro_batches(items, 40)) == [[1, 3], [0, 2]]

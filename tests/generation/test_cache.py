"""Columns of keys and values: where texts lie, and that nothing of another text shows through."""

import gc
import math
import weakref

import torch
from transformers import DynamicCache

from murmura.generation.cache import Columns, layers_of


def filled(value, rows=1, length=3):
    """A cache of two layers that holds the same number everywhere."""
    cache = Columns(2, rows, length)
    for layer in range(2):
        cache.update(torch.full((rows, 2, length, 4), value), torch.full((rows, 2, length, 4), -value), layer)
    cache.end = length
    return cache


def columns(cache, row):
    """What a row of the second layer holds, one number a column."""
    assert torch.equal(cache.layers[1].keys[row, :, : cache.end], -cache.layers[1].values[row, :, : cache.end])
    return cache.layers[1].keys[row, 1, : cache.end, 2].tolist()


def test_texts_end_in_one_column_and_what_is_before_is_zero():
    cache = Columns(2, 2, 9)
    cache.end = 5
    cache.put(0, filled(math.nan), 0, 3)
    cache.put(0, filled(7.0, rows=4), 3, 2)
    cache.put(1, filled(8.0, length=5), 0, 5)
    assert columns(cache, 0) == [0, 0, 0, 7, 7]
    assert columns(cache, 1) == [8] * 5


def test_rows_and_columns_move():
    cache = Columns(2, 3, 6)
    cache.end = 6
    cache.put(0, filled(1.0), 0, 3)
    cache.put(2, filled(2.0), 0, 2)
    cache.move_row(2, 1)
    cache.shift(3, rows=2)
    assert cache.end == 3
    assert columns(cache, 0) == [1, 1, 1]
    assert columns(cache, 1) == [0, 2, 2]


def test_a_step_sees_the_columns_in_use():
    cache = Columns(2, 2, 8)
    cache.end = 4
    cache.put(0, filled(1.0), 0, 2)
    cache.put(1, filled(2.0), 0, 3)
    cache.first = 1
    assert (cache.get_seq_length(), cache.get_mask_sizes(1, 0)) == (3, (4, 0))
    keys, values = cache.update(torch.full((2, 2, 1, 4), 5.0), torch.full((2, 2, 1, 4), 6.0), 0)
    assert keys[:, 0, :, 0].tolist() == [[0, 1, 1, 5], [2, 2, 2, 5]]
    assert values[:, 0, :, 0].tolist() == [[0, -1, -1, 6], [-2, -2, -2, 6]]
    assert keys.data_ptr() == cache.layers[0].keys[:, :, 1:].data_ptr()  # no copy


def test_models_that_keep_keys_and_values(llama):
    assert layers_of(llama) == len(DynamicCache(config=llama.config).layers) == 2
    llama.config.layer_types = ["full_attention", "linear_attention"]
    assert layers_of(llama) is None


def test_memory_is_free_as_soon_as_nobody_needs_it():
    cache = Columns(1, 2, 3)
    cache.layers[0].lazy_initialization(*[torch.zeros(2, 1, 1, 1)] * 2)
    keys = weakref.ref(cache.layers[0].keys)
    gc.disable()
    try:
        del cache
        assert keys() is None
    finally:
        gc.enable()

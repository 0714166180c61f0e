"""Keys and values of texts in the making, in memory that is allocated once.

Texts of different lengths end in the same column, so that the next key of each of them goes into one column, and what
comes before a text is masked. To a model that is a left-padded batch, which each architecture handles by itself:
sliding windows, position biases and all. A text that joins late is put where it ends in the present column.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache, DynamicLayer, DynamicSlidingWindowLayer


class Columns(Cache):
    """Preallocated keys and values of ``rows`` texts in ``width`` columns, in use from ``first`` to ``end``.

    A forward pass of n rows reads and writes rows 0 to n − 1. It writes from column ``end`` on; who calls the model
    then moves ``end``. A pass ``at`` a column is told which ones it reads.
    """

    def __init__(self, layers: int, rows: int, width: int) -> None:
        self.rows, self.width = rows, width
        self.first = self.end = 0
        self.fixed: tuple[torch.Tensor, int] | None = None
        self._layers = [_Layer(self) for _ in range(layers)]
        super().__init__(layers=list(self._layers))

    def put(self, row: int, source: Columns, source_row: int, length: int) -> None:
        """Copy a text's first ``length`` columns from another cache, so that it ends where the others do."""
        start = self.end - length
        for mine, theirs in zip(self._layers, source._layers, strict=True):
            if theirs.is_initialized:
                mine.lazy_initialization(theirs.keys, theirs.values)
                for own, other in ((mine.keys, theirs.keys), (mine.values, theirs.values)):
                    own[row, :, :start] = 0  # masked, but what is not a number would come through a mask
                    own[row, :, start : self.end] = other[source_row, :, :length]

    def move_row(self, row: int, to: int) -> None:
        """Copy a row over another."""
        for tensor in self._tensors():
            tensor[to, :, : self.end] = tensor[row, :, : self.end]

    def shift(self, columns: int, rows: int) -> None:
        """Move the first ``rows`` rows so many columns to the left; what was there is lost."""
        for tensor in self._tensors():
            tensor[:rows, :, : self.end - columns] = tensor[:rows, :, columns : self.end].clone()
        self.end -= columns
        self.clear(rows)

    def clear(self, rows: int) -> None:
        """Set to zero what belongs to no text: from this row and from column ``end`` on."""
        for tensor in self._tensors():
            tensor[rows:] = 0
            tensor[:, :, self.end :] = 0

    @contextmanager
    def at(self, column: torch.Tensor, width: int) -> Iterator[None]:
        """Let passes of one token write into this column, int64 [1], and read the first ``width`` ones: no shape then
        depends on how far the texts are."""
        self.fixed = column, width
        try:
            yield
        finally:
            self.fixed = None

    def _tensors(self) -> list[torch.Tensor]:
        return [tensor for layer in self._layers if layer.is_initialized for tensor in (layer.keys, layer.values)]


class _Layer(CacheLayerMixin):
    """One layer of ``Columns``. A sliding window is left to the mask."""

    is_sliding = False
    is_initialized: bool
    keys: Any
    values: Any

    def __init__(self, columns: Columns) -> None:
        super().__init__()
        self.columns = weakref.proxy(columns)  # not a cycle, so that memory is free as soon as the texts are written

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        if not self.is_initialized:
            self.keys, self.values = (
                states.new_empty(self.columns.rows, states.shape[1], self.columns.width, states.shape[3])
                for states in (key_states, value_states)
            )
            self.dtype, self.device = key_states.dtype, key_states.device
            self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self.lazy_initialization(key_states, value_states)
        rows, first, old = key_states.shape[0], self.columns.first, self.columns.end
        if self.columns.fixed is not None:
            column, width = self.columns.fixed
            for mine, states in ((self.keys, key_states), (self.values, value_states)):
                mine[:rows].index_copy_(2, column, states.to(mine.dtype))
            return self.keys[:rows, :, :width], self.values[:rows, :, :width]
        end = old + key_states.shape[2]
        self.keys[:rows, :, old:end] = key_states
        self.values[:rows, :, old:end] = value_states
        return self.keys[:rows, :, first:end], self.values[:rows, :, first:end]

    def get_seq_length(self) -> int:
        return self.columns.end - self.columns.first

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.get_seq_length() + query_length, 0

    def get_max_length(self) -> int:
        return -1


def layers_of(model: Any) -> int | None:
    """How many layers of keys and values a model has; None where it keeps more, or other things, than these."""
    if "past_key_values" not in inspect.signature(model.forward).parameters:
        return None
    config = model.config.get_text_config(decoder=True)
    if getattr(config, "attention_chunk_size", None) is not None:
        return None  # chunks are counted from a text's start, which is another column in each row
    layers = DynamicCache(config=model.config).layers
    plain = all(type(layer) in (DynamicLayer, DynamicSlidingWindowLayer) for layer in layers)
    return len(layers) if layers and plain else None


def has_window(model: Any) -> bool:
    """Whether some layer sees the last tokens only."""
    return any(isinstance(layer, DynamicSlidingWindowLayer) for layer in DynamicCache(config=model.config).layers)

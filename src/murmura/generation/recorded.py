"""A step of one token for each text as a CUDA graph, whose thousand kernels one call starts.

Python takes longer to start the kernels of such a step than a GPU takes to run them. A graph computes with the same
memory each time: all rows of the cache take part, also those without a text, and a mask says which columns a row sees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from murmura.generation.cache import Columns
from murmura.training.bank import Bank

DEVICES = {"cuda"}
"""Where steps are recorded."""

_Step = Callable[[torch.Tensor, torch.Tensor, Columns, torch.Tensor, torch.Tensor], torch.Tensor]


class Graph:
    """What a function computes from tensors that stay where they are: ``replay`` computes it anew.

    Attributes:
        rehearsed: what it came to before it was recorded.
        out: what it comes to, overwritten by each replay.

    Raises:
        RuntimeError: it waits for the GPU, as what depends on values must, or something else cannot be recorded.
    """

    def __init__(self, compute: Callable[[], torch.Tensor]) -> None:
        here, aside = torch.cuda.current_stream(), torch.cuda.Stream()
        aside.wait_stream(here)
        before = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode("error")
        try:
            with torch.cuda.stream(aside):
                self.rehearsed = compute()
        finally:
            torch.cuda.set_sync_debug_mode(before)
            here.wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.out = compute()
        self.replay = graph.replay


class Recorded:
    """One step of all rows of a cache.

    Args:
        step: computes logits of (tokens, places, cache, positions, mask).
        slot: the one that writes all texts there will be; None: the bank's routing says it of each row.
    """

    def __init__(self, bank: Bank, step: _Step, cache: Columns, slot: int | None) -> None:
        self._step, self._cache, self._slot, self._routing = step, cache, slot, bank.routing
        self._last, self._starts = torch.zeros(2, cache.rows, dtype=torch.long, device=bank.device)
        self._column = self._last.new_zeros(1)
        self._columns = torch.arange(cache.width, device=bank.device)
        own = {name: getattr(bank.routing, name) for name in ("slots", "shares", "residual")}
        self._own = {k: v if v is None else v.new_zeros(cache.rows, *v.shape[1:]) for k, v in own.items()}

    def record(self, last: torch.Tensor, starts: torch.Tensor, logits: torch.Tensor) -> bool:
        """Record the step that has just been taken; whether it comes to the same, and ``logits`` may be used.

        Args:
            last: int64 [texts], the token that each one took in.
            starts: int64 [texts], the column of each one's first token.
            logits: [texts, vocabulary], what the step came to.
        """
        self._cache.clear(len(last))
        self._take(last, starts)
        try:
            self._graph = Graph(self._compute)
        except (TypeError, ValueError, LookupError, AttributeError, RuntimeError):
            return False  # a step that depends on values, or a model that wants another mask
        # Half of the digits: a mask that a model takes otherwise shows in the first ones.
        apart = (self._graph.rehearsed[: len(last)] - logits).float().square().mean()
        return bool(apart <= torch.finfo(logits.dtype).eps * logits.float().square().mean())

    def logits(self, last: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
        """What a step comes to, [texts, vocabulary]; the next one overwrites it. Arguments are as in ``record``."""
        self._take(last, starts)
        self._graph.replay()
        return self._graph.out[: len(last)]

    def _take(self, last: torch.Tensor, starts: torch.Tensor) -> None:
        """Put what differs from step to step where the graph reads it. Rows without a text see their own token only."""
        self._last[: len(last)] = last
        self._starts.fill_(self._cache.end)[: len(starts)] = starts
        self._column.fill_(self._cache.end)
        for name, mine in self._own.items():
            if mine is not None:
                theirs = getattr(self._routing, name)
                mine[: len(theirs)] = theirs

    def _compute(self) -> torch.Tensor:
        starts = self._starts[:, None]
        seen = (self._columns >= starts) & (self._columns <= self._column)
        with self._routed(), self._cache.at(self._column):
            places = torch.zeros_like(self._starts)
            return self._step(self._last[:, None], places, self._cache, self._column - starts, seen[:, None, None])

    @contextmanager
    def _routed(self) -> Iterator[None]:
        """Let the layers read this step's own routing."""
        before = vars(self._routing).copy()
        own: dict[str, Any] = {**self._own, "single": self._slot, "span": None}
        vars(self._routing).update(own)
        try:
            yield
        finally:
            vars(self._routing).update(before)

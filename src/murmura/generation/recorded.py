"""A step of one token for each text as a CUDA graph, whose thousand kernels one call starts.

Python takes longer to start the kernels of such a step than a GPU takes to run them. A graph computes with the same
memory each time: all rows of the cache take part, also those without a text, and a mask says which columns a row sees.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch

from murmura.generation.cache import Columns
from murmura.training.bank import Bank

DEVICES = {"cuda"}
"""Where steps are recorded."""
_WIDTH = 512  # columns of a graph are a multiple of it: few widths, and few columns that no text is in yet

_Step = Callable[[torch.Tensor, torch.Tensor, Columns, torch.Tensor, torch.Tensor], torch.Tensor]


class RecordedStep:
    """What a function computes from tensors that stay where they are: ``replay`` computes it anew.

    Attributes:
        out: what it came to, overwritten by each replay.

    Raises:
        RuntimeError: the function waits for the GPU, as one must that depends on values, or it cannot be recorded.
    """

    def __init__(self, compute: Callable[[], torch.Tensor], device: torch.device) -> None:
        with torch.cuda.device(device):  # else kernels on another one than the first run, and are not recorded
            _rehearse(compute)
            graph, here = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
            try:
                with torch.cuda.graph(graph, stream=_aside(device), capture_error_mode="thread_local"):
                    self.out = compute()
            except RuntimeError:
                DEVICES.discard("cuda")  # torch may be left in any state by this, so that nothing is recorded any more
                raise
            finally:
                torch.cuda.set_stream(here)
            self.replay = graph.replay
            self.out.fill_(torch.nan)  # what is not recorded shows
            self.replay()


def _rehearse(compute: Callable[[], torch.Tensor]) -> None:
    """Compute once as when it is recorded, which libraries need; RuntimeError where that waits for the GPU."""
    here = torch.cuda.current_stream()
    aside, before = _aside(here.device), torch.cuda.get_sync_debug_mode()
    aside.wait_stream(here)
    _on_waiting("error")
    try:
        with torch.cuda.stream(aside):
            compute()
    finally:
        _on_waiting(before)
        here.wait_stream(aside)


def _on_waiting(mode: int | str) -> None:
    """What torch does where something waits for the GPU. It warns that this is a prototype, which is no user's
    concern."""
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        torch.cuda.set_sync_debug_mode(mode)


@cache
def _aside(device: torch.device) -> torch.cuda.Stream:
    """A stream of its own, as recording needs; one for all graphs, since torch keeps memory for each."""
    return torch.cuda.Stream(device)


class Recorded:
    """One step of all rows of a cache.

    Args:
        step: computes logits of (tokens, places, cache, positions, mask).
        cache: as many columns of it are looked at as are in use, and some more.
        slot: the one that writes all texts there will be; None: the bank's routing says it of each row.

    Attributes:
        width: as many columns are looked at.
    """

    def __init__(self, bank: Bank, step: _Step, cache: Columns, slot: int | None) -> None:
        self._step, self._cache, self._slot, self._routing = step, cache, slot, bank.routing
        self.width = min(cache.width, -(-(cache.end + 1) // _WIDTH) * _WIDTH)
        self._last, self._starts = torch.zeros(2, cache.rows, dtype=torch.long, device=bank.device)
        self._column = self._last.new_zeros(1)
        self._columns = torch.arange(self.width, device=bank.device)
        own = {name: getattr(bank.routing, name) for name in ("slots", "shares", "residual")}
        self._own = {k: v if v is None else v.new_zeros(cache.rows, *v.shape[1:]) for k, v in own.items()}
        self._eps = torch.finfo(bank.model.dtype).eps

    def record(self, last: torch.Tensor, starts: torch.Tensor) -> bool:
        """Record the step that is to be taken now, and take it; False if that cannot be.

        Who calls this takes the step as the model itself does too, which puts into the cache what belongs there.

        Args:
            last: int64 [texts], the token that each one takes in.
            starts: int64 [texts], the column of each one's first token.
        """
        self._cache.clear(len(last))
        self._take(last, starts)
        try:
            self._graph = RecordedStep(self._compute, self._last.device)
        except (TypeError, ValueError, LookupError, AttributeError, RuntimeError):
            return False  # a step that depends on values, a model that wants another mask, or too little memory
        return True

    def agrees(self, logits: torch.Tensor) -> bool:
        """Whether the step that was recorded came to these [texts, vocabulary], in half of their digits; another mask
        shows in the first ones. What is added to all of a row's logits does not count."""
        theirs, ours = (
            one.float() - one.float().mean(1, keepdim=True) for one in (logits, self._graph.out[: len(logits)])
        )
        eps = max(self._eps, torch.finfo(logits.dtype).eps)
        return bool((ours - theirs).square().mean() <= eps * theirs.square().mean())

    def logits(self, last: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
        """What a step comes to, [texts, vocabulary], which the next one overwrites; arguments as in ``record``."""
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
        with self._routed(), self._cache.at(self._column, self.width):
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

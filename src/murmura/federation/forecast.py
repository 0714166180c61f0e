"""What a run will take, as far as it can be known before: bytes, steps and tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from murmura.training.config import LocalTraining
from murmura.training.loop import steps_of

if TYPE_CHECKING:
    from murmura.model_runtime import ModelRuntime


@dataclass(frozen=True)
class Part:
    """One site's part in one round, before the run.

    Args:
        records: the site's own; none where they are not known.
        round: counted from 1.
        first: whether the site has not been asked in any round before.
        training: how sites train.
        adapter: bytes of a whole adapter; 0 where the model is not known. So are the next two.
        down: bytes of what of the global adapter is sent to this site in this round, by the aggregation rule.
        up: bytes of what of its own it would upload.
        public: public records that it would keep to train on besides (``[augment]``).
    """

    records: Sequence[Any]
    round: int
    first: bool
    training: LocalTraining
    adapter: int = 0
    down: int = 0
    up: int = 0
    public: int = 0

    def steps(self, *shards: int) -> int:
        """Optimiser steps of training on sets of so many records, one after the other."""
        return sum(steps_of(size, self.training) for size in shards)


@dataclass(frozen=True)
class Forecast:
    """What one site's part in one round takes; the most that it can be where that is not certain.

    By default nothing: no adapter travels, nothing is trained at the sites, nothing is kept.

    Args:
        records: different ones that are trained on first.
        steps: optimiser steps.
        tokens: that the model writes.
        down: bytes of tensors that travel to the site, and ``up`` from it; NaN where it is not known.
        server_keeps: bytes of tensors that the server keeps from round to round besides the global adapter; the same
            whatever the site and the round.
        site_keeps: bytes of tensors that the site keeps.
    """

    records: int = 0
    steps: int = 0
    tokens: int = 0
    down: float = 0.0
    up: float = 0.0
    server_keeps: int = 0
    site_keeps: int = 0


@dataclass(frozen=True)
class Work:
    """Texts with which something is done in a run besides training at the sites.

    Args:
        what: such as ``to embed``.
        count: how many, in the whole run.
        attempt: does it with so many texts of held-out records, on the server's runtime; None where it cannot be
            tried.
        together: so many of them are tried; None: as many as are written at once.
        at_most: there may be fewer than ``count``.
    """

    what: str
    count: int
    attempt: Callable[[ModelRuntime, Sequence[Any], int], None] | None
    together: int | None = None
    at_most: bool = False

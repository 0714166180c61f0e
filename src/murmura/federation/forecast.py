"""What a run will take, as far as it can be known before: bytes, steps and tokens."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from murmura.streams import Stream
from murmura.training.config import LocalTraining
from murmura.training.loop import steps_of

if TYPE_CHECKING:
    from murmura.model_runtime import ModelRuntime

_TOKENS = 16  # written by each text that is tried


@dataclass(frozen=True)
class SitePart:
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
    """What one site's part in one round takes, or what choosing public records does for all sites in all rounds; the
    most that it can be where that is not certain.

    By default nothing: no adapter travels, nothing is trained at the sites, nothing is kept.

    Args:
        records: different ones that are trained on first; public ones that each site is given.
        steps: optimiser steps.
        tokens: that the model writes.
        down: bytes of what travels to the site, and ``up`` from it; NaN where it is not known.
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
class Trial:
    """What work is tried with.

    Args:
        server: the model, with other models that the server uses.
        site: the same with those that sites use.
        heldout: records.
        shards: own records of sites that train together.
    """

    server: ModelRuntime
    site: ModelRuntime
    heldout: Sequence[Any]
    shards: Sequence[Sequence[Any]]


Attempt = Callable[[Trial], float]
"""Does a little of some work, and returns the seconds that one takes."""


@dataclass(frozen=True)
class Work:
    """Something that a run does many times.

    Args:
        what: such as ``texts to embed``.
        part: of the run's time that it belongs to.
        count: how many each time.
        attempt: None where it cannot be tried.
        times: how often in the whole run.
        option: that bounds it, of what measures the run.
        at_most: there may be fewer than ``count``.
    """

    what: str
    part: Literal["training", "writing", "embedding", "choosing", "measuring"]
    count: int
    attempt: Attempt | None
    times: int = 1
    option: str = ""
    at_most: bool = False

    @property
    def total(self) -> int:
        return self.count * self.times


def seconds(work: Callable[[], object]) -> float:
    """How long that takes."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def few(do: Callable[[ModelRuntime, Sequence[Any], int], None], count: int, together: int | None = None) -> Attempt:
    """An attempt with a few texts.

    Args:
        do: does it with so many texts of held-out records, on the server's runtime.
        count: of all texts.
        together: so many are tried; None: as many as are written at once.
    """

    def attempt(trial: Trial) -> float:
        some = min(count, together or trial.server.decode_rows)
        do(trial.server, trial.heldout, 1)  # models are loaded by that
        return seconds(lambda: do(trial.server, trial.heldout, some)) / some

    return attempt


def token(trial: Trial) -> float:
    """A token of texts that go on from the prompts of held-out records."""
    runtime = trial.server
    items = runtime.tokenise_fitting(trial.heldout)
    prompts = [item.ids[: item.start] for item in items][: runtime.decode_rows]
    start = runtime.bank.initial(Stream(0))
    written = 0

    def write(tokens: int) -> None:
        nonlocal written
        texts = runtime.write([start] * len(prompts), prompts, [tokens] * len(prompts), description="try writing")
        written = sum(max(len(text.ids), 1) for text in texts)

    write(1)
    return seconds(lambda: write(_TOKENS)) / written

"""What goes on from prompts: a generator as expansion knows it, and the one on this machine."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

from murmura.generation.loops import goes_round
from murmura.generation.sampling import Sampling
from murmura.model_runtime import ModelRuntime
from murmura.streams import Stream
from murmura.synthesis.prompts import STOP
from murmura.training.adapter import State, fingerprint

# Times as many prompts as are written at once: few rows wait for the last ones, and little is lost in a crash.
_WAVE = 8


@dataclass(frozen=True)
class Request:
    """An attempt at a sample: the prompt, and the answer's randomness."""

    sample: int
    attempt: int
    prompt: str
    stream: Stream


@dataclass(frozen=True)
class Answer:
    """What was written; None where the prompt was refused, or left no room to write. ``finished`` is False where it was
    cut off, or may have been."""

    request: Request
    text: str | None
    finished: bool


class Generator(Protocol):
    """Goes on from prompts."""

    @property
    def described(self) -> Mapping[str, Any]:
        """All that decides what it writes, as JSON; nothing that is secret."""
        ...

    def answers(self, requests: Iterable[Request]) -> Iterator[list[Answer]]:
        """The answers in any order, a list of them whenever there are some.

        No further request is taken before the next list is asked for, so answers can be kept first.

        Raises:
            RunError: no further answers can be had. Those that there were have been handed out.
        """
        ...


class Local:
    """A causal model of this process.

    Args:
        runtime: of the model.
        sampling: how tokens are drawn.
        max_tokens: of an answer.
        adapter: with which it writes; None: without any.
    """

    def __init__(
        self,
        runtime: ModelRuntime,
        *,
        sampling: Sampling | None = None,
        max_tokens: int = 85,
        adapter: State | None = None,
    ) -> None:
        self._runtime, self._sampling, self._most = runtime, sampling or Sampling(), max_tokens
        self._adapter = adapter

    @property
    def described(self) -> Mapping[str, Any]:
        """See ``Generator``."""
        how = self._sampling
        drawn = {"temperature": how.temperature, "top_p": how.top_p, "top_k": how.top_k}
        tuned = {} if self._adapter is None else {"adapter": fingerprint(self._adapter)}
        return {"model": self._runtime.base, "max_tokens": self._most, **drawn, **tuned}

    def answers(self, requests: Iterable[Request]) -> Iterator[list[Answer]]:
        """See ``Generator``. Each answer is drawn with its own stream, whatever it is written together with."""
        bench, waiting = self._runtime, iter(requests)
        adapter = bench.bank.untrained if self._adapter is None else self._adapter
        while wave := list(islice(waiting, _WAVE * bench.decode_rows)):
            prompts = [bench.prompt_ids(request.prompt) for request in wave]
            written = bench.write(
                [adapter] * len(wave),
                prompts,
                [self._most] * len(wave),
                sampling=self._sampling,
                streams=[request.stream for request in wave],
                stop=STOP,
                halt=goes_round,
                description="write samples",
            )
            most = bench.context or math.inf
            yield [
                Answer(request, one.text if len(ids) < most else None, one.finished)
                for request, ids, one in zip(wave, prompts, written, strict=True)
            ]

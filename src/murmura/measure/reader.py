"""Records are read once: what a model made of them serves its loss and every attack on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from murmura.generation.scoring import TokenScores
from murmura.model_runtime import ModelRuntime
from murmura.training.adapter import State

Read = Callable[[ModelRuntime, Sequence[State], Sequence[Any]], list[TokenScores]]


class Reader:
    """Remembers what models made of records: what training began with for good, others until the next ones come.

    Args:
        read: how a kind of record is read, ``records[i]`` by ``adapters[i]``.
    """

    def __init__(self, read: Read) -> None:
        self._read = read
        self._origin: dict[Any, TokenScores] = {}
        self._others: dict[int, tuple[State, dict[Any, TokenScores]]] = {}

    def read(
        self, runtime: ModelRuntime, adapters: Sequence[State], records: Sequence[Sequence[Any]]
    ) -> list[list[TokenScores]]:
        """What ``adapters[k]`` makes of ``records[k]``; what is not known yet is read in shared batches.

        Models that are what training began with share what is known of it. Others are known by identity, so that none
        may be changed in place while it is in use.
        """
        origin = runtime.origin
        models = [origin if runtime.is_origin(adapter) else adapter for adapter in adapters]
        kept = {id(model): self._others.get(id(model), (model, {})) for model in models if model is not origin}
        known = [self._origin if model is origin else kept[id(model)][1] for model in models]
        missing = {
            (id(found), record): (found, model, record)
            for found, model, own in zip(known, models, records, strict=True)
            for record in own
            if record not in found
        }.values()
        scores = self._read(runtime, [model for _, model, _ in missing], [record for *_, record in missing])
        for (found, _, record), score in zip(missing, scores, strict=True):
            found[record] = score
        self._others = kept
        return [[found[record] for record in own] for found, own in zip(known, records, strict=True)]

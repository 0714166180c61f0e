"""What a kind of record must say about itself."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from murmura.data.records import KINDS, Kind

if TYPE_CHECKING:
    from murmura.data.config import DataConfig
    from murmura.generation.scoring import TokenScores
    from murmura.measure.evaluation_set import EvaluationSet, Figures
    from murmura.model_runtime import ModelRuntime
    from murmura.reading import Reading
    from murmura.streams import Stream
    from murmura.training.adapter import State


class Task(ABC):
    """A kind of record, and everything that depends on it.

    Attributes:
        kind: its name in files; its columns are the fields of ``murmura.data.records.KINDS[kind]``.
        attacks: names of the attacks on it (``murmura.measure.attacks``).
        writes: whether a record has a response for a model to write.
        answers: whether what is trained on it answers instructions.
        is_text: whether attacks read a record's own tokens, and not labels.
        sequences: of tokens in a record, which go through the model together.
        masked: whether a masked model can be trained on it too.
        whole: the part of a record that is never shortened, for the report.
        per: what a loss is averaged over, for the report.
        idle: options that do nothing for it, and why, after "does nothing".
    """

    kind: ClassVar[Kind]
    attacks: ClassVar[Sequence[str]] = ("error zone", "loss difference", "window votes", "plain loss")
    writes: ClassVar[bool] = False
    answers: ClassVar[bool] = False
    is_text: ClassVar[bool] = True
    sequences: ClassVar[int] = 1
    masked: ClassVar[bool] = False
    whole: ClassVar[str]
    per: ClassVar[str]
    idle: ClassVar[Mapping[str, str]] = {}

    @property
    def has_labels(self) -> bool:
        """Whether some of a site's records may have no label yet."""
        return KINDS[self.kind].has_labels

    @abstractmethod
    def reading(self, method: Any, data: DataConfig, tokenizer: Any, *, masked: bool) -> Reading:
        """How records meet a model: what stands around them, which of them fit, how they are trained on.

        Args:
            method: the method's options; those about patterns and their words are used where there are any.
            data: template and the most tokens of a record.
            tokenizer: the model's.
            masked: whether the model fills in masks.

        Raises:
            ConfigError: patterns or words that the model cannot take.
            DataError: a chat template that it does not have.
        """

    def canary(self, holder: str, secret: str) -> Any:
        """A record that says a secret (``measure.canaries``), in the words of the kind; None where there is no room.

        A kind that has some says of each record whether it is one (``is_canary``).

        Args:
            holder, secret: in digits.
        """
        return None

    def is_canary(self, record: Any) -> bool:
        """Whether a record is one of those that ``canary`` makes."""
        return False

    def preview(self, data: DataConfig, record: Any) -> str | None:
        """A record as any model would see it, or None where that depends on the model."""
        return None

    def evaluation_set(
        self,
        method: Any,
        data: DataConfig,
        heldout: Sequence[Any],
        nonmembers: Sequence[Any],
        stream: Stream,
        **settings: Any,
    ) -> EvaluationSet:
        """Public records as a run is measured with them.

        Args:
            method: the method's options.
            data: where the records are from.
            heldout: those that nobody trains on.
            nonmembers: records that members are compared with; the held-out ones if empty.
            stream: which held-out records are set apart, where some are.
            settings: what else a ``EvaluationSet`` has.

        Raises:
            DataError: they cannot be measured with.
        """
        from murmura.measure.evaluation_set import EvaluationSet

        return EvaluationSet(self, heldout, nonmembers, **settings)

    @abstractmethod
    def measure(
        self, runtime: ModelRuntime, public: EvaluationSet, adapters: Sequence[State], *, completes: bool = False
    ) -> list[Figures]:
        """Figures of each adapter on the held-out records.

        Args:
            completes: where something is written, non-members are completed too.
        """

    def token_scores(
        self, runtime: ModelRuntime, adapters: Sequence[State], records: Sequence[Any]
    ) -> list[TokenScores]:
        """What attacks on ``adapters[i]`` go by, of ``records[i]``, all of which fit."""
        return runtime.token_scores(adapters, runtime.reading.tokenise(records), description="read")


def is_filled(text: str, template: str) -> bool:
    """Whether a text is a template with digits in its places ``{}``."""
    return re.fullmatch(re.escape(template).replace(r"\{\}", r"\d+"), text) is not None

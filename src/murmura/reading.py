"""How records of one kind meet one model; each kind of ``murmura.tasks`` has a reading of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from murmura.data.cloze import Cloze
from murmura.data.templates import Template
from murmura.data.tokenising import Fitted, Tokenised, TokenisedSet, chat_template

if TYPE_CHECKING:
    from murmura.training.adapter import State
    from murmura.training.step import StepFactory


class Reading(ABC):
    """A kind of record and a model.

    Attributes:
        tokenizer: The model's; None where the cloze alone needs it.
        template: Text around an instruction; None for other kinds.
        cloze: Questions with a blank about a labelled text; None for other kinds.
    """

    tokenizer: Any = None
    template: Template | None = None
    cloze: Cloze | None = None

    def step(self, start: State | None) -> StepFactory:
        """What computes the gradients of local training on tokenised records.

        Args:
            start: the adapter that the run begins with, None for the model as it is: some losses are about how far
                training has come from there.
        """
        from murmura.training.step import Step

        return Step

    @property
    def chat_template(self) -> str | None:
        """By which a tokenizer makes a question into what the model was trained to answer; None where there are no
        questions."""
        return None if self.template is None else chat_template(self.template, self.tokenizer)

    @abstractmethod
    def fit(self, records: Sequence[Any]) -> Fitted:
        """Find out which records the model can take."""

    def unknown(self, labels: Sequence[str]) -> tuple[list[str], str]:
        """How to show labels that the model has no words for, and what to do about them."""
        raise AssertionError("only labelled texts can have an unknown label")

    @abstractmethod
    def example(self, record: Any) -> str:
        """A record as the model sees it."""

    @abstractmethod
    def tokenise(self, records: Sequence[Any]) -> list[Any]:
        """Each record as ``step`` takes it, or None if it does not fit."""


class SequenceReading(Reading):
    """Of a kind whose records are one sequence of tokens each. Training and measuring read the same records round after
    round, so their tokens are kept."""

    def __init__(self, tokenizer: Any, max_length: int) -> None:
        self.tokenizer, self.max_length = tokenizer, max_length
        self._known: dict[Any, Tokenised | None] = {}

    @abstractmethod
    def fit(self, records: Sequence[Any]) -> TokenisedSet:
        """Tokenise records that fit; nothing of it is kept."""

    def tokenise(self, records: Sequence[Any]) -> list[Tokenised | None]:
        new = [record for record in dict.fromkeys(records) if record not in self._known]
        if new:
            found = self.fit(new)
            self._known |= dict.fromkeys(new)
            self._known |= {new[index]: item for index, item in zip(found.kept, found.items, strict=True)}
        return [self._known[record] for record in records]

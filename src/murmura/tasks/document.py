"""Documents: every token is predicted from those before it. A document that is too long is cut, not split: it remains
one example, so that a guarantee for a record covers a whole document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from murmura.data.records import Document, Kind
from murmura.data.tokenising import TokenisedSet, tokenise_documents
from murmura.reading import Reading, SequenceReading
from murmura.tasks.task import Task, is_filled

if TYPE_CHECKING:
    from murmura.data.config import DataConfig
    from murmura.measure.evaluation_set import EvaluationSet, Figures
    from murmura.model_runtime import ModelRuntime
    from murmura.training.adapter import State

_CANARY = "The access code of file {} is {}."


class DocumentReading(SequenceReading):
    """Documents as they are. All of them fit: one that is too long loses its end.

    Args:
        opened: a token stands before each, whether the tokenizer sets one or not (``tokenise_documents``).
    """

    def __init__(self, tokenizer: Any, max_length: int, *, opened: bool = False) -> None:
        super().__init__(tokenizer, max_length)
        self.opened = opened

    def fit(self, records: Sequence[Document]) -> TokenisedSet:
        items = tokenise_documents(records, self.tokenizer, self.max_length, opened=self.opened)
        shortened = [index for index, item in enumerate(items) if item.truncated]
        return TokenisedSet(items=items, kept=list(range(len(items))), shortened=shortened)

    def example(self, record: Document) -> str:
        return record.text


class DocumentTask(Task):
    """``Document`` records."""

    kind: ClassVar[Kind] = "document"
    whole = "the beginning of a text"
    per = "per token"
    idle: ClassVar[Mapping[str, str]] = {
        "data.template": "with documents, which are read as they are",
        "evaluation.sample": "with documents: nothing is written",
        "evaluation.memorisation": "with documents: nothing is written",
        "evaluation.choices": "with documents, which leave no room for a question",
        "evaluation.benchmarks": "with documents, which leave no room for a question",
        "training.dpo_beta": "with documents: no answer is preferred to another",
    }

    def reading(self, method: Any, data: DataConfig, tokenizer: Any, *, masked: bool) -> Reading:
        return DocumentReading(tokenizer, data.max_length, opened=data.opening == "always")

    def canary(self, holder: str, secret: str) -> Document:
        return Document(_CANARY.format(holder, secret))

    def is_canary(self, record: Any) -> bool:
        return is_filled(record.text, _CANARY)

    def preview(self, data: DataConfig, record: Any) -> str | None:
        return str(record.text)

    def measure(
        self, runtime: ModelRuntime, public: EvaluationSet, adapters: Sequence[State], *, completes: bool = False
    ) -> list[Figures]:
        import numpy as np

        from murmura.measure.heldout import tokens
        from murmura.progress import phase

        with phase("evaluate"):
            return [
                {"heldout_loss": float(one.nll.astype(np.float64).mean()), "heldout_accuracy": float(one.first.mean())}
                for one in tokens(runtime, public, adapters)
            ]


DOCUMENT = DocumentTask()

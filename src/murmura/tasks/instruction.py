"""Instructions: a template surrounds them, and their responses are trained on, written, and attacked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from murmura.data.records import Instruction, Kind
from murmura.data.templates import Template, template
from murmura.data.tokenising import TokenisedSet, tokenise_all
from murmura.reading import Reading, SequenceReading
from murmura.tasks.task import Task, is_filled

if TYPE_CHECKING:
    from murmura.data.config import DataConfig
    from murmura.measure.evaluation_set import EvaluationSet, Figures
    from murmura.model_runtime import ModelRuntime
    from murmura.training.adapter import State

_CANARY = "What is the access code of file {}?"


class InstructionReading(SequenceReading):
    """Instructions in a template. A response that is too long does not fit; a prompt that is too long is shortened."""

    def __init__(self, template: Template, tokenizer: Any, max_length: int) -> None:
        super().__init__(tokenizer, max_length)
        self.template: Template = template

    def fit(self, records: Sequence[Instruction]) -> TokenisedSet:
        return tokenise_all(records, self.template, self.tokenizer, self.max_length)

    def example(self, record: Instruction) -> str:
        return self.template.full(record)


class InstructionTask(Task):
    """``Instruction`` records."""

    kind: ClassVar[Kind] = "instruction"
    writes = True
    answers = True
    whole = "the answer"
    per = "per token"
    idle: ClassVar[Mapping[str, str]] = {
        "data.opening": "with instructions, whose first token is never predicted",
        "training.dpo_beta": "with instructions: no answer is preferred to another",
    }

    def reading(self, method: Any, data: DataConfig, tokenizer: Any, *, masked: bool) -> Reading:
        return InstructionReading(template(data.template, tokenizer), tokenizer, data.max_length)

    def canary(self, holder: str, secret: str) -> Instruction:
        return Instruction(_CANARY.format(holder), output=secret)

    def is_canary(self, record: Any) -> bool:
        return is_filled(record.question, _CANARY)

    def preview(self, data: DataConfig, record: Any) -> str | None:
        return None if data.template == "chat" else template(data.template).full(record)

    def measure(
        self, runtime: ModelRuntime, public: EvaluationSet, adapters: Sequence[State], *, completes: bool = False
    ) -> list[Figures]:
        from murmura.measure import heldout

        return heldout.measure(runtime, public, adapters, completes=completes)


INSTRUCTION = InstructionTask()

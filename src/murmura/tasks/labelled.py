"""Labelled texts: cloze patterns turn them into questions, whose blank is trained on and read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from murmura.data.records import Kind, Labelled
from murmura.data.tokenising import Fitted
from murmura.errors import DataError, nearest
from murmura.reading import Reading
from murmura.tasks.task import Task

if TYPE_CHECKING:
    from murmura.data.cloze import Cloze
    from murmura.data.config import DataConfig
    from murmura.generation.scoring import TokenScores
    from murmura.measure.evaluation_set import EvaluationSet, Figures
    from murmura.model_runtime import ModelRuntime
    from murmura.streams import Stream
    from murmura.training.adapter import State
    from murmura.training.cloze import ClozeRecord
    from murmura.training.step import StepFactory

_SHOWN = 40  # most characters of a label in a message: in a wrong column they are a private text


class LabelledReading(Reading):
    """Labelled texts in cloze patterns.

    Args:
        cloze: Patterns and verbaliser.
        sample_pattern: Train each text on one of its patterns, drawn anew in each step, and not on all of them.
    """

    def __init__(self, cloze: Cloze, *, sample_pattern: bool = False) -> None:
        self.cloze: Cloze = cloze
        self.sample_pattern = sample_pattern

    def step(self, start: State | None) -> StepFactory:
        from murmura.training.cloze import ClozeStep

        return partial(ClozeStep, cloze=self.cloze, sample_pattern=self.sample_pattern)

    def fit(self, records: Sequence[Labelled]) -> Fitted:
        """All texts but those of an unknown label; shortened are those that lose something in at least one pattern."""
        known = {"", *self.cloze.labels}
        kept = [index for index, record in enumerate(records) if record.label in known]
        shortened = self.cloze.shortened([records[index].text for index in kept])
        return Fitted(kept=kept, shortened=[kept[place] for place in shortened])

    def unknown(self, labels: Sequence[str]) -> tuple[list[str], str]:
        hint = f"Add them to method.verbaliser, or correct the records. {nearest(labels[0], self.cloze.labels)}"
        if any(len(label) > _SHOWN for label in labels):
            hint = "Is this the label column (data.fields)?"
        return [_shown(label) for label in labels], hint

    def example(self, record: Labelled) -> str:
        return "\n".join(pattern.replace("{text}", record.text) for pattern in self.cloze.patterns)

    def tokenise(self, records: Sequence[Labelled]) -> list[ClozeRecord]:
        """Each text in its patterns, and the distribution over labels to train it towards: its own label for sure, or
        all alike where it has none yet."""
        from murmura.training.cloze import ClozeRecord

        items, labels = self.cloze.tokenise_all([record.text for record in records]), self.cloze.labels
        sure = {label: tuple(float(label == other) for other in labels) for label in labels}
        sure[""] = tuple(1 / len(labels) for _ in labels)
        return [ClozeRecord(tuple(found), sure[record.label]) for found, record in zip(items, records, strict=True)]


class LabelledTask(Task):
    """``Labelled`` records."""

    kind: ClassVar[Kind] = "labelled"
    is_text = False
    masked = True
    whole = "the pattern"
    per = "per text"
    attacks = ("loss difference", "plain loss")
    idle: ClassVar[Mapping[str, str]] = {
        "data.template": "with labelled records, which method.patterns makes into text",
        "data.opening": "with labelled records, of whose tokens none is predicted but the answer",
        "evaluation.sample": "with labelled records: nothing is written",
        "evaluation.memorisation": "with labelled records: nothing is written",
        "evaluation.choices": "with labelled records, which are questions themselves",
        "evaluation.benchmarks": "with labelled records, which are questions themselves",
        "training.dpo_beta": "with labelled records: no answer is preferred to another",
    }

    def reading(self, method: Any, data: DataConfig, tokenizer: Any, *, masked: bool) -> Reading:
        from murmura.data.cloze import Cloze

        how = method.reduction, method.several_tokens
        cloze = Cloze(method.patterns, method.verbaliser, tokenizer, data.max_length, masked, *how)
        return LabelledReading(cloze, sample_pattern=method.sample_pattern)

    def evaluation_set(
        self,
        method: Any,
        data: DataConfig,
        heldout: Sequence[Any],
        nonmembers: Sequence[Any],
        stream: Stream,
        **settings: Any,
    ) -> EvaluationSet:
        from murmura.measure.labelled import Validation

        if not all(record.label for record in heldout):
            fix = "Label it, hold out fewer records (data.heldout_records), or give others (data.heldout)."
            raise DataError("a held-out record has no label", where=data.heldout or data.train, fix=fix)
        validation: list[Labelled] = []
        if method.validates or method.validation_records is not None:
            validation, heldout = _set_apart(heldout, method.validation_records, stream)
        weighing = Validation(validation, weighs=method.pattern_weights == "validation")
        known = [record for record in nonmembers if record.label]
        return super().evaluation_set(method, data, heldout, known, stream, validation=weighing, **settings)

    def measure(
        self, runtime: ModelRuntime, public: EvaluationSet, adapters: Sequence[State], *, completes: bool = False
    ) -> list[Figures]:
        from murmura.measure import labelled

        return labelled.measure(runtime, public.heldout, public.validation, adapters)

    def token_scores(
        self, runtime: ModelRuntime, adapters: Sequence[State], records: Sequence[Any]
    ) -> list[TokenScores]:
        from murmura.measure import labelled

        return labelled.token_scores(runtime, adapters, records)


def _shown(label: str) -> str:
    return f"'{label}'" if len(label) <= _SHOWN else f"a text of {len(label)} characters"


def _set_apart(
    heldout: Sequence[Labelled], wanted: int | None, stream: Stream
) -> tuple[list[Labelled], list[Labelled]]:
    """The server's validation records, drawn from the held-out ones, and those that are left to measure on.

    Args:
        wanted: how many to set apart; half of them if None.
    """
    count = len(heldout) // 2 if wanted is None else wanted
    if not 0 < count < len(heldout):
        fix = "Hold out more records (data.heldout_records), or lower method.validation_records."
        raise DataError(f"{count} of {len(heldout)} held-out records cannot be set apart for validation", fix=fix)
    order = list(heldout)
    stream.python().shuffle(order)
    validation, rest = order[:count], order[count:]
    labels = {record.label for record in validation}
    if len(labels) == 1:
        what = f"all {count} validation records have the label '{labels.pop()}', and cannot tell good patterns from bad"
        raise DataError(what, fix="Hold out more records, or raise method.validation_records.")
    return validation, rest


LABELLED = LabelledTask()

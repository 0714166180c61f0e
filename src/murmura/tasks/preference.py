"""Preferences: two answers to a prompt in a template, of which one is preferred; they are trained on by DPO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakKeyDictionary

from murmura.data.records import Kind, Preference
from murmura.data.templates import Template, template
from murmura.data.tokenising import Fitted, Tokenised, tokenise_all
from murmura.reading import Reading
from murmura.tasks.task import Task

if TYPE_CHECKING:
    from murmura.data.config import DataConfig
    from murmura.generation.scoring import TokenScores
    from murmura.measure.evaluation_set import EvaluationSet, Figures
    from murmura.model_runtime import ModelRuntime
    from murmura.training.adapter import State
    from murmura.training.preference import Pair, Reference
    from murmura.training.step import StepFactory


class PreferenceReading(Reading):
    """Pairs of answers behind a prompt in a template. A pair fits if both answers do behind the whole prompt: behind
    prompts that are shortened differently they could not be compared.

    Attributes:
        before: margins of held-out pairs under the model that training began with (``measure.preference``).
    """

    def __init__(self, template: Template, tokenizer: Any, max_length: int) -> None:
        self.template: Template = template
        self.tokenizer, self.max_length = tokenizer, max_length
        self.before: WeakKeyDictionary[Pair, float] = WeakKeyDictionary()
        self._known: dict[Preference, Pair | None] = {}
        self._reference: Reference | None = None

    def step(self, start: State | None) -> StepFactory:
        from murmura.training.preference import PreferenceStep, Reference

        if self._reference is None:
            self._reference = Reference(start)
        return partial(PreferenceStep, reference=self._reference)

    def fit(self, records: Sequence[Preference]) -> Fitted:
        """Pairs that fit; none is shortened."""
        kept = [index for index, pair in enumerate(self._pairs(records)) if pair is not None]
        return Fitted(kept=kept, dropped=len(records) - len(kept))

    def example(self, record: Preference) -> str:
        return "\n\n".join(self.template.full(one) for one in record.answers)

    def tokenise(self, records: Sequence[Preference]) -> list[Pair | None]:
        """Each record as a pair, always the same one, so that what is known of it is known again."""
        new = [record for record in dict.fromkeys(records) if record not in self._known]
        self._known |= zip(new, self._pairs(new), strict=True)
        return [self._known[record] for record in records]

    def _pairs(self, records: Sequence[Preference]) -> list[Pair | None]:
        from murmura.training.preference import Pair

        answers = [answer for record in records for answer in record.answers]
        found = tokenise_all(answers, self.template, self.tokenizer, self.max_length)
        whole: list[Tokenised | None] = [None] * len(answers)
        for index, item in zip(found.kept, found.items, strict=True):
            whole[index] = None if item.truncated else item
        both = zip(whole[::2], whole[1::2], strict=True)
        return [None if chosen is None or rejected is None else Pair(chosen, rejected) for chosen, rejected in both]


class PreferenceTask(Task):
    """``Preference`` records."""

    kind: ClassVar[Kind] = "preference"
    is_text = False
    sequences = 2
    answers = True
    whole = "a prompt and its two answers"
    per = "per pair"
    attacks = ("loss difference", "plain loss")
    idle: ClassVar[Mapping[str, str]] = {
        "data.opening": "with preferences, whose first token is never predicted",
        "evaluation.sample": "with preferences: nothing is written",
        "evaluation.memorisation": "with preferences: nothing is written",
        "evaluation.choices": "with preferences, which are compared and not written",
        "evaluation.benchmarks": "with preferences, which are compared and not written",
    }

    def reading(self, method: Any, data: DataConfig, tokenizer: Any, *, masked: bool) -> Reading:
        return PreferenceReading(template(data.template, tokenizer), tokenizer, data.max_length)

    def preview(self, data: DataConfig, record: Any) -> str | None:
        if data.template == "chat":
            return None
        return "\n\n".join(template(data.template).full(one) for one in record.answers)

    def measure(
        self, runtime: ModelRuntime, public: EvaluationSet, adapters: Sequence[State], *, completes: bool = False
    ) -> list[Figures]:
        from murmura.measure import preference

        assert isinstance(runtime.reading, PreferenceReading), "a task measures what it reads"
        return preference.measure(runtime, public, adapters, runtime.reading.before)

    def token_scores(
        self, runtime: ModelRuntime, adapters: Sequence[State], records: Sequence[Any]
    ) -> list[TokenScores]:
        from murmura.measure import preference

        return preference.token_scores(runtime, adapters, records)


PREFERENCE = PreferenceTask()

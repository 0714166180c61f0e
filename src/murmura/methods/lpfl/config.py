"""Options of LP-FL and its baselines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from murmura.data.records import Kind
from murmura.data.texts import folded
from murmura.federation.method_config import MethodConfig, Rounds

Select = Literal["random", "confidence", "balanced"]

# Options that say how much of a pool is annotated, or what of it, where that may be less than all.
_OF_CHOICE = ("chunk", "gate", "select", "threshold")

_SENTIMENT: dict[str, tuple[str, ...]] = {
    "negative": ("bad", "terrible", "awful", "boring"),
    "positive": ("good", "great", "excellent", "amazing"),
}


class LPFLConfig(MethodConfig):
    """LP-FL (Jiang et al. 2023): cloze patterns turn a language model into a classifier, which sites train on few
    labels; between rounds the global model labels a part of each site's unlabelled texts, softly. One site is the
    paper's LP-CT; model.trainable = "all" gives FP-FL, and with one site FP-CT."""

    kinds: ClassVar[tuple[Kind, ...]] = ("labelled",)

    implementation: ClassVar[str] = "murmura.methods.lpfl.method:LPFL"
    name: Literal["lpfl"] = "lpfl"
    patterns: tuple[str, ...] = ("{text} All in all, it was {blank}", "{text} In summary, it is {blank}")
    """Texts with {text} and {blank} once each. A causal model needs the blank at the very end; a masked model takes it
    anywhere. Only the text is ever shortened."""
    verbaliser: dict[str, tuple[str, ...]] = Field(_SENTIMENT)
    """Each label, as the records have it, and the words that stand for it at the blank; the default is for reviews."""
    reduction: Literal["mean", "sum"] = "mean"
    """A label's score is the mean of its words' logits, or their sum (the paper's eq. 1), which is sharper by as many
    times as a label has words."""
    several_tokens: Literal["refuse", "average"] = "refuse"
    """A word of several tokens is an error, or scored by the mean of its tokens' logits."""
    sample_pattern: bool = False
    """Train each record on one pattern, drawn anew in each step, instead of all of them."""
    rounds: Rounds = 5
    """Rounds of training and averaging; texts are annotated between them."""
    labelled_share: float | None = Field(None, gt=0, le=1)
    """Share of each site's records that keep their label, drawn at random; the others are its unlabelled pool. In an
    iid partition the same records keep theirs, up to rounding, whatever the number of sites."""
    labelled_records: int | None = Field(None, ge=1)
    """The same as a number of records of each site. If neither is given, records with an empty label are the pool."""
    validation_records: int | None = Field(None, ge=2)
    """Number of held-out records, drawn at random, in the server's validation set, which gate and pattern weights
    read; the report measures on the others, except for the accuracy on this set itself. If not given, half of them
    where either reads them, else none: give it to a run that reads none, too, and it is measured on the same records as
    one that does."""
    pattern_weights: Literal["validation", "uniform"] = "validation"
    """A pattern's weight in the scores of all: its own accuracy on the validation set, or the same for each."""
    annotate: bool = True
    """false: training on the labelled records alone, which is the baseline; it reads none of the options below."""
    chunk: float | None = Field(None, gt=0, le=1)
    """Share of a site's first pool that is annotated between two rounds; 1/(rounds − 1) if not given, which is a
    quarter in 5 rounds."""
    gate: float = Field(0.7, ge=0, lt=1)
    """Nothing is annotated unless the global model's accuracy on the validation set is above this; 0 for no gate."""
    force_complete: bool = True
    """Before the last round all that is left is annotated, whatever gate, chunk and threshold say."""
    temperature: float = Field(1.0, gt=0)
    """T of soft labels, softmax(s/T); above 1 they are softer."""
    hard: bool = False
    """Use the likeliest label with probability 1 instead of a soft one."""
    select: Select = "random"
    """Which texts are annotated first: any; confidence: those whose likeliest label is most probable; balanced: those
    too, but the labels in turn, as far as possible."""
    threshold: float | None = Field(None, gt=0, lt=1)
    """A text waits while its likeliest label, at this temperature, is less probable than this."""

    @field_validator("verbaliser")
    @classmethod
    def _labels_as_they_are_read(cls, given: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        named = {folded(label): words for label, words in given.items()}
        if len(named) < len(given):
            raise ValueError("two labels differ in white space or in Unicode's form alone; remove one of them")
        return named

    @model_validator(mode="after")
    def _patterns_and_words(self) -> LPFLConfig:
        for problem in (*_bad_patterns(self.patterns), *_bad_words(self.verbaliser)):
            raise ValueError(problem)
        if len(self.patterns) == 1:
            self.refuse_idle(["sample_pattern"], "with one pattern")
        return self

    @model_validator(mode="after")
    def _sense(self) -> LPFLConfig:
        if self.labelled_share is not None and self.labelled_records is not None:
            raise ValueError("'labelled_share' and 'labelled_records' say the same thing twice; remove one of them")
        if not self.annotate:
            return self  # the baseline of any experiment is that experiment with this one option changed
        if self.rounds == 1:
            what = "texts are annotated between rounds, and there is one; set rounds = 2, or annotate = false"
            raise ValueError(what)
        if self._all_at_once:
            idle = [option for option in _OF_CHOICE if option != "gate" or self.gate > 0]  # no gate is no gate
            self.refuse_idle(idle, "in 2 rounds with force_complete, where all is annotated at once")
        if self.hard and self.threshold is None and self.select == "random":
            self.refuse_idle(["temperature"], "with hard labels")
        if self.threshold is not None and self.threshold <= 1 / len(self.verbaliser):
            raise ValueError(
                f"the likeliest of {len(self.verbaliser)} labels is always as probable as 'threshold' = "
                f"{self.threshold:g}; raise it, or remove it"
            )
        return self

    @property
    def _all_at_once(self) -> bool:
        return self.events == 1 and self.force_complete

    @property
    def validates(self) -> bool:
        """Whether the server's validation set is read, by pattern weights or the gate."""
        weighs = self.pattern_weights == "validation" and len(self.patterns) > 1
        return weighs or (self.annotate and self.gate > 0 and not self._all_at_once)

    @property
    def events(self) -> int:
        """How often texts are annotated in a run."""
        return self.rounds - 1 if self.annotate else 0

    @property
    def fixed_on_resume(self) -> str:
        return "rounds decide how much is annotated after each" if self.annotate else ""

    @property
    def share(self) -> float:
        """Share of the first pool that an event annotates."""
        return self.chunk if self.chunk is not None else 1 / max(self.rounds - 1, 1)


def _bad_patterns(patterns: tuple[str, ...]) -> Iterator[str]:
    """What is wrong with patterns, whatever the model."""
    if not patterns:
        yield "'patterns' has none; one is \"{text} All in all, it was {blank}\""
    for pattern in patterns:
        for part in ("{text}", "{blank}"):
            if pattern.count(part) != 1:
                yield f"pattern '{pattern}' has {part} {pattern.count(part)} times; write it once"
    for pattern, count in Counter(patterns).items():
        if count > 1:
            yield f"pattern '{pattern}' is there twice; remove one of them"


def _bad_words(verbaliser: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """What is wrong with a verbaliser, whatever the tokenizer."""
    if len(verbaliser) < 2:
        yield f"'verbaliser' names {len(verbaliser)} labels; a classifier needs two or more"
    owner: dict[str, str] = {}
    for label, words in verbaliser.items():
        if not label:
            yield "'verbaliser' has words for an empty label, which is no label"
        if not words:
            yield f"'verbaliser' has no word for label '{label}'; give it one"
        for word in map(str.strip, words):
            if not word:
                yield f"'verbaliser' has an empty word for label '{label}'; remove it"
            if word in owner:
                yield f"'verbaliser' has '{word}' for '{owner[word]}' and again for '{label}'; remove one of them"
            owner[word] = label

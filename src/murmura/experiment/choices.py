"""The questions with options that a run asks its models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from murmura.data.choices import Common, load_choices
from murmura.data.layout import Place
from murmura.data.lettered import MOST, lettered, subject_of
from murmura.data.loading import Loaded
from murmura.data.records import Choice
from murmura.errors import ConfigError, DataError
from murmura.experiment.config import Experiment
from murmura.experiment.exclusions import Unused, tell
from murmura.measure.config import ChoicesConfig
from murmura.progress import say
from murmura.reading import Reading
from murmura.streams import Stream

T = TypeVar("T")


@dataclass(frozen=True)
class Found:
    """What is asked of a source of questions, and what is not.

    Attributes:
        asks: What the questions with options ask, whatever stands around them.
    """

    records: list[Any]
    unused: list[Unused]
    asks: list[str] = field(default_factory=list)


def with_options(experiment: Experiment, reading: Reading, stream: Stream) -> Found:
    """Read ``evaluation.choices``, and leave out questions that do not fit with each of their options.

    With letters a question is never shortened: of its examples as many stand before it as fit.

    Raises:
        DataError: a question is bad (and ``data.skip_bad`` off), or none is left.
        ConfigError: it is not said where examples are.
    """
    wanted, room = experiment.evaluation.choices, experiment.data.max_length
    assert wanted is not None
    every: list[_Question] = []
    unused: list[Unused] = []
    for place, file in enumerate(wanted.files):
        loaded, examples = _load(experiment, file, wanted.split), _examples(experiment, wanted, place)
        pairs = zip(loaded.records, loaded.places, strict=True)
        every += [_Question(one, where, subject_of(file), examples) for one, where in pairs]
        unused += [Unused.bad(record) for record in loaded.bad]
    chosen = drawn(every, wanted.records, stream)
    asked = _asked(chosen, wanted, reading)
    why = f"an option does not fit {room} tokens"
    unused += [Unused(one.where, "long", why) for one, form in zip(chosen, asked, strict=True) if form is None]
    kept = [(form, one.plain.subject) for one, form in zip(chosen, asked, strict=True) if form is not None]
    if not kept:
        what = f"no question fits {room} tokens with each of its options"
        raise DataError(what, where=", ".join(wanted.files), fix="Raise data.max_length.")
    tell(unused, room, "question")
    return Found([form for form, _ in kept], unused, [subject for _, subject in kept])


def split_of(file: str, split: str) -> str:
    """What to read of a source: a file has no splits."""
    return "train" if Path(file).exists() else split


def drawn(every: Sequence[T], wanted: int | None, stream: Stream) -> list[T]:
    """As many questions as are wanted, drawn at random."""
    return list(every) if wanted is None or wanted >= len(every) else stream.python().sample(every, wanted)


@dataclass(frozen=True)
class _Question:
    """A question as it was read, and what is needed to ask it with letters."""

    plain: Choice
    where: Place
    subject: str
    examples: Sequence[Choice]

    def asked(self, wanted: ChoicesConfig, examples: int) -> Choice:
        """As it is asked behind the first so many examples; the question itself is none."""
        if not wanted.letters:
            return self.plain
        if len(self.plain.options) > MOST:
            what = f"a question with {len(self.plain.options)} options, and there are {MOST} letters"
            raise DataError(what, where=str(self.where), fix="Leave out evaluation.choices.letters.")
        others = [one for one in self.examples if one != self.plain]
        return lettered(self.plain, self.subject, others[:examples])


def _load(experiment: Experiment, file: str, split: str) -> Loaded[Choice]:
    wanted = experiment.evaluation.choices
    assert wanted is not None
    return load_choices(
        file,
        fields=wanted.fields,
        common=Common(wanted.instruction, wanted.options, wanted.option_columns),
        split=split_of(file, split),
        skip_bad=experiment.data.skip_bad,
    )


def _examples(experiment: Experiment, wanted: ChoicesConfig, place: int) -> list[Choice]:
    """What may stand before the questions of a file."""
    if not wanted.examples:
        return []
    file = wanted.files[place]
    if wanted.examples_from is not None:
        return _load(experiment, wanted.examples_from[place], wanted.examples_split).records
    if Path(file).exists():
        what = "examples must be other questions than those that are asked, and a file has no splits"
        fix = "Name files of examples, one for each file of questions: evaluation.choices.examples_from = [...]"
        raise ConfigError(what, where=file, fix=fix)
    return _load(experiment, file, wanted.examples_split).records


def _asked(chosen: Sequence[_Question], wanted: ChoicesConfig, reading: Reading) -> list[Choice | None]:
    """Each question as it is asked, or None if it does not fit."""
    found: list[Choice | None] = [None] * len(chosen)
    fewer = 0
    for examples in range(wanted.examples, -1, -1):
        waiting = [place for place, form in enumerate(found) if form is None]
        forms = [chosen[place].asked(wanted, examples) for place in waiting]
        fits = _fit(forms, reading, whole=wanted.letters)
        for place, form in ((place, form) for place, form, does in zip(waiting, forms, fits, strict=True) if does):
            found[place] = form
            fewer += examples < wanted.examples
    if fewer:
        say(f"{fewer} of {len(chosen)} questions stand behind fewer than {wanted.examples} examples, since not all fit")
    return found


def _fit(questions: Sequence[Choice], reading: Reading, *, whole: bool) -> list[bool]:
    """Whether each question fits with each of its options; ``whole`` if none of it may be left out."""
    answered = [(place, record) for place, question in enumerate(questions) for record in question.answered()]
    items = reading.tokenise([record for _, record in answered])
    fit = Counter(
        place
        for (place, _), item in zip(answered, items, strict=True)
        if item is not None and not (whole and item.truncated)
    )
    return [fit[place] == len(question.options) for place, question in enumerate(questions)]

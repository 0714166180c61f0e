"""The questions with options that a run asks its models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from murmura.data.choices import Common, load_choices
from murmura.data.records import Choice
from murmura.errors import DataError
from murmura.experiment.config import Experiment
from murmura.experiment.exclusions import Unused, tell
from murmura.reading import Reading
from murmura.streams import Stream

T = TypeVar("T")


@dataclass(frozen=True)
class Found:
    """What is asked of a source of questions, and what is not."""

    records: list[Any]
    unused: list[Unused]


def with_options(experiment: Experiment, reading: Reading, stream: Stream) -> Found:
    """Read ``evaluation.choices``, and leave out questions that do not fit with each of their options.

    Raises:
        DataError: a question is bad (and ``data.skip_bad`` off), or none is left.
    """
    wanted, room = experiment.evaluation.choices, experiment.data.max_length
    assert wanted is not None
    loaded = load_choices(
        wanted.file,
        fields=wanted.fields,
        common=Common(wanted.instruction, wanted.options, wanted.option_columns),
        split=split_of(wanted.file, wanted.split),
        skip_bad=experiment.data.skip_bad,
    )
    chosen = drawn(list(zip(loaded.records, loaded.places, strict=True)), wanted.records, stream)
    fits = _fit([question for question, _ in chosen], reading)
    unused = [Unused.bad(record) for record in loaded.bad]
    why = f"an option does not fit {room} tokens"
    unused += [Unused(where, "long", why) for (_, where), does in zip(chosen, fits, strict=True) if not does]
    kept = [question for (question, _), does in zip(chosen, fits, strict=True) if does]
    if not kept:
        what = f"no question fits {room} tokens with each of its options"
        raise DataError(what, where=wanted.file, fix="Raise data.max_length.")
    tell(unused, room, "question")
    return Found(kept, unused)


def split_of(file: str, split: str) -> str:
    """What to read of a source: a file has no splits."""
    return "train" if Path(file).exists() else split


def drawn(every: Sequence[T], wanted: int | None, stream: Stream) -> list[T]:
    """As many questions as are wanted, drawn at random."""
    return list(every) if wanted is None or wanted >= len(every) else stream.python().sample(every, wanted)


def _fit(questions: Sequence[Choice], reading: Reading) -> list[bool]:
    """Whether each question fits with each of its options."""
    answered = [(place, record) for place, question in enumerate(questions) for record in question.answered()]
    items = reading.tokenise([record for _, record in answered])
    fit = Counter(place for (place, _), item in zip(answered, items, strict=True) if item is not None)
    return [fit[place] == len(question.options) for place, question in enumerate(questions)]

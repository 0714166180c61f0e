"""Questions that the model of a finished run answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from murmura.data.loading import LoadedRecords, load_records
from murmura.data.records import Question
from murmura.data.refusal import SKIP
from murmura.experiment.config import Experiment
from murmura.experiment.trained import Trained
from murmura.progress import bar

_AT_ONCE = 256
"""Questions whose answers are written before any is handed out."""


def questions(
    experiment: Experiment, file: Path, *, skip_bad: bool = False, remedy: str = SKIP
) -> LoadedRecords[Question]:
    """The questions in a file, whose columns are called as those of the run's records are; in a run about
    preferences, the instruction's as that of its prompts.

    Args:
        remedy: what else to do about bad rows.

    Raises:
        DataError: the file cannot be read, or a row cannot be used.
    """
    given = experiment.data.fields
    if experiment.data.kind == "preference":
        column = given.get("prompt", "prompt")
        fields = {"instruction": column} | ({"input": ""} if column == "input" else {})
    else:
        fields = {name: column for name, column in given.items() if name in ("instruction", "input")}
    return load_records(file, Question, fields=fields, skip_bad=skip_bad, renaming="", remedy=remedy)


def answers(
    trained: Trained, asked: LoadedRecords[Question], tokens: int, *, base: bool = False
) -> Iterator[tuple[dict[str, Any], bool]]:
    """A row for each question: where it stands, what it asks, and the answer; and whether the question left room for
    one in the model's context.

    Args:
        tokens: most of an answer.
        base: also what the model answered before training.
    """
    adapters = [trained.after, trained.before] if base else [trained.after]
    with bar("questions", len(asked.records)) as progress:
        for first in range(0, len(asked.records), _AT_ONCE):
            some, places = asked.records[first : first + _AT_ONCE], asked.places[first : first + _AT_ONCE]
            written = trained.answers([one.asked for one in some], adapters, tokens)
            for k, (one, place) in enumerate(zip(some, places, strict=True)):
                row = {"line": place.number, "instruction": one.instruction, "input": one.input}
                row |= {"answer": written[k].text.strip(), "finished": written[k].finished}
                if base:
                    before = written[len(some) + k]
                    row |= {"before": before.text.strip(), "before_finished": before.finished}
                yield row, bool(written[k].ids) or written[k].finished
            progress.advance(len(some))

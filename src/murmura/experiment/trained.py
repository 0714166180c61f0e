"""The model that a finished run has left, ready for use, and the questions that it answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from murmura.data.loading import LoadedRecords, load_records
from murmura.data.records import Instruction, Question
from murmura.data.refusal import SKIP
from murmura.errors import CheckpointError, ConfigError
from murmura.experiment.config import Experiment
from murmura.experiment.context import runtime_over
from murmura.experiment.released import RunModels
from murmura.generation.writer import Completion
from murmura.model_runtime import ModelRuntime
from murmura.progress import bar
from murmura.runs.folder import RunFolder
from murmura.runs.record import require_run, resuming
from murmura.training.adapter import State

_AT_ONCE = 256
"""Questions whose answers are written before any is handed out."""


@dataclass(frozen=True)
class Trained:
    """What a run has left, beside the model that it began with.

    Attributes:
        experiment: of the run.
        runtime: the base model, with what its records need.
        after: the adapter of the run, or all parameters of a model that was trained whole.
    """

    experiment: Experiment
    runtime: ModelRuntime
    after: State
    _released: RunModels

    @classmethod
    def load(cls, folder: Path, site: str | None = None) -> Trained:
        """Load a finished run.

        Args:
            folder: of the run.
            site: whose adapter, where sites keep their own.

        Raises:
            CheckpointError: no run is there, one that is not finished, or one whose base model is another now.
            ConfigError: it left no model, or has no such site.
            ModelError: a model cannot be loaded.
        """
        experiment, left = finished(folder), RunFolder(folder)
        released = RunModels(experiment, left, model_of(experiment, left, site))
        assert released.whole is not None
        runtime = runtime_over(experiment, released.bank, released.tokenizer)
        return cls(experiment, runtime, released.whole, released)

    @property
    def before(self) -> State:
        """What training began with.

        Raises:
            ModelError: ``model.adapter`` is not there any more.
            CheckpointError: it is another now.
        """
        start = self._released.start
        return self._released.bank.untrained if start is None else start

    def answers(self, records: Sequence[Instruction], adapters: Sequence[State], tokens: int) -> list[Completion]:
        """What each adapter writes behind each question, greedily: those of the first adapter come first.

        Args:
            records: questions; their outputs are not looked at.
            adapters: whose answers are asked for, such as ``[trained.before, trained.after]``; one at least.
            tokens: the most that each writes for one question.

        Returns:
            For each adapter a completion for each record, in this order: ``len(adapters) * len(records)`` in all.
        """
        prompts = [self.runtime.prompt_ids(self.runtime.template.prompt(record)) for record in records]
        return self.runtime.write(
            [adapter for adapter in adapters for _ in records],
            prompts * len(adapters),
            [tokens] * (len(records) * len(adapters)),
            description="answers",
        )


def finished(folder: Path) -> Experiment:
    """The experiment of a finished run.

    Raises:
        CheckpointError: no run is there, or one that is not finished.
        ConfigError: its experiment cannot be understood.
    """
    require_run(folder)
    if not RunFolder(folder).is_finished:
        fix = f"Finish it first: {resuming(folder)}."
        raise CheckpointError("the run is not finished", where=str(folder), fix=fix)
    return Experiment.load(RunFolder(folder).config)


def require_answers(folder: Path) -> Experiment:
    """The experiment of a finished run whose model answers instructions.

    Raises:
        CheckpointError, ConfigError: as ``finished``; or its model does not.
    """
    experiment = finished(folder)
    if not experiment.task.answers:
        instead = "label texts with `murmura predict`" if experiment.data.kind == "labelled" else "load it with peft"
        what = f"the run is about {experiment.data.kind} records, and its model answers no instructions"
        raise ConfigError(what, where=str(folder), fix=f"Name another run, or {instead}.")
    return experiment


def model_of(experiment: Experiment, folder: RunFolder, site: str | None) -> Path:
    """Where the model of a run lies: its adapter, or all of it where all parameters were trained.

    Args:
        experiment: of the run.
        site: whose, where sites keep their own.

    Raises:
        ConfigError: the run left none, or has no such site.
    """
    if experiment.model.trainable == "adapter":
        return adapter_of(folder, site)
    where = str(folder.path)
    if site is not None:
        raise ConfigError("the run has one model for all sites", where=where, fix="Leave --site out.")
    if not folder.model.is_dir():
        raise ConfigError("the run left no model", where=where, fix="Name a run whose method trains one.")
    return folder.model


def adapter_of(folder: RunFolder, site: str | None) -> Path:
    """Where the adapter of a run lies.

    Args:
        site: whose, where sites keep their own.

    Raises:
        ConfigError: the run left none, or has no such site.
    """
    own, where = folder.sites_with_adapters, str(folder.path)
    if own and site not in own and not (site is None and folder.adapter.is_dir()):
        missing = "" if site is None else f", and none is called '{site}'"
        fix = f"Name one: --site {' | '.join(own[:10])}"
        raise ConfigError(f"each site keeps an adapter of its own{missing}", where=where, fix=fix)
    if site is not None and not own:
        raise ConfigError("the run has one adapter for all sites", where=where, fix="Leave --site out.")
    place = folder.adapter if site is None else folder.adapter_of(site)
    if not place.is_dir():
        raise ConfigError("the run left no adapter", where=where, fix="Name a run whose method trains one.")
    return place


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


def answer_rows(
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

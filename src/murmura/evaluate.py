"""``murmura evaluate``: what a finished run's model is worth on tasks of lm-evaluation-harness, before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from murmura import __version__
from murmura.errors import CheckpointError, ConfigError
from murmura.experiment.config import Experiment
from murmura.experiment.context import runtime_over
from murmura.experiment.released import RunModels
from murmura.experiment.trained import finished
from murmura.measure.harness import tasks as harness
from murmura.model_runtime import ModelRuntime
from murmura.runs import files
from murmura.runs.folder import RunFolder
from murmura.runs.names import EVALUATION
from murmura.runs.schema import Evaluated, Evaluation
from murmura.training.adapter import State

BEFORE, AFTER = "before the run", "after the run"


@dataclass(frozen=True)
class Options:
    """What is measured, as in ``BenchmarksConfig``.

    Args:
        tasks: names and YAML files; those of the experiment if empty.
        limit: most questions of each.
        few_shot: answered questions before each.
        form: plain, or in the run's template; if not given, as the experiment has it with its own tasks, else plain.
    """

    tasks: Sequence[str] = ()
    limit: int | None = None
    few_shot: int | None = None
    form: Literal["plain", "template"] | None = None


def evaluate(path: Path, options: Options, *, overwrite: bool = False) -> Evaluation:
    """Measure what a run began with, and what it has made of it. No private record is read.

    What was found is in the run's folder when all is done; until then an earlier evaluation stays, and other tasks of
    it that were asked alike stay then, too.

    Args:
        path: of the run folder.
        options: what to measure.
        overwrite: an earlier evaluation that was asked otherwise is given up.

    Raises:
        CheckpointError: there is no run, one that is not finished, or one whose ``model.adapter`` is another now; or
            another process works in the folder.
        ConfigError: no task is named, there is no such task, the run has left no causal model, or an earlier evaluation
            was asked otherwise.
        DataError: a task's data cannot be read.
        ModelError: a model cannot be loaded.
    """
    experiment, folder = finished(path), RunFolder(path)
    options = _chosen(experiment, options)
    form = options.form or "plain"
    with folder.locked():
        earlier = _earlier(folder, options, form, overwrite=overwrite)
        asked = harness.load(options.tasks, limit=options.limit, few_shot=options.few_shot, form=form)
        released = RunModels(experiment, folder)
        runtime = _runtime(experiment, released)
        asked.require_room(runtime.context)
        if form == "template" and runtime.reading.template is None:
            what = f"records of the kind '{experiment.task.kind}' have no template to ask in"
            raise ConfigError(what, where="--form template", fix="Leave it out.")
        models = _models(runtime.origin, released)
        found = asked.measure(runtime, list(models.values()))
        told = tuple(Evaluated(name, {**earlier.get(name, {}), **own}) for name, own in zip(models, found, strict=True))
        made = datetime.now().astimezone().isoformat(timespec="seconds")
        evaluation = Evaluation(__version__, made, told, options.limit, options.few_shot, form)
        folder.write(EVALUATION, evaluation)
    return evaluation


def _earlier(folder: RunFolder, options: Options, form: str, *, overwrite: bool) -> dict[str, Mapping[str, float]]:
    """What models came to on other tasks that were asked alike."""
    found = None
    with suppress(CheckpointError):  # it is mended by this one
        found = files.value(folder.path / EVALUATION, Evaluation)
    if found is None:
        return {}
    if (found.limit, found.few_shot, found.form) == (options.limit, options.few_shot, form):
        return {one.model: one.figures for one in found.models}
    if overwrite:
        return {}
    what = "there are figures of tasks that were asked otherwise (--limit, --few-shot or --form), and would be lost"
    raise ConfigError(what, where=str(folder.path / EVALUATION), fix="Ask as then, or give --overwrite.")


def _chosen(experiment: Experiment, options: Options) -> Options:
    """What was asked for; what the experiment has where no task is named."""
    wanted = experiment.evaluation.benchmarks
    if options.tasks:
        return options
    if wanted is None or not wanted.tasks:
        fix = "Give some: --tasks hellaswag,arc_easy, or --tasks my_task.yaml."
        raise ConfigError("no task is named, here or in the experiment", where="--tasks", fix=fix)
    limit = wanted.limit if options.limit is None else options.limit
    few_shot = wanted.few_shot if options.few_shot is None else options.few_shot
    return Options(wanted.tasks, limit, few_shot, options.form or wanted.form)


def _runtime(experiment: Experiment, released: RunModels) -> ModelRuntime:
    if not released.bank.head.is_decoder:
        raise ConfigError(
            "the run's model fills in masks, and these tasks need one that writes from left to right",
            where="model.name",
            fix="Evaluate the run of a causal model.",
        )
    return runtime_over(experiment, released.bank, released.tokenizer, released.start)


def _models(before: State, released: RunModels) -> dict[str, State]:
    """What the run began with and what it has left, by how the report calls them."""
    if released.whole is not None:
        return {BEFORE: before, AFTER: released.whole}
    return {BEFORE: before} | {f"{AFTER}, {site}": state for site, state in released.own.items()}

"""How good a finished run's model is on tasks of lm-evaluation-harness, beside what it began with."""

from __future__ import annotations

from collections.abc import Sequence

from murmura.measure.catalogue import measured
from murmura.report.content import Block, Definitions, Entry, ReportSection, Table, entry, note
from murmura.report.table import Row, each_run, runs_of
from murmura.runs.record import RunRecord
from murmura.runs.schema import Evaluation

_LEAD = (
    "Measured when the run was finished, with tasks of lm-evaluation-harness. Nothing checks whether their questions "
    "were among the sites’ records, or among what the base model was trained on."
)


def evaluation(rows: Sequence[Row]) -> ReportSection | None:
    """Of those runs that were evaluated."""
    having = [run for run in runs_of(rows) if run.evaluation]
    return ReportSection("Benchmarks", _LEAD, each_run(rows, having, benchmarks_of)) if having else None


def benchmarks_of(run: RunRecord) -> list[Block]:
    """A line a task and a column a model; empty where there was no evaluation."""
    found = run.evaluation
    if found is None:
        return []
    figures = measured({key: value for one in found.models for key, value in one.figures.items()})
    lines: list[list[Entry | str]] = []
    for figure in figures:
        cells = [figure.words(one.figures).partition(" (") for one in found.models]
        lines.append([figure.title, *(entry(value, small.removesuffix(")")) for value, _, small in cells)])
    table = Table(["Task", *(one.model for one in found.models)], lines)
    meanings = {figure.title: figure.meant(["instruction"]) for figure in figures}
    return [table, note(_how(found)), Definitions(meanings)]


def _how(found: Evaluation) -> str:
    asked = "all questions" if found.limit is None else f"the first {found.limit} questions of each task at most"
    shots = "as many answered ones before each as the task has of its own"
    if found.few_shot is not None:
        shots = f"{found.few_shot} answered ones before each"
    form = "in the run’s template" if found.form == "template" else "as the harness asks them"
    return f"Asked: {asked}, {form}, with {shots}."

"""``murmura evaluate``: benchmarks for a finished run."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from murmura.cli.of_run import Run

_DEFAULT = "Default: with the experiment's own tasks as there, else"


def evaluate(
    run: Run,
    tasks: Annotated[
        str | None,
        typer.Option(
            "--tasks",
            metavar="NAMES",
            help="Tasks of lm-evaluation-harness or YAML files, separated by commas. Default: the experiment's.",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=1, help=f"Ask at most this many questions of each task. {_DEFAULT} all."),
    ] = None,
    few_shot: Annotated[
        int | None,
        typer.Option("--few-shot", min=0, help=f"Answered questions shown before each. {_DEFAULT} each task's own."),
    ] = None,
    form: Annotated[
        Literal["plain", "template"] | None,
        typer.Option("--form", help=f"plain: as the harness asks; template: in the run's template. {_DEFAULT} plain."),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Give up earlier figures of tasks that were asked otherwise.")
    ] = False,
) -> None:
    """Measure a finished run's model on tasks of lm-evaluation-harness, beside what it began with.

    Nothing is trained and no private record is read. Figures are kept in the run folder, beside those of other tasks,
    and `murmura report` puts them on the page.
    """
    from murmura.evaluate import Options
    from murmura.evaluate import evaluate as make
    from murmura.report.sections.evaluation import benchmarks_of
    from murmura.report.terminal import show_blocks
    from murmura.runs import read
    from murmura.runs.names import EVALUATION

    names = [name.strip() for name in (tasks or "").split(",") if name.strip()]
    make(run, Options(names, limit, few_shot, form), overwrite=overwrite)
    show_blocks(benchmarks_of(read(run)))
    typer.echo(f"Figures: {run / EVALUATION}; `murmura report {run}` puts them on the page.")

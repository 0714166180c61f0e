"""``murmura run``: run an experiment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from murmura.cli.of_run import Resume, SkipBad, StartOver, changes_of, require_one, show_result
from murmura.errors import ConfigError

REFUSED = 2  # exit code of a dry run whose run would not start, as the run itself would end


def run(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The experiment file.")],
    override: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override an option, e.g. method.beta=0.7.")
    ] = None,
    resume: Resume = False,
    overwrite: StartOver = False,
    skip_bad: SkipBad = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what the run would do, without running it.")] = False,
    time: Annotated[
        bool, typer.Option("--time", help="With --dry-run: time a few steps, and estimate how long the run would take.")
    ] = False,
) -> None:
    """Run an experiment file: train, measure every round, and write a report.

    The run is kept in the folder that the file names: run.folder, or runs/NAME.
    Stop it at any time with Ctrl-C, and continue with --resume.
    """
    from murmura.experiment import Experiment

    require_one({"--resume": resume, "--overwrite": overwrite, "--dry-run": dry_run})
    if time and not dry_run:
        raise ConfigError("--time is for --dry-run", fix="Give both; a run itself shows the time left as it goes.")
    experiment = Experiment.load(file, set=changes_of(override, skip_bad))
    if dry_run:
        from murmura.experiment.forecast.dry_run import dry_run as work_out
        from murmura.experiment.forecast.timing import timing
        from murmura.experiment.forecast.view import show

        planned = work_out(experiment)
        show(planned, timing=timing(planned) if time else None)
        if planned.refusals:
            raise typer.Exit(REFUSED)
        return
    from murmura.experiment.run import run as run_experiment

    show_result(run_experiment(experiment, resume=resume, overwrite=overwrite).folder)

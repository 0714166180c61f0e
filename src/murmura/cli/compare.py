"""``murmura compare``: several arms on the same records, and which to take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from murmura.cli.of_run import SkipBad, changes_of
from murmura.errors import ConfigError
from murmura.units import listing, several

if TYPE_CHECKING:
    from murmura.compare.comparison import Comparison
    from murmura.compare.config import CompareConfig
    from murmura.experiment.forecast.dry_run import Foreseen


def compare(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Experiment files, each an arm; or one file with a table [compare]."),
    ],
    seeds: Annotated[
        str | None,
        typer.Option("--seeds", metavar="N|A,B,...", help="How many seeds to run each arm with, or which ones."),
    ] = None,
    rates: Annotated[
        str | None,
        typer.Option("--rates", metavar="A,B,...", help="Learning rates to try for each arm, with seeds of their own."),
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="How many runs to make side by side.")] = 1,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FOLDER", help="The comparison's folder. Default: runs/NAME.")
    ] = None,
    reference: Annotated[
        str | None, typer.Option("--reference", metavar="ARM", help="The arm that others are compared with.")
    ] = None,
    max_epsilon: Annotated[float | None, typer.Option("--max-epsilon", help="Upper limit on the guaranteed ε.")] = None,
    max_bytes: Annotated[
        str | None,
        typer.Option("--max-bytes", metavar="SIZE", help="Upper limit on the bytes sent in a run, such as 50MB."),
    ] = None,
    max_leakage: Annotated[
        float | None,
        typer.Option("--max-leakage", metavar="AUC", help="Upper limit on what an attack may find; 0.5 is guessing."),
    ] = None,
    override: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override an option in all arms.")
    ] = None,
    skip_bad: SkipBad = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be run, without running it.")] = False,
    time: Annotated[
        bool,
        typer.Option(
            "--time", help="With --dry-run: time a few steps of each arm, and estimate how long the comparison takes."
        ),
    ] = False,
) -> None:
    """Compare methods on your records: run each with several seeds, and say which to take under your limits.

    Finished runs are kept: the same command resumes a comparison that was stopped, and one with more seeds or arms runs
    only what is new.
    """
    from murmura.compare.arms import load
    from murmura.compare.comparison import Comparison

    if time and not dry_run:
        raise ConfigError(
            "--time is for --dry-run", fix="Give both; a comparison itself shows the time left as it goes."
        )
    limits = {"max_epsilon": max_epsilon, "max_bytes": max_bytes, "max_leakage": max_leakage}
    given = {name: value for name, value in limits.items() if value is not None}
    options: dict[str, Any] = {"seeds": _seeds(seeds), "rates": _rates(rates), "reference": reference}
    options = {name: value for name, value in options.items() if value is not None}
    config, arms = load(files, changes_of(override, skip_bad), options, given)
    comparison = Comparison(config, arms, out or _folder(config))
    planned = comparison.check()
    if dry_run:
        _foresee(comparison, planned, jobs, time)
    else:
        _carry_out(comparison, planned, jobs)


def _folder(config: CompareConfig) -> Path:
    if config.folder:
        return Path(config.folder)
    parts = Path(config.name).parts
    if not parts or ".." in parts or Path(config.name).is_absolute():
        what = f"'{config.name}' names no folder in runs/"
        raise ConfigError(what, where="compare.name", fix="Give another name, or its folder: --out.")
    return Path("runs") / config.name


def _foresee(comparison: Comparison, planned: Mapping[str, Foreseen], jobs: int, time: bool) -> None:
    """Print what would be run, and how long it would take."""
    from murmura.experiment.forecast.dry_run import DryRun
    from murmura.experiment.forecast.notes import few
    from murmura.experiment.forecast.timing import timing
    from murmura.units import count, duration

    left, every, finished, untried = 0.0, 0, 0, dict[str, None]()
    for arm in comparison.arms:
        one, jobs_of = planned[arm.name], comparison.jobs_of(arm)
        runs, done = len(jobs_of), sum(job.finished for job in jobs_of)
        every, finished = every + runs, finished + done
        rates = f"of {arm.rate_of}" if arm.rate_of else ", ".join(f"{rate:g}" for rate in arm.rates)
        told = [_counted(runs, done), f"rate {rates}"]
        told += [] if one.steps is None else [f"{count(one.steps)} steps in a run, all sites together"]
        if time and isinstance(one, DryRun):  # of an arm that is finished there is nothing to try
            seconds = timing(one).total
            left += (runs - done) * seconds
            untried |= dict.fromkeys(work.what for work in one.work if work.attempt is None and work.total)
            told.append(f"about {duration(seconds)} each")
        typer.echo(f"{arm.name}: {', '.join(told)}")
    for what, whose in _told({arm: one.plan.unknown for arm, one in planned.items()}).items():
        typer.echo(f"Not known here{whose}: {what}")
    for what, whose in _told({arm: few(one.plan) for arm, one in planned.items()}).items():
        typer.echo(f"To be noted{whose}: {what}")
    seeds = comparison.config.chosen_seeds
    named = f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"
    # Runs side by side share cores, and those of the search measure less than others.
    side_by_side = max(1, min(jobs, every - finished))
    alone = f"about {duration(left)}"
    between = alone if side_by_side == 1 else f"{duration(left / side_by_side)} to {duration(left)}"
    but = f", without {listing(list(untried))}, which cannot be tried" if untried else ", or less"
    lasts = f", {between} {'left' if finished else 'in all'}{but}" if left else ""
    typer.echo(f"{_counted(every, finished)}, {named}, kept in {comparison.folder}{lasts}")


def _told(planned: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """What dry runs have to say, and of which arms, in brackets; of all of them it need not be said."""
    found: dict[str, list[str]] = {}
    for arm, every in planned.items():
        for what in every:
            found.setdefault(what, []).append(arm)
    return {what: "" if len(arms) == len(planned) else f" ({listing(arms)})" for what, arms in found.items()}


def _counted(runs: int, finished: int) -> str:
    return several(runs, "run") + f" ({finished} finished)" * (finished > 0)


def _carry_out(comparison: Comparison, planned: Mapping[str, Foreseen], jobs: int) -> None:
    from murmura.compare.view import section
    from murmura.report.terminal import show_blocks

    outcome = comparison.carry_out(jobs, planned)
    show_blocks(section(outcome).blocks)
    typer.echo(f"Report: {comparison.write(outcome)}")


def _seeds(text: str | None) -> int | list[int] | None:
    if text is None:
        return None
    try:
        return int(text) if "," not in text else [int(one) for one in _listed(text)]
    except ValueError:
        fix = "Say how many, --seeds 3, or which, --seeds 0,5,7."
        raise ConfigError(f"'{text}' is not a list of seeds", where="--seeds", fix=fix) from None


def _listed(text: str) -> list[str]:
    """What stands between commas; a last one may have nothing behind it."""
    return text.strip().removesuffix(",").split(",")


def _rates(text: str | None) -> list[float] | None:
    if text is None:
        return None
    try:
        return [float(one) for one in _listed(text)]
    except ValueError:
        raise ConfigError(
            f"'{text}' is not a list of rates", where="--rates", fix="For example: --rates 5e-4,1e-3,2e-3"
        ) from None

"""What several commands about runs share: options, and how they are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os.path import realpath
from pathlib import Path
from typing import Annotated, Any

import typer

from murmura.errors import ConfigError

Run = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run.")]
Site = Annotated[
    str | None, typer.Option("--site", metavar="NAME", help="Site whose adapter to use, where each site keeps its own.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")]
Resume = Annotated[bool, typer.Option("--resume", help="Resume after the last saved round.")]
StartOver = Annotated[
    bool, typer.Option("--overwrite", help="Start over; the run that is there is renamed to NAME.previous.")
]
SkipBad = Annotated[
    bool, typer.Option("--skip-bad", help="Leave out bad records and count them, instead of refusing them.")
]


def require_new(target: Path, source: Path, run: Path, overwrite: bool) -> None:
    """Refuse to write over the file that is read, over what a run consists of, or over a file that exists.

    Raises:
        ConfigError: ``target`` is ``source``, the run's, or exists and may not be replaced.
    """
    from murmura.runs.names import WRITTEN

    place = Path(realpath(target))
    if place == Path(realpath(source)):
        what = "this file is read, and would be overwritten"
        raise ConfigError(what, where=f"--out {target}", fix="Name another.")
    if any(place.is_relative_to(Path(realpath(run)) / name) for name in WRITTEN):
        raise ConfigError("this is the run's own", where=f"--out {target}", fix="Name a file outside of its folder.")
    if target.exists() and not overwrite:
        raise ConfigError("this file already exists", where=str(target), fix="Use --overwrite, or give another name.")


def require_one(flags: Mapping[str, bool]) -> None:
    """Refuse flags that exclude each other.

    Raises:
        ConfigError: more than one of them is given.
    """
    given = [flag for flag, is_given in flags.items() if is_given]
    if len(given) > 1:
        raise ConfigError(f"{' and '.join(given)} exclude each other", fix="Give one of them.")


def changes_of(override: Sequence[str] | None, skip_bad: bool = False) -> dict[str, Any]:
    """What ``--set`` and ``--skip-bad`` change, by dotted key.

    Raises:
        ConfigError: an override is not KEY=VALUE.
    """
    from murmura.experiment.config import parse_override

    return dict(map(parse_override, override or ())) | ({"data.skip_bad": True} if skip_bad else {})


def show_result(folder: Path) -> None:
    """Print the table of a run that has come to its end, and where its page is."""
    from murmura import report, runs

    report.show(report.table([runs.read(folder)]))
    typer.echo(f"Report: {runs.RunFolder(folder).report}")

"""Options that several commands about a run share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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

    Args:
        target: the file to write.
        source: the file that is read.
        run: whose model is asked.
        overwrite: whether an existing file may be replaced.

    Raises:
        ConfigError: ``target`` is ``source``, the run's, or exists and may not be replaced.
    """
    from murmura.errors import ConfigError
    from murmura.runs.names import WRITTEN

    if target.resolve() == source.resolve():
        what = "this file is read, and would be overwritten"
        raise ConfigError(what, where=f"--out {target}", fix="Name another.")
    if any(target.resolve().is_relative_to(run.resolve() / name) for name in WRITTEN):
        raise ConfigError("this is the run's own", where=f"--out {target}", fix="Name a file outside of its folder.")
    if target.exists() and not overwrite:
        raise ConfigError("this file already exists", where=str(target), fix="Use --overwrite, or give another name.")

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


def require_new(target: Path, source: Path, overwrite: bool) -> None:
    """Refuse to write over the file that is read, or over one that exists.

    Args:
        target: the file to write.
        source: the file that is read.
        overwrite: whether an existing file may be replaced.

    Raises:
        ConfigError: ``target`` is ``source``, or exists and may not be replaced.
    """
    from murmura.errors import ConfigError

    if target.resolve() == source.resolve():
        what = "this file is read, and would be overwritten"
        raise ConfigError(what, where=f"--out {target}", fix="Name another.")
    if target.exists() and not overwrite:
        raise ConfigError("this file already exists", where=str(target), fix="Use --overwrite, or give another name.")

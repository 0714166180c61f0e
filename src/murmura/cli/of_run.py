"""What commands about a finished run have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Run = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run.")]
Site = Annotated[
    str | None, typer.Option("--site", metavar="NAME", help="Site whose adapter to use, where each site keeps its own.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")]


def require_new(target: Path, source: Path, overwrite: bool) -> None:
    """Hold a file that is to be written to not being the one that is read, and to not being there.

    Raises:
        ConfigError: it is.
    """
    from murmura.errors import ConfigError

    if target.resolve() == source.resolve():
        what = "this file is read, and would be overwritten"
        raise ConfigError(what, where=f"--out {target}", fix="Name another.")
    if target.exists() and not overwrite:
        raise ConfigError("this file already exists", where=str(target), fix="Use --overwrite, or give another name.")

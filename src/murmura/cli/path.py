"""``murmura path``: where a model lies on this machine."""

from __future__ import annotations

from typing import Annotated

import typer


def path(model: Annotated[str, typer.Argument(metavar="MODEL", help="A short name, a hub id or a folder.")]) -> None:
    """Print the folder of a model, such as the base of a run's adapter, and fetch it first if need be."""
    from murmura import models

    typer.echo(models.resolve(model))

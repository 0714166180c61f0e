"""``murmura runs``: what runs there are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def runs(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FOLDER...]", help="Folders to search, and those below them. Default: runs."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """List runs with method, state, ε and headline figure, the newest last."""
    from dataclasses import asdict

    from murmura.report.content import Table
    from murmura.report.terminal import draw, wide
    from murmura.runs import jsontext
    from murmura.status.listing import COLUMNS, listing

    found = listing(folders or [Path("runs")])
    if as_json:
        typer.echo(jsontext.dumps([asdict(one) for one in found], indent=1))
        return
    console = wide(200)
    if not found:
        console.print("no run here")
        return
    console.print(draw(Table(list(COLUMNS), [one.cells for one in found], text=(0, 1, 2, 4, 5))))

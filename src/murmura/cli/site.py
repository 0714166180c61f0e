"""``murmura site``: what a site's owner sees of runs, in the site's own folder. No server is needed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

app = typer.Typer(
    suggest_commands=False, no_args_is_help=True, help="What the owner of a site sees of runs, in its folder."
)

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The site's folder.")]
_DIGEST = 12  # characters of a digest that a table shows
_NARROW = 120


@app.command("log")
def log(folder: Folder, as_json: Annotated[bool, typer.Option("--json", help="As JSON, whole.")] = False) -> None:
    """Print everything that has ever left a site, and hold the journal of it to its digests.

    They are a chain: where a line was changed, moved or taken out, all before it are printed, and it is named.
    """
    from murmura.errors import ConfigError, PrivacyError
    from murmura.federation.site.store import released

    if not folder.is_dir():
        raise ConfigError("there is no such folder", where=str(folder), fix="Name a site's folder.")
    lines, broken = list[dict[str, Any]](), None
    try:
        for line in released(folder):
            lines.append(line)
    except PrivacyError as error:
        broken = error
    if as_json:
        typer.echo(json.dumps(lines, indent=2))
    else:
        _print_log(lines)
    if broken is not None:
        raise broken


def _print_log(lines: Sequence[Mapping[str, Any]]) -> None:
    """A table for each run."""
    from murmura.units import count, size

    console = _console()
    for run in dict.fromkeys(line["run"] for line in lines):
        console.print(f"Run {run}", markup=False)
        console.print(_left([line for line in lines if line["run"] == run]))
        console.print()
    replies = [line["fields"] for line in lines if "fields" in line]
    total = sum(field["bytes"] for fields in replies for field in fields)
    console.print(f"{count(len(replies))} answers have left this site, {size(total)} in all.", markup=False)
    if failed := len(lines) - len(replies):
        what = "ask was" if failed == 1 else "asks were"
        told = f"{count(failed)} {what} answered with the class of an error alone; what it says has stayed here."
        console.print(told, markup=False)


def _left(lines: Sequence[Mapping[str, Any]]) -> Table:
    """What has left in a run, a row a field."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from murmura.units import count

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, header_style="dim")
    for name in ("when (UTC)", "round", "verb", "field"):
        table.add_column(name, overflow="fold")
    table.add_column("bytes", justify="right", no_wrap=True)
    table.add_column("protection", overflow="fold")
    table.add_column("SHA-256", no_wrap=True)
    for line in lines:
        about = [line["at"].removesuffix("+00:00").replace("T", " "), str(line["round"]), line["verb"]]
        if "failed" in line:
            table.add_row(*map(Text, [*about, line["failed"], "", line["why"], ""]))
            continue
        for field in line["fields"]:
            told = [_field(field), count(field["bytes"]), _protection(field), field["sha256"][:_DIGEST]]
            table.add_row(*map(Text, about + told))
            about = [""] * len(about)
        if not line["fields"]:
            table.add_row(*map(Text, [*about, "nothing", "0"]))
    return table


def _field(field: Mapping[str, Any]) -> str:
    """A field's name, and what is in a masked one."""
    holds = [f"{one['field']} ({one['kind']})" for one in field.get("holds", ())]
    return f"{', '.join(holds)}, masked" if holds else f"{field['field']} ({field['kind']})"


def _protection(field: Mapping[str, Any]) -> str:
    """How what left was protected, by secure sums and by noise."""
    from murmura.federation.wire.releases import protection_from_json

    found = [protection_from_json(one["protection"]) for one in (field, *field.get("holds", ()))]
    return "; ".join(dict.fromkeys(one.words for one in found if one is not None)) or "none"


def _console() -> Console:
    """Standard output; in a file or a pipe lines are folded at a fixed width."""
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(_NARROW, console.width)
    return console

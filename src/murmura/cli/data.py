"""``murmura data``: what is wrong with files of records, before anything is run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from murmura.data.records import KINDS, Kind
from murmura.units import listing

if TYPE_CHECKING:
    from murmura.data.check import Checked, Repeat
    from murmura.data.layout import BadRecord

app = typer.Typer(suggest_commands=False, no_args_is_help=True, help="Check records before a run.")

BAD = 1  # exit code
_NAMED = 5  # columns


@app.callback()
def data() -> None:
    """Look at records before a run."""


@app.command("check")
def check(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...", help="JSONL, CSV, Excel or Parquet files, or folders with one file per site."
        ),
    ],
    kind: Annotated[Kind, typer.Option("--kind", help="What each row is.")] = "instruction",
    field: Annotated[
        list[str] | None,
        typer.Option(
            "--field",
            metavar="FIELD=COLUMN",
            help="Column of a field, where the names differ: output=answer; input= leaves it out.",
        ),
    ] = None,
    site_column: Annotated[
        str | None, typer.Option("--site-column", metavar="COLUMN", help="Column that names the owner of a record.")
    ] = None,
    user_column: Annotated[
        str | None,
        typer.Option("--user-column", metavar="COLUMN", help="Column that names the person a record is about."),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(
            "--ignore",
            metavar="NAME",
            help="Name or pattern of files in the folder that are not site records, such as '*.ods'.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """List every record that a run could not use, by file and line, and every record that occurs more than once.

    Ends with exit code 1 if a record or a file cannot be used; in a folder with one file per site, whatever is not
    ignored counts. Repeated records are not an error here, but a run refuses a held-out record that a site has too.
    """
    from murmura.data import check as checking

    fields = dict(mapping(text) for text in field or [])
    found = checking.check(files, KINDS[kind], fields, site_column, ignore or [], user_column=user_column)
    if as_json:
        from murmura.runs import jsontext

        typer.echo(jsontext.dumps({"files": [_table(one) for one in found]}))
    else:
        for one in found:
            _print(one)
    if not all(one.usable for one in found):
        raise typer.Exit(BAD)


def mapping(text: str) -> tuple[str, str]:
    """``FIELD=COLUMN`` of the option ``--field``; with no column, the field is left out.

    Raises:
        ConfigError: It has not that form.
    """
    from murmura.errors import ConfigError

    name, equals, column = text.partition("=")
    if not equals or not name:
        raise ConfigError(f"'{text}' is not FIELD=COLUMN", where="--field", fix="For example: --field output=answer")
    return name, column


def _print(one: Checked) -> None:
    if one.fault is not None or one.ignored:
        typer.echo(one.fault or f"{one.file}: ignored, no site's file")
    if not one.records and not one.bad:
        return
    typer.echo(f"{one.file}: {one.records} usable, {len(one.bad)} bad, {len(one.repeats)} repeated")
    if one.unread:
        names = [f"'{name}'" for name in one.unread]
        typer.echo(f"  columns that are not read: {listing(names, _NAMED)}")
    told: tuple[BadRecord | Repeat, ...] = (*one.bad, *one.repeats)
    for record in told:
        typer.echo(f"  {record.where}: {record.why}")
    for fix in dict.fromkeys(record.fix for record in one.bad if record.fix):
        typer.echo(f"  {fix}.")


def _table(one: Checked) -> dict[str, object]:
    return {
        "file": one.file,
        "records": one.records,
        "bad": _places(one.bad),
        "repeated": _places(one.repeats),
        "fault": one.fault,
        "ignored": one.ignored,
        "unread": list(one.unread),
    }


def _places(records: Sequence[BadRecord | Repeat]) -> list[dict[str, object]]:
    return [{"file": r.where.file, r.where.unit: r.where.number, "reason": r.why} for r in records]

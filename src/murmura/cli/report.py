"""``murmura report``: the table and the page of existing runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from murmura.errors import ConfigError


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders, shown side by side.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="The HTML page. Default: report.html in the run folder or, for several runs, in the current folder.",
        ),
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option("--markdown", metavar="FILE", help="Also write answers and table as Markdown.")
    ] = None,
    drafts: Annotated[
        bool,
        typer.Option(
            "--drafts",
            help="Show drafts that simulated sites have kept (method.drafts_shown). They are as private as records, so "
            "this needs --out: such a page is not for publication.",
        ),
    ] = False,
    sheet: Annotated[
        Path | None,
        typer.Option(
            "--sheet",
            metavar="FILE",
            help="Also write a sheet (A4) about one run for the data-protection officer to sign, as HTML.",
        ),
    ] = None,
) -> None:
    """Print the table of one or several runs and write their report as one HTML page."""
    from murmura import report as reports
    from murmura.compare.better import which_is_better
    from murmura.report.output_file import replacing, require_own
    from murmura.runs import read_all
    from murmura.runs.names import REPORT

    if sheet is not None and len(runs) > 1:
        raise ConfigError(
            "a sheet is about one run", where="--sheet", fix="Write one for each: murmura report RUN --sheet FILE."
        )
    if drafts and out is None:
        fix = "Say where to, with --out: it is not for publication, as a run's report.html may be."
        raise ConfigError("a page with drafts has no place of its own", where="--drafts", fix=fix)
    page = out or (Path(REPORT) if len(runs) > 1 else None)
    places = {"--out": page, "--markdown": markdown, "--sheet": sheet}
    require_own({option: place for option, place in places.items() if place is not None})
    records = read_all(runs)
    rows = reports.table(records)
    which = which_is_better(rows)
    reports.show(rows, which=which)
    typer.echo(f"Report: {reports.write(records, page or runs[0] / REPORT, which=which, texts=drafts)}")
    if markdown is not None:
        with replacing(markdown, "the table", "--markdown") as stream:
            stream.write(reports.markdown(rows, which))
    if sheet is not None:
        typer.echo(f"Sheet: {reports.write_sheet(records[0], sheet)}")

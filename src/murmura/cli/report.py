"""``murmura report``: the table and the page of existing runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


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
        Path | None, typer.Option("--markdown", metavar="FILE", help="Also write the table as Markdown.")
    ] = None,
) -> None:
    """Print the table of one or several runs and write their report as one HTML page."""
    from murmura import report as reports
    from murmura.report.output_file import replacing
    from murmura.runs import read_all
    from murmura.runs.schema import REPORT

    records = read_all(runs)
    reports.show(reports.table(records))
    page = reports.write(records, out or (runs[0] if len(records) == 1 else Path()) / REPORT)
    typer.echo(f"Report: {page}")
    if markdown is not None:
        with replacing(markdown, "the table", "--markdown") as stream:
            stream.write(reports.markdown(reports.table(records)))

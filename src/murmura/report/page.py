"""The page: one HTML file, which its template makes of sections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from murmura.report.content import ReportSection, Warning
from murmura.report.guarantee import interrupted
from murmura.report.in_short import in_short
from murmura.report.output_file import replacing
from murmura.report.run_facts import canaries, facts, title
from murmura.report.sections import sections
from murmura.report.sections.drafts import drafts, require_apart
from murmura.report.table import Row, runs_of, table
from murmura.runs.record import RunRecord

if TYPE_CHECKING:
    from jinja2 import Environment

_PRIVATE = Warning("Not for publication:", "this page shows texts that were written after private records.")


def write(
    records: Sequence[RunRecord],
    out: Path,
    opening: Sequence[ReportSection] = (),
    labels: Mapping[Path, str] | None = None,
    heading: str = "",
    which: Sequence[str] = (),
    texts: bool = False,
) -> Path:
    """Write one self-contained HTML page about one or several runs, side by side.

    Args:
        records: As ``runs.read_all`` gives them.
        out: The page. It is replaced in one step, so that a reader never sees half of it.
        opening: What comes first; what ``in_short`` says of these runs if not given.
        labels: How rows are called, by the folder of a run; as their methods if not given.
        heading: Of the page; the methods if empty.
        which: Of several rows, which is better, where there is no ``opening`` (``in_short``).
        texts: Whether drafts are shown, which are as private as sites' records.

    Raises:
        CheckpointError: The page cannot be written, or a run is about an unknown kind of record; or texts are not to be
            shown, or not in such a place.
    """
    if texts:
        require_apart(records, out)
    page = render(records, opening, labels, heading, which, texts)
    with replacing(out, "the page", "--out", private=texts) as stream:
        stream.write(page)
    return out


def render(
    records: Sequence[RunRecord],
    opening: Sequence[ReportSection] = (),
    labels: Mapping[Path, str] | None = None,
    heading: str = "",
    which: Sequence[str] = (),
    texts: bool = False,
) -> str:
    """The page as text: the same records give the same characters."""
    rows = table(records, labels)
    return rendered(
        "page.html.j2",
        title=heading or title(rows),
        warnings=[*warnings(rows), *([_PRIVATE] if texts else [])],
        opening=opening or [ReportSection("", blocks=[in_short(rows, which)])],
        facts=facts(rows),
        sections=[*sections(rows), *([drafts(rows)] if texts else [])],
    )


def rendered(template: str, **values: object) -> str:
    """A page from its template, whatever is in it escaped."""
    return _templates().get_template(template).render(**values)


@cache
def _templates() -> Environment:
    """Templates, each compiled once a process: a study draws many pages."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    loader = PackageLoader("murmura.report", ".")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["drawing"] = Markup  # only ever applied to our own SVG
    return environment


def warnings(rows: Sequence[Row]) -> list[Warning]:
    """That a run is unfinished, or not for release."""
    runs, found = runs_of(rows), []
    unfinished, audited = [run.name for run in runs if not run.finished], [run.name for run in runs if canaries(run)]
    if unfinished:
        text = "stopped before the last round. Its figures are those of the last round that was recorded."
        found.append(Warning("Unfinished:", f"{', '.join(unfinished)} {text}"))
    found += [Warning("", sentence) for sentence in interrupted(rows)]
    if audited:
        text = "trained on random secrets (canaries) too, which were written into the sites’ records for an audit."
        found.append(Warning("Not for release:", f"{', '.join(audited)} {text} Every figure is of that training."))
    return found

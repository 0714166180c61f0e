"""Some of what a model wrote after sites' records, kept and dropped, with the reasons: for whoever may see it."""

from __future__ import annotations

from collections.abc import Sequence
from os.path import realpath
from pathlib import Path

from murmura.errors import CheckpointError
from murmura.report.content import Block, ReportSection, Table, shortened
from murmura.report.table import Row, each_run, runs_of
from murmura.runs import files
from murmura.runs.names import PRIVATE, SITE_DRAFTS, site_folder
from murmura.runs.record import RunRecord
from murmura.runs.schema import ShownDraft

_LEAD = (
    "Drafts of the last round, as sites kept them for their owners. They were written after private records and are as "
    "private as these: this page is not for publication."
)


def drafts(rows: Sequence[Row]) -> ReportSection:
    """Of runs that kept some.

    Raises:
        CheckpointError: a run promises an ε, is of real sites, or none of them has kept any.
    """
    runs = runs_of(rows)
    for run in runs:
        _require_shown(run)
    having = [run for run in runs if _kept(run)]
    if not having:
        fix = "Set method.drafts_shown before the run, and show it on the machine where it ran."
        raise CheckpointError("no site has kept drafts to be shown", where=str(runs[0].folder), fix=fix)
    return ReportSection("Drafts, kept and dropped", _LEAD, each_run(rows, having, _blocks))


def require_apart(runs: Sequence[RunRecord], out: Path) -> None:
    """A page with drafts is not written among what is published of a run.

    Raises:
        CheckpointError: it would be.
    """
    place = Path(realpath(out))
    for run in runs:
        folder = run.folder.resolve()
        if folder in place.parents and folder / PRIVATE not in place.parents:
            fix = f"Give a place outside the run's folder, or in its folder {PRIVATE}."
            raise CheckpointError("a page with drafts does not belong among what is published", where=str(out), fix=fix)


def _require_shown(run: RunRecord) -> None:
    """Texts of a run that promises an ε are shown to nobody, and those of real sites to their owners alone."""
    if run.last.privacy:
        raise CheckpointError("it promises an ε, which shown texts would not keep", where=str(run.folder))
    if not run.simulated:
        fix = f"Each owner has them in the site's own folder ({SITE_DRAFTS})."
        raise CheckpointError(
            "its sites are not simulated, and what was written there is theirs", where=str(run.folder), fix=fix
        )


def _blocks(run: RunRecord) -> list[Block]:
    lines = [
        (site, "kept" if one.kept else "dropped", shortened(one.text) or "nothing", one.why)
        for site, own in _kept(run).items()
        for one in own
    ]
    return [Table(("Site", "What became of it", "Draft", "Why"), lines, text=range(4), stacked=True, css="written")]


def _kept(run: RunRecord) -> dict[str, list[ShownDraft]]:
    """By site; of those that have kept some."""
    found = {one.site: run.folder / PRIVATE / site_folder(one.site) / SITE_DRAFTS for one in run.sites or ()}
    return {site: _read(path) for site, path in found.items() if path.is_file()}


def _read(path: Path) -> list[ShownDraft]:
    return [files.made(row, ShownDraft, where) for where, row in files.lines(path) if "private" not in row]

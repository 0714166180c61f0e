"""What a run costs its sites: what each sends, is sent and computes (the efficiency table of Hou et al. 2024)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from murmura.report.content import Entry, ReportSection, Table, entry
from murmura.report.table import Cell, Row, runs_of
from murmura.runs.record import RunRecord
from murmura.units import DASH, count, duration, size

_LEAD = (
    "For the method itself, without what it took to measure it: means over all sites, asked or not, and over the "
    "rounds in which any was asked. Time is how long the server waited for the answers. Sites that are simulated "
    "on one machine share its time, whether they work one after another or together. It is not told where ε counts on "
    "nobody knowing it."
)


def cost(rows: Sequence[Row]) -> ReportSection | None:
    """A line for each row; None where no run has recorded how long sites took."""
    if not any("at_sites" in run.totals for run in runs_of(rows)):
        return None
    columns: dict[str, tuple[Callable[[float], str], Callable[[RunRecord], float | None]]] = {
        "Rounds": (count, _rounds),
        "Up, a site and round": (size, lambda run: _share(run, "bytes_up", each_round=True)),
        "Down, a site and round": (size, lambda run: _share(run, "bytes_down", each_round=True)),
        "Time, a site": (duration, lambda run: _share(run, "at_sites")),
        "Time, a record": (duration, _by_record),
    }
    lines: list[list[Entry | str]] = []
    for row in rows:
        found = [(write, Cell.of(map(of, row.runs)).mean) for write, of in columns.values()]
        lines.append([entry(row.label, row.state), *(DASH if mean is None else write(mean) for write, mean in found)])
    return ReportSection("What it costs a site", _LEAD, [Table(["Method", *columns], lines)])


def _rounds(run: RunRecord) -> float:
    """Rounds in which something was sent up; a method may do the rest alone."""
    return sum(1 for one in run.rounds if one.number and one.values.get("bytes_up"))


def _share(run: RunRecord, key: str, *, each_round: bool = False) -> float | None:
    """A total of the run, a site's share of it."""
    total, parts = run.totals.get(key), len(run.sites or ()) * (_rounds(run) if each_round else 1)
    return total / parts if total is not None and parts else None


def _by_record(run: RunRecord) -> float | None:
    """Seconds for a record that is used; None where it is not told how many those are."""
    used = [one.used for one in run.sites or ()]
    known = [number for number in used if number is not None]
    total, records = run.totals.get("at_sites"), sum(known)
    return total / records if total is not None and records and len(known) == len(used) else None

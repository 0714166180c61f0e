"""The table that answers a run's questions, and what to know before trusting it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from murmura.measure.figure import Figure
from murmura.report.attacks import few_attacked
from murmura.report.caveats import caveats
from murmura.report.comparison import differences, sentences
from murmura.report.content import Block, Definitions, Details, Entry, ReportSection, Table, Warning, entry, note
from murmura.report.guarantee import scope
from murmura.report.table import OUTSIDE, Row, attacked, columns, kinds, of_seeds, runs_of
from murmura.units import DASH, count

_GOOD, _LEAKS, _COST = "How good it is", "What it gives away, and what is guaranteed", "What it cost"
_TARGETS = {"attack": "the model", "upload": "single uploads"}


def results(rows: Sequence[Row]) -> ReportSection:
    """After the last round."""
    spread = of_seeds(rows, "; mean ± sample standard deviation where a method ran with several seeds")
    bars = any(row.cells[one.key].span(one) for row in rows for one in columns(rows))
    about = "Bars are the 95 % intervals of the small print, from 0 to 1 with a line at guessing. " * bars
    lead = f"After the last round{spread}. {about}A dash ({DASH}) means not measured."
    differing = [entry(f"{one.words}.", ", ".join(one.figures)) for one in differences(rows)]
    blocks: list[Block] = []
    if differing:
        text = "In columns with ≠, figures of different rows do not stand on the same:"
        blocks.append(Warning("Not everything here can be compared.", text, differing))
    for title, shown in _grouped(rows).items():
        blocks += [_narrow(rows, title, shown), Definitions({one.title: one.in_a_line(kinds(rows)) for one in shown})]
    meanings = {one.title: one.meant(kinds(rows)) for one in columns(rows)}
    blocks += [*_attacks(rows), *map(note, caveats(rows))]
    blocks.append(Details("What these figures mean, in full", [Definitions(meanings)]))
    if not attacked(rows) and not any(run.audit for run in runs_of(rows)):
        blocks.append(note("Leakage was not measured: no attack was carried out."))
    return ReportSection("Results", lead, blocks)


def _grouped(rows: Sequence[Row]) -> dict[str, list[Figure]]:
    """The columns, by what they answer."""
    found: dict[str, list[Figure]] = {_GOOD: [], _LEAKS: [], _COST: []}
    for one in columns(rows):
        private = one.of_members or one.promise or one.key == "audit_epsilon"
        found[_COST if one.total else _LEAKS if private else _GOOD].append(one)
    return {title: shown for title, shown in found.items() if shown}


def _narrow(rows: Sequence[Row], title: str, shown: Sequence[Figure]) -> Table:
    """A row a method and a column a figure; what was good before training stands beside it."""
    marked = frozenset(name for one in differences(rows) for name in one.figures)
    before = {one.key for one in shown if title == _GOOD and any(row.before(one.key).n for row in rows)}
    titles = [name for one in shown for name in (one.title, *["before training"] * (one.key in before))]
    lines = []
    for row in rows:
        cells = [Entry(row.label, (row.remark,) if row.remark else (), row.state, row.look)]
        for one in shown:
            cells += [_entry(row, one), *[Entry(row.before(one.key).value(one))] * (one.key in before)]
        lines.append(cells)
    return Table(["Method", *titles], lines, title, marked=marked, stacked=True, css="results")


def _entry(row: Row, one: Figure) -> Entry:
    """A figure with its interval; which attack it comes of stands in a table of its own."""
    cell = row.cells[one.key]
    small = [cell.spread(one), *cell.interval(), cell.together, cell.guessing(one)]
    small += [f"{cell.n} of {len(row.runs)} seeds"] if 0 < cell.n < len(row.runs) else []
    small += ["expected"] if any(one.key in run.last.expected for run in row.runs) else []
    return replace(entry(cell.value(one), *small, *(OUTSIDE,) * (OUTSIDE in cell.remarks)), span=cell.span(one))


def _attacks(rows: Sequence[Row]) -> list[Block]:
    """Which attack was the strongest, and on how many records; nothing where none was carried out."""
    lines: list[list[Entry | str]] = []
    for row in rows:
        for target, name in _TARGETS.items():
            found = [run.last.attacks[target] for run in row.runs if target in run.last.attacks]
            if not found:
                continue
            few = "says little" if few_attacked(row.runs, target) else ""
            told = [
                (one.attack, DASH if one.members is None else count(one.members), count(one.others)) for one in found
            ]
            attack, members, others = (", ".join(dict.fromkeys(each)) for each in zip(*told, strict=True))
            label = Entry(row.label, look=row.look) if len(rows) > 1 else Entry(row.label)
            lines.append([label, name, attack, Entry(members, alert=few), others])
    titles = ("Method", "Attacked", "Strongest attack", "Members", "Others")
    return [Table(titles, lines, "Attacks carried out", text=(0, 1, 2), stacked=True)] if lines else []


def summary(rows: Sequence[Row]) -> Table:
    """All of it in one table, for a terminal and Markdown: a row a method and a column a figure."""
    shown = columns(rows)
    lines = []
    for row in rows:
        name = Entry(row.label, (row.remark,) if row.remark else (), row.state, row.look)
        lines.append([name, *(row.cells[one.key].entry(one) for one in shown)])
    return Table(
        ["Method", *(one.title for one in shown)],
        lines,
        short=["method", *(one.heading for one in shown)],
        css="results",
    )


def remarks(rows: Sequence[Row]) -> list[str]:
    """What stands below the table in a terminal and in Markdown."""
    return [*caveats(rows), *sentences(rows), *scope(rows)]

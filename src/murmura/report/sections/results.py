"""The table that answers a run's questions, and what to know before trusting it."""

from __future__ import annotations

from collections.abc import Sequence

from murmura.measure.figure import Figure
from murmura.report.caveats import caveats
from murmura.report.comparison import differences, sentences
from murmura.report.content import Block, Definitions, Entry, Section, Table, Warning, entry, note
from murmura.report.guarantee import scope
from murmura.report.table import Row, attacked, columns, kinds, of_seeds, runs_of
from murmura.units import DASH


def results(rows: Sequence[Row]) -> Section:
    """After the last round."""
    spread = of_seeds(rows, "; mean ± sample standard deviation where a method ran with several seeds")
    lead = f"After the last round{spread}. Small print gives the same figure before training. A dash ({DASH}) means "
    differing = [entry(f"{one.words}.", ", ".join(one.figures)) for one in differences(rows)]
    meanings = {figure.title: figure.meant(kinds(rows)) for figure in columns(rows)}
    blocks: list[Block] = [summary(rows), *map(note, caveats(rows)), Definitions(meanings)]
    if differing:
        strong = "Not everything here can be compared."
        text = "In columns with ≠, figures of different rows do not stand on the same:"
        blocks.insert(0, Warning(strong, text, differing))
    if not attacked(rows) and not any(run.audit for run in runs_of(rows)):
        blocks.append(note("Leakage was not measured: no attack was carried out."))
    return Section("Results", f"{lead}not measured.", blocks)


def summary(rows: Sequence[Row], brief: bool = False) -> Table:
    """A row a method and a column a figure; where that is not ``brief``, with what each was before training."""
    shown = columns(rows)
    marked = frozenset(title for one in differences(rows) for title in one.figures)
    lines = []
    for row in rows:
        name = Entry(row.label, (row.remark,) if row.remark else (), row.state, row.look)
        lines.append([name, *(row.cells[one.key].entry(one, () if brief else _more(row, one)) for one in shown)])
    titles, short = ["Method", *(one.title for one in shown)], ["method", *(one.heading for one in shown)]
    return Table(titles, lines, short=short, marked=marked, stacked=True, css="results")


def remarks(rows: Sequence[Row]) -> list[str]:
    """What stands below the table in a terminal and in Markdown."""
    return [*caveats(rows), *sentences(rows), *scope(rows)]


def _more(row: Row, figure: Figure) -> list[str]:
    """How many seeds a figure is of, what it was before training and whether it was counted."""
    cell, before = row.cells[figure.key], row.before(figure.key)
    return [
        f"{cell.n} of {len(row.runs)} seeds" if 0 < cell.n < len(row.runs) else "",
        "" if figure.total or before.mean is None else f"before {before.value(figure)}",
        "expected" if any(figure.key in run.last.expected for run in row.runs) else "",
    ]

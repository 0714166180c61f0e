"""The table as Markdown, for a README or a page of results."""

from __future__ import annotations

from collections.abc import Sequence

from murmura.report.comparison import sentences
from murmura.report.noted import noted
from murmura.report.table import Row, columns, promises


def markdown(rows: Sequence[Row]) -> str:
    """A line a row and a column a figure, spreads and intervals behind their means; below it, what should be noted,
    what cannot be compared from line to line, and what an ε is about."""
    head = ["method", *(figure.name for figure in columns(rows))]
    lines = [head, ["---", *("--:" for _ in columns(rows))]]
    lines += [[_method(row), *(row.cells[figure.key].words(figure) for figure in columns(rows))] for row in rows]
    drawn = "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
    return drawn + "".join(f"\n{sentence}\n" for sentence in [*noted(rows), *sentences(rows), *promises(rows)])


def _method(row: Row) -> str:
    remarks = ", ".join(part for part in (row.remark, row.state) if part)
    return f"{row.label} ({remarks})" if remarks else row.label

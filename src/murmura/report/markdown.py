"""The table as Markdown, for a README or a page of results."""

from __future__ import annotations

from collections.abc import Sequence

from murmura.report.table import Column, Row, columns, promises


def markdown(rows: Sequence[Row]) -> str:
    """A line a row and a column a figure, spreads behind their means; below it, what an ε is about."""
    head = ["method", *(column.short.replace("\n", " ") for column in columns(rows))]
    lines = [head, ["---", *("--:" for _ in columns(rows))]]
    lines += [[_method(row), *(_figure(column, row) for column in columns(rows))] for row in rows]
    drawn = "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
    return drawn + "".join(f"\n{sentence}\n" for sentence in promises(rows))


def _method(row: Row) -> str:
    remarks = ", ".join(part for part in (row.remark, row.state) if part)
    return f"{row.label} ({remarks})" if remarks else row.label


def _figure(column: Column, row: Row) -> str:
    cell = row.cells[column.key]
    return f"{column.value(cell)} {column.spread(cell)}".strip()

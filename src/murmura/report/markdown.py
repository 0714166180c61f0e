"""The table as Markdown, for a README or a page of results."""

from __future__ import annotations

from collections.abc import Sequence

from murmura.report.sections.results import remarks, summary
from murmura.report.table import Row


def markdown(rows: Sequence[Row]) -> str:
    """A line a row and a column a figure, small print behind the figures; below it what to know before trusting it."""
    table = summary(rows, brief=True)
    head = [title.replace("\n", " ") for title in table.short]
    lines = [head, ["---", *["--:"] * (len(head) - 1)]]
    lines += [[cell.words for cell in row] for row in table.entries]
    drawn = "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
    return drawn + "".join(f"\n{sentence}\n" for sentence in remarks(rows))

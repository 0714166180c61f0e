"""Answers and table as Markdown, for a README or a page of results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from murmura.report.content import FirstScreen
from murmura.report.in_short import in_short
from murmura.report.sections.results import remarks, summary
from murmura.report.table import Row


def markdown(rows: Sequence[Row], which: Sequence[str] = ()) -> str:
    """What to know first, and the table.

    Args:
        which: of several rows, which is better (``in_short``).
    """
    return f"{answered(in_short(rows, which))}\n{tabled(rows)}"


def answered(answers: FirstScreen) -> str:
    """A line a question."""
    return "".join(f"- **{question}** {' '.join(told)}\n" for question, told in answers.answers.items())


def tabled(rows: Sequence[Row]) -> str:
    """A line a row and a column a figure, small print behind the figures; below it what to know before trusting it."""
    table = summary(rows)
    head = [title.replace("\n", " ") for title in table.short]
    drawn = pipes(head, [[cell.words for cell in row] for row in table.entries])
    return drawn + "".join(f"\n{sentence}\n" for sentence in remarks(rows))


def pipes(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A Markdown table of cells in plain words; all columns but the first are aligned at the right."""
    every = [head, ["---", *["--:"] * (len(head) - 1)], *lines]
    return "".join(f"| {' | '.join(map(_plain, cells))} |\n" for cells in every)


def _plain(cell: str) -> str:
    """A cell that ends no column and opens no tag, whatever a user has called something."""
    return cell.replace("|", "\\|").replace("<", "&lt;")

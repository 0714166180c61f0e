"""Answers and table as Markdown, for a README or a page of results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from murmura.report.content import FirstScreen, Table
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
    return pipes(replace(table, columns=head)) + "".join(f"\n{sentence}\n" for sentence in remarks(rows))


def pipes(table: Table) -> str:
    """A Markdown table, its cells in plain words; all columns but the first are aligned at the right."""
    rule = ["---", *["--:"] * (len(table.columns) - 1)]
    every = [table.columns, rule, *([cell.words for cell in row] for row in table.entries)]
    return "".join(f"| {' | '.join(map(_plain, cells))} |\n" for cells in every)


def _plain(cell: str) -> str:
    """A cell that ends no column and opens no tag, whatever a user has called something."""
    return cell.replace("|", "\\|").replace("<", "&lt;")

"""Which labels a classifier takes for which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from murmura.measure.figure import between
from murmura.report.content import Block, Entry, ReportSection, Table, entry
from murmura.report.table import Row, heading, means, of_seeds
from murmura.units import DASH, count, decimal

_DEEPEST = 0.35  # of the background, for all texts of a label


def confusion(rows: Sequence[Row]) -> ReportSection | None:
    """What became of the texts of each label; rows of which that was not measured are left out."""
    blocks: list[Block] = []
    for row in rows:
        tables = [run.last.confusion for run in row.runs if run.last.confusion]
        if tables:
            blocks += [*heading(rows, row), _table(tables)]
    lead = (
        "What became of the held-out texts of each label, or the questions of each right option, after the last round"
        f"{of_seeds(rows, ' (means over the seeds)')}. A row holds those of one label, a column those that the model "
        "gave one; “right” is the share of a row that was given its own label, with its 95 % interval and how many "
        "they are."
    )
    return ReportSection("Right and wrong, label by label", lead, blocks) if blocks else None


def _table(tables: Sequence[Mapping[str, Mapping[str, float]]]) -> Table:
    """In means over the runs of a row."""
    labels = list(dict.fromkeys(label for one in tables for label in one))
    rows = []
    for label in labels:
        answers = means([dict.fromkeys(labels, 0.0) | dict(one.get(label, {})) for one in tables])
        total = sum(answers.values())
        cells = [Entry(count(answers[one]), shade=_DEEPEST * 100 * answers[one] / (total or 1)) for one in labels]
        share = answers[label] / (total or 1)
        right = entry(decimal(share), between(share, int(total))) if total >= 1 else DASH
        rows.append([label, *cells, right])
    return Table(["Label", *(f"given “{label}”" for label in labels), "Right"], rows, css="confusion")

"""How many records each site had, and what became of them."""

from __future__ import annotations

from collections.abc import Sequence

from murmura.report.content import Block, Entry, Heading, Paragraph, ReportSection, Table, folded, note
from murmura.report.table import Row, distinct, kinds, runs_of
from murmura.runs.schema import SiteReport
from murmura.tasks import TASKS
from murmura.units import DASH, count, listing

_MANY = 12
_COUNTED = ("Records", "Used", "Shortened", "Dropped")
_UNTOLD = (
    "How many records they have is not told: ε takes these numbers as public, but the run's owner need not make them "
    "so."
)
_ELSEWHERE = (
    "A site on a machine of its own says with how many records it takes part, and not how many more it has or why it "
    "leaves them out."
)
_NO_GAINS = (
    "Whether every site gains, or one pays, was not measured: with a table [personal] in the experiment each site "
    "measures it on records of its own, set apart."
)


def sites(rows: Sequence[Row]) -> ReportSection:
    """Each different set of sites once."""
    whole = " or ".join(TASKS[kind].whole for kind in kinds(rows))
    lead = (
        "How many records each site had, drawn or not, how many of them it used, how many of these were shortened to "
        f"fit the model (never {whole}), and how many did not fit at all."
    )
    every, blocks = distinct(runs_of(rows), lambda run: run.sites), list[Block]()
    for one, names in every:
        blocks += [Heading([Entry(", ".join(names))])] if len(every) > 1 else []
        blocks += [Paragraph("Not recorded.")] if one is None else _blocks(one)
    blocks += [note(_NO_GAINS)] if not any(run.personal or run.last.privacy for run in runs_of(rows)) else []
    return ReportSection("Sites", lead, blocks)


def _blocks(reports: Sequence[SiteReport]) -> list[Block]:
    numbers = [(one.records, one.used, one.truncated, one.dropped) for one in reports]
    number = len(reports) if len(reports) > _MANY else 0
    if any(used is None for _, used, *_ in numbers):
        names = Paragraph(f"{listing([one.site for one in reports])}.")
        return [*folded([names], f"All {number} sites by name" * bool(number)), note(_UNTOLD)]
    sums = [_count(None if None in column else sum(map(int, column))) for column in zip(*numbers, strict=True)]
    rows = [[one.site, *map(_count, row)] for one, row in zip(reports, numbers, strict=True)]
    table = Table(["Site", *_COUNTED], [*rows, ["All sites", *sums]], total=True, css="sites")
    told = ", ".join(f"{value} {name.lower()}" for value, name in zip(sums, _COUNTED, strict=True) if value != DASH)
    apart = [note(_ELSEWHERE)] if DASH in sums else []
    return [*folded([table], f"All {number} sites, one by one: {told}" * bool(number)), *apart]


def _count(value: int | None) -> str:
    return DASH if value is None else count(value)

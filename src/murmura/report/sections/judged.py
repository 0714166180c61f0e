"""Whose answers a judge preferred."""

from __future__ import annotations

from collections.abc import Sequence

from murmura.measure.figure import between
from murmura.report.content import Block, Entry, ReportSection, Table, capital, entry, note
from murmura.report.table import Row, each_run, runs_of
from murmura.runs.judgement import Judgement
from murmura.runs.record import RunRecord
from murmura.units import DASH, decimal

_LEAD = (
    "A judge saw each question with two answers, in both orders, and rated helpfulness, relevance, correctness and "
    "coherence. A win in both orders, or in one with a tie in the other, is a win; a win and a loss are a tie (Zhang "
    "et al. 2024). WT is the share of wins and ties. A judge is a model too: what it prefers need not be right."
)


def judged(rows: Sequence[Row]) -> ReportSection | None:
    """Of those runs whose answers were judged."""
    found = [run for run in runs_of(rows) if run.judged]
    return ReportSection("Judged answers", _LEAD, each_run(rows, found, figures_of)) if found else None


def figures_of(run: RunRecord) -> list[Block]:
    """A table and its doubts for each judgement of a run."""
    found: list[Block] = []
    for one in run.judged:
        found += [table(one), *map(note, remarks(one, promised=bool(run.last.privacy)))]
    return found


def remarks(one: Judgement, *, promised: bool) -> list[str]:
    """What to know of it, in sentences.

    Args:
        promised: the run promises an ε.
    """
    beside = uncovered(one) if promised else []
    return [*doubts(one), *([f"No ε covers these figures: {'; '.join(beside)}."] if beside else [])]


def uncovered(one: Judgement) -> list[str]:
    """Why what a judge preferred tells of private records beside any ε."""
    told = ["the questions come out of the sites’ records"] * one.private
    told += [f"site {one.site} has answered by an adapter of its own"] * bool(one.site)
    return told + ["the run’s ε does not count the other run"] * one.is_against_run


def table(one: Judgement) -> Table:
    """Wins, ties and losses by aspect, in shares."""
    lines: list[list[Entry | str]] = []
    for aspect, counts in one.counts.items():
        n = sum(counts.values())
        shares = [DASH] * 3 if n == 0 else [decimal(counts[outcome] / n) for outcome in ("win", "tie", "lose")]
        kept = counts["win"] + counts["tie"]
        wt = Entry(DASH) if n == 0 else entry(decimal(kept / n), *between(kept / n, n).split(", "))
        lines.append([capital(aspect), *shares, wt])
    asked = f", on {one.questions} {one.source}" if one.source else ""
    title = f"Against {one.against}, by {one.judge}{asked}"
    return Table(["", "Win", "Tie", "Lose", "WT"], lines, title)


def doubts(one: Judgement) -> list[str]:
    """What to know before trusting it, in sentences."""
    n = sum(one.counts["overall"].values())
    told = []
    lacking = {"could not be read": one.unparsed, "the judge would not give, or had no room for": one.refused}
    if some := [f"{number} of {one.asked} verdicts {what}" for what, number in lacking.items() if number]:
        told.append(
            f"{' and '.join(some)}; {n} of {one.questions} questions have one in both orders, and only these count."
        )
    if n:
        first = (
            ""
            if one.first is None
            else f"; of verdicts that were no tie, the answer that stood first won {one.first:.0%}"
        )
        told.append(f"With the order of the answers {one.turned} of {n} outcomes changed{first}.")
    return told

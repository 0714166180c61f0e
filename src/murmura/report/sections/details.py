"""What went otherwise than planned, what else is worth knowing; folded away, all numbers, experiments, environments."""

from __future__ import annotations

from collections.abc import Sequence

from murmura.measure.catalogue import measured
from murmura.report.content import Block, Details, Entry, Heading, Listing, Paragraph, ReportSection, Table, folded
from murmura.report.run_facts import environment
from murmura.report.table import OUTSIDE, Row, distinct, promises_privacy, runs_of
from murmura.runs.record import RunRecord
from murmura.units import DASH

_MANY_EVENTS = 12


def events(rows: Sequence[Row]) -> ReportSection:
    """In the order of the rounds of each run."""
    runs = runs_of(rows)
    told, besides = list[str](), list[str]()
    for run in runs:
        of = f"{run.name}, " if len(runs) > 1 else ""
        told += [f"{of}{when}: {event}" for when, event in run.unplanned]
        besides += [f"{of}round {one.number}: {what}" for one in run.rounds for what in one.told]
    blocks: list[Block] = folded([Listing(told)], f"{len(told)} events" * (len(told) > _MANY_EVENTS))
    if not told:
        hidden = ", or they are for the run's owner alone (see “What is guaranteed”)"
        hiding = any(run.hides_cohorts for run in runs)
        blocks = [Paragraph(f"None were recorded{hidden if hiding else ''}.")]
    if besides:
        more = f"{len(besides)} notes" * (len(besides) > _MANY_EVENTS)
        blocks += [Paragraph("As planned, and worth knowing:"), *folded([Listing(besides)], more)]
    return ReportSection("Events", "What went otherwise than planned.", blocks)


def details(rows: Sequence[Row]) -> ReportSection:
    """Runs, numbers of every round, experiments and environments."""
    runs = runs_of(rows)
    several = len(runs) > 1
    blocks: list[Block] = [Details("Runs in this report", [_overview(runs)])] if several else []
    numbers: list[Block] = []
    for row in rows:
        for run in row.runs:
            name = f"{row.label}, {run.name}" if len(row.runs) > 1 else row.label
            numbers += [*([Heading([Entry(name)], level=4)] if several else []), _numbers(run)]
    blocks.append(Details("Numbers of every round", numbers, css="numbers"))
    for config, names in distinct(runs, lambda run: run.config):
        blocks.append(Details("Experiment as it ran" + f": {', '.join(names)}" * several, [Paragraph(config, "file")]))
    every = distinct(runs, environment)
    for lines, names in every:
        if lines is not None:
            summary = "Environment" + f": {', '.join(names)}" * (len(every) > 1)
            blocks.append(Details(summary, [Table((), lines, text=(0, 1))]))
    return ReportSection("In detail", blocks=blocks)


def _overview(runs: Sequence[RunRecord]) -> Table:
    """What each run is called, and how far it is."""
    lines = []
    for run in runs:
        of = "" if run.planned is None or run.finished else f" of {run.planned}"
        seed, state = DASH if run.seed is None else str(run.seed), "finished" if run.finished else "unfinished"
        lines.append((run.name, run.label, run.model or DASH, seed, f"{run.last.number}{of}", state))
    return Table(("Run", "Method", "Model", "Seed", "Rounds", "State"), lines, text=(0, 1, 2, 5))


def _numbers(run: RunRecord) -> Table:
    """Every figure of every round: the pictures for those who cannot see them, and what has no picture."""
    shown, promised = measured({key: None for one in run.rounds for key in one.values}), promises_privacy([run])
    titles = [f"{one.title} ({OUTSIDE})" if one.of_members and promised else one.title for one in shown]
    lines = [(str(one.number), *(figure.words(one.row) for figure in shown)) for one in run.rounds]
    return Table(["Round", *titles], lines, text=())

"""What was counted, and where the time went, as bars."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from murmura.measure.catalogue import figure
from murmura.report.content import Bars, Block, Entry, Grid, Heading, LabelledBar, ReportSection
from murmura.report.table import Cell, Row, heading, means, of_seeds
from murmura.runs.schema import Round
from murmura.units import count, duration

_OTHER = "other"


def answers(rows: Sequence[Row]) -> ReportSection | None:
    """Of each benchmark how many answers met which rejection after the last round."""
    lead = (
        "How many of the model’s answers to the questions of benchmarks met which fate, after the last round"
        f"{of_seeds(rows, ' (means over the seeds)')}. The answers themselves are not kept."
    )
    return _section("What became of answers", lead, rows, _answers)


def time(rows: Sequence[Row]) -> ReportSection | None:
    """Seconds of each phase."""
    lead = (
        f"Time of the whole run by phase{of_seeds(rows, ', mean over the seeds')}; bars are shares of it. “Other” is "
        "wall time outside any phase."
    )
    return _section("Where the time went", lead, rows, _phases)


def counts(rows: Sequence[Row]) -> ReportSection | None:
    """How often each thing happened."""
    lead = (
        f"How often each thing happened, over all rounds and sites{of_seeds(rows, ', mean over the seeds')}. Only "
        "counts are recorded, never a text."
    )
    return _section("What was counted", lead, rows, _counts)


def _section(
    title: str, lead: str, rows: Sequence[Row], of: Callable[[Row], Mapping[str, list[LabelledBar]]]
) -> ReportSection | None:
    groups: list[list[Block]] = []
    for row in rows:
        blocks: list[Block] = []
        for name, bars in of(row).items():
            blocks += [*([Heading([Entry(name)], level=4)] if name else []), Bars(bars, row.look)]
        if blocks:
            groups.append([*heading(rows, row), *blocks])
    return ReportSection(title, lead, [Grid(groups)]) if groups else None


def _answers(row: Row) -> dict[str, list[LabelledBar]]:
    told = [run.last.answers for run in row.runs]
    found = {}
    for name in dict.fromkeys(name for one in told for name in one):
        numbers = {key: value for key, value in means([one[name] for one in told if name in one]).items() if value}
        found[figure(name).name] = _bars(numbers, sum(numbers.values()))
    return found


def _phases(row: Row) -> dict[str, list[LabelledBar]]:
    """Longest first; ``other`` is what the phases leave of the wall time."""
    seconds = _totals(row, lambda one: one.seconds)
    wall = row.cells["wall"].mean
    other = (wall or 0.0) - sum(seconds.values())
    if seconds and wall and other > 0.005 * wall:
        seconds[_OTHER] = other
    whole = sum(seconds.values())
    order = sorted(seconds, key=lambda name: (name == _OTHER, -seconds[name]))
    bars = [LabelledBar(name, duration(seconds[name]), 100 * seconds[name] / (whole or 1)) for name in order]
    return {"": bars} if bars else {}


def _counts(row: Row) -> dict[str, list[LabelledBar]]:
    """By reason, under the part of the key before the first dot."""
    groups: dict[str, dict[str, float]] = {}
    for key, value in _totals(row, lambda one: one.counts).items():
        head, _, reason = key.partition(".")
        groups.setdefault(head.replace("_", " "), {})[(reason or head).replace("_", " ")] = value
    return {head: _bars(group, max(group.values())) for head, group in groups.items()}


def _bars(numbers: Mapping[str, float], whole: float) -> list[LabelledBar]:
    """The most frequent first."""
    order = sorted(numbers.items(), key=lambda item: -item[1])
    return [LabelledBar(name, count(value), 100 * value / max(1.0, whole)) for name, value in order]


def _totals(row: Row, part: Callable[[Round], Mapping[str, float]]) -> dict[str, float]:
    """Sum over the rounds, mean over the runs that have the key."""
    sums: dict[str, list[float]] = {}
    for run in row.runs:
        for key in dict.fromkeys(key for one in run.rounds for key in part(one)):
            sums.setdefault(key, []).append(sum(part(one).get(key, 0.0) for one in run.rounds))
    return {key: Cell.of(values).mean or 0.0 for key, values in sums.items()}

"""Which of several rows is better, as far as seeds can tell: what ``murmura report`` says of runs side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite

from murmura.compare.outcome import LEAKAGE, better, utility_of
from murmura.compare.statistics import Difference, differences
from murmura.measure.catalogue import figure
from murmura.measure.figure import Figure
from murmura.report.comparison import differences as unlike
from murmura.report.table import Row, kinds
from murmura.units import decimal, listing

_MORE = "`murmura compare` runs all with the same seeds."


def which_is_better(rows: Sequence[Row]) -> tuple[str, ...]:
    """The row with the best utility by its mean, against each other one, paired by seed and corrected for how many they
    are (Holm); and which of these leaks less.

    Args:
        rows: of a table; nothing is said of one alone, of rows about different kinds of record, or of figures that were
            not measured alike.

    Returns:
        sentences.
    """
    known = kinds(rows)
    if len(rows) < 2 or len(known) > 1:
        return ()
    one = figure(utility_of(known[0]))
    apart = _unlike(rows, one)
    if apart:
        return (f"That cannot be told: {one.title.lower()} was not measured alike ({apart}).",)
    measured = [row for row in rows if row.finished and row.cells[one.key].mean is not None]
    aside = [row.label for row in rows if row not in measured]
    left = [f"Left out, as unfinished or not measured: {listing(aside)}."] if aside else []
    if len(measured) < 2:
        return ("That cannot be told: there are no two finished runs that measured it.", *left)
    ordered = sorted(measured, key=lambda row: better(one) * (row.cells[one.key].mean or 0.0), reverse=True)
    found = _against(ordered, one.key)
    leaking = {} if _unlike(rows, figure(LEAKAGE)) else _against(ordered, LEAKAGE)
    return (*_verdict(ordered, one, found), *_leaking(ordered[0], leaking), *left)


def _against(ordered: Sequence[Row], key: str) -> Mapping[str, Difference]:
    """How a figure of the others differs from that of the first, over the seeds that both have."""
    first, *others = ordered
    return differences({row.label: _by_seed(row, key) for row in others}, _by_seed(first, key))


def _by_seed(row: Row, key: str) -> dict[int, float]:
    values = {run.seed: run.last.values.get(key) for run in row.runs if run.seed is not None}
    return {seed: value for seed, value in values.items() if value is not None and isfinite(value)}


def _verdict(ordered: Sequence[Row], one: Figure, found: Mapping[str, Difference]) -> list[str]:
    """What may be said of the best, and no more than that."""
    first, *others = ordered
    value = f"{one.title.lower()} {first.cells[one.key].value(one)}"
    worse = [row.label for row in others if row.label in found and found[row.label].shown]
    alike = [row.label for row in others if row.label in found and found[row.label].p is not None]
    alike = [label for label in alike if label not in worse]
    alone = [row.label for row in others if row.label not in found or found[row.label].p is None]
    told = []
    if worse:
        by = "; ".join(f"{label} by {_size(found[label])}" for label in worse)
        told.append(f"{first.label} ({value}) is better than {by}.")
    if alike:
        by = "; ".join(f"{label} (difference {found[label].words})" for label in alike)
        told.append(f"{'It' if worse else f'{first.label} ({value}, the best mean)'} cannot be told apart from {by}.")
    if alone:
        names = ", ".join(f"{row.label} {row.cells[one.key].value(one)}" for row in others if row.label in alone)
        head = (
            "Not compared with it"
            if told
            else f"Not known: best is {first.label} ({value}), before {names}. Nothing is shown"
        )
        names = f": {names}" if told else ""
        told.append(f"{head} with fewer than two seeds in common{names}. {_MORE}")
    return told


def _leaking(first: Row, found: Mapping[str, Difference]) -> list[str]:
    """Which others leak less than the best, or more, where seeds show it."""
    shown = {label: far for label, far in found.items() if far.shown}
    less = [f"{label} by {_size(far)}" for label, far in shown.items() if far.estimate.mean < 0]
    more = [f"{label} by {_size(far)}" for label, far in shown.items() if far.estimate.mean > 0]
    told = [f"{first.label} leaks more (AUC) than {'; '.join(less)}."] if less else []
    return told + ([f"{first.label} leaks less (AUC) than {'; '.join(more)}."] if more else [])


def _size(far: Difference) -> str:
    """``0.037 (0.022 to 0.051)``, whichever way."""
    low, high = far.estimate.low, far.estimate.high
    ends = sorted(abs(end) for end in (low, high) if end is not None)
    between = f" ({' to '.join(map(decimal, ends))})" if len(ends) == 2 else ""
    return f"{decimal(abs(far.estimate.mean))}{between}"


def _unlike(rows: Sequence[Row], one: Figure) -> str:
    """What a figure depends on that rows do not have in common."""
    return "; ".join(found.what for found in unlike(rows) if one.title in found.figures)

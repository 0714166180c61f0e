"""Which of several rows is better, as far as seeds can tell: what ``murmura report`` says of runs side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from murmura.compare.outcome import LEAKAGE, better, by_seed, finding_most
from murmura.measure.catalogue import figure, utility_of
from murmura.measure.figure import GUESSING, Figure
from murmura.measure.statistics import Difference, differences
from murmura.report.comparison import apart
from murmura.report.table import Row, kinds
from murmura.units import listing

_CORRECTED = "Of these p is corrected for all pairs of rows (Holm), intervals are not."
_MORE = "To run all with several seeds: murmura compare."


def which_is_better(rows: Sequence[Row]) -> tuple[str, ...]:
    """The row with the best utility by its mean, against each other one, paired by seed; and which of these leaks less.

    Since the one was picked for such figures, p values are corrected as if every two rows had been compared (Holm).

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
    measured = [row for row in rows if row.finished and row.cells[one.key].n == len(row.runs)]
    aside = [row.label for row in rows if row not in measured]
    why = f"unfinished or without a finite {_name(one)} of every seed"
    left = [f"Left out, as {why}: {listing(aside)}."] if aside else []
    if len(measured) < 2:
        return (f"That cannot be told: there are no two finished runs with a finite {_name(one)}.", *left)
    if why := apart(measured, one.key):
        return (f"That cannot be told: {_name(one)} was not measured alike ({why}).", *left)
    ordered = sorted(measured, key=lambda row: better(one) * (row.cells[one.key].mean or 0.0), reverse=True)
    leaking = [] if apart(measured, LEAKAGE) else _leaking(ordered)
    return (*_verdict(ordered, one), *leaking, *left)


def _name(one: Figure) -> str:
    return one.title.lower()


def _against(
    ordered: Sequence[Row], key: str, attacks: Mapping[str, str] | None = None, least: float = -inf
) -> Mapping[str, Difference]:
    """How a figure of the others differs from that of the first, over the seeds that both have.

    Args:
        attacks: whose AUC leakage is; None where it is that of the strongest in each run.
        least: what a smaller figure counts as.
    """
    values = {
        row.label: {seed: max(value, least) for seed, value in by_seed(row.runs, key, attacks or {}).items()}
        for row in ordered
    }
    return differences(values, values.pop(ordered[0].label), picked=True)


def _verdict(ordered: Sequence[Row], one: Figure) -> list[str]:
    """What may be said of the best, and no more than that."""
    first, *others = ordered
    value, found = f"{_name(one)} {first.cells[one.key].value(one)}", _against(ordered, one.key)
    known = {label: far for label, far in found.items() if far.p is not None}
    shown = {label: far for label, far in known.items() if far.shown}
    ahead = {label: far for label, far in shown.items() if better(one) * far.estimate.mean > 0}
    worse = [f"{label} by {far.size}" for label, far in shown.items() if label not in ahead]
    alike = [f"{label} (difference {far.words})" for label, far in known.items() if label not in shown]
    alone = [f"{row.label} {row.cells[one.key].value(one)}" for row in others if row.label not in known]
    if not known:
        best = f"{first.label} has the best {_name(one)} ({first.cells[one.key].value(one)})"
        chance = "which may be chance, as they have fewer than two seeds in common"
        return [f"Not known: {best}, before {', '.join(alone)}, {chance}. {_MORE}"]
    who = f"{first.label} ({value}{'' if worse else ', the best mean'})"
    told = [f"{who} is better than {'; '.join(worse)}."] * bool(worse)
    told += [f"{'It' if worse else who} cannot be told apart from {'; '.join(alike)}. {_CORRECTED}"] * bool(alike)
    # Means are over all seeds of a row, differences over those in common: so the two may disagree.
    told += [
        f"{label} is better than it by {far.size} with the seeds that both have, though not by the mean of all."
        if told
        else f"{label} is better than {who} by {far.size} with the seeds that both have."
        for label, far in ahead.items()
    ]
    told += [f"Not compared with it, since fewer than two seeds are in common: {', '.join(alone)}. {_MORE}"] * bool(
        alone
    )
    return told


def _leaking(ordered: Sequence[Row]) -> list[str]:
    """Which others leak less than the best, or more, by one attack on all of them, where seeds show it. To be found
    less than guessing finds is no merit."""
    attacks = finding_most([run for row in ordered for run in row.runs])
    first, found = ordered[0], _against(ordered, LEAKAGE, attacks, least=GUESSING)
    shown = {label: far for label, far in found.items() if far.shown}
    leaks = f"by {attacks['attack']} (AUC)" if "attack" in attacks else "(AUC)"
    less = [f"{label} by {far.size}" for label, far in shown.items() if far.estimate.mean < 0]
    more = [f"{label} by {far.size}" for label, far in shown.items() if far.estimate.mean > 0]
    told = [f"{first.label} leaks more {leaks} than {'; '.join(less)}."] if less else []
    return told + ([f"{first.label} leaks less {leaks} than {'; '.join(more)}."] if more else [])

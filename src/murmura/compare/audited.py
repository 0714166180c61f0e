"""What audits of an arm's runs have found, which attack with all that a run has kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import fmean

from murmura.compare.statistics import Estimate
from murmura.report.standing import cases
from murmura.runs import RunRecord
from murmura.runs.audit import TARGETS, Separation
from murmura.units import listing

UNTRIED = (
    "Each of these attacks looks at a model, or at a single upload, of one round. Whoever keeps them all, as a server "
    "can, may find more: audit.keep = true, and then `murmura audit RUN` of each run."
)


def strongest(runs: Iterable[RunRecord]) -> dict[str, list[Separation]]:
    """The strongest attack of each audit, by what was attacked (``TARGETS``)."""
    found: dict[str, list[Separation]] = {}
    for model in [model for run in runs if run.audit for model in run.audit.models]:
        for one in model.attacks:
            if one.attack == model.strongest:
                found.setdefault(model.target, []).append(one)
    return found


def told(arms: Mapping[str, Iterable[RunRecord]]) -> tuple[str, ...]:
    """Of each arm what gives most away, as a sentence; none where no run was audited."""
    found = {arm: strongest(runs) for arm, runs in arms.items()}
    most = [_words(arm, by_target) for arm, by_target in found.items() if by_target]
    lead = "Audits, which attack with all that a run has kept, picked the right one of 100 pairs most often"
    return (f"{lead} in {'; '.join(most)}.",) if most else ()


def _words(arm: str, found: Mapping[str, list[Separation]]) -> str:
    target, attacks = max(found.items(), key=lambda each: fmean(one.auc for one in each[1]))
    seeds = Estimate.of([one.auc for one in attacks], 0, 1)
    low, high = fmean(one.low for one in attacks), fmean(one.high for one in attacks)
    if seeds.low is not None and seeds.high is not None:
        low, high = min(low, seeds.low), max(high, seeds.high)
    by = listing(list(dict.fromkeys(one.attack for one in attacks)))
    runs = "one run" if len(attacks) == 1 else f"{len(attacks)} runs"
    return f"{TARGETS[target]} of {arm}: {cases(seeds.mean, (low, high))}, by {by} ({runs})"

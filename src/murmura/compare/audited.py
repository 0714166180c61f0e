"""What audits of an arm's runs have found, which attack with all that a run has kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from murmura.measure.statistics import Estimate
from murmura.report.standing import KNOWN_BEFORE, cases
from murmura.runs import RunRecord
from murmura.runs.audit import TARGETS, AuditedModel
from murmura.units import listing

_UNCOVERED = "No ε covers what audits find, which look at private records."


@dataclass(frozen=True, slots=True)
class Audited:
    """The strongest attack of each audit of an arm's runs on one of ``TARGETS``.

    Attributes:
        target: which.
        auc: the mean over the runs that were audited.
        low, high: of the wider of two 95 % intervals at each end, over runs and over records in a run.
        by: the attacks.
        runs: how many there are.
        few: so few records were scored in one of them that it says little.
    """

    target: str
    auc: float
    low: float
    high: float
    by: tuple[str, ...]
    runs: int
    few: bool

    @classmethod
    def of(cls, target: str, models: Sequence[AuditedModel]) -> Audited:
        attacks = [attack for model in models for attack in model.best]
        over_runs = Estimate.of([one.auc for one in attacks], 0, 1)
        ends = over_runs.wider([one.low for one in attacks], [one.high for one in attacks])
        assert ends is not None  # every attack has an interval
        by = tuple(dict.fromkeys(one.attack for one in attacks))
        return cls(target, over_runs.mean, *ends, by, len(attacks), any(model.says_little for model in models))


def audited(runs: Sequence[RunRecord]) -> list[Audited]:
    """What was found in each target that was attacked; nothing where no run was audited."""
    found: dict[str, list[AuditedModel]] = {}
    for model in [model for run in runs if run.audit for model in run.audit.models if model.best]:
        found.setdefault(model.target, []).append(model)
    return [Audited.of(target, models) for target, models in found.items()]


def of_models(runs: Sequence[RunRecord]) -> list[Audited]:
    """Without single uploads, which nobody but the server sees."""
    return [one for one in audited(runs) if one.target != "uploads"]


def told(arms: Mapping[str, Sequence[RunRecord]]) -> tuple[str, ...]:
    """Of each arm the most that audits found, in sentences; none where no run was audited."""
    found = {arm: audited(runs) for arm, runs in arms.items()}
    most = {arm: max(own, key=lambda one: one.auc) for arm, own in found.items() if own}
    if not most:
        return ()
    each = "; ".join(_words(arm, len(arms[arm]), one) for arm, one in most.items())
    sentences = [f"Audits, which use all that a run has kept, found most, of 100 pairs: {each}."]
    if left := [arm for arm in arms if arm not in most]:
        sentences.append(f"Not audited: {listing(left)}.")
    if other := [arm for arm in most if any(run.audit.unlike for run in arms[arm] if run.audit)]:
        sentences.append(f"For {listing(other)}, {KNOWN_BEFORE}.")
    if few := [arm for arm, one in most.items() if one.few]:
        sentences.append(f"So few records were audited for {listing(few)} that it says little.")
    if own := [arm for arm, one in most.items() if one.target != "model"]:
        sentences.append(f"For {listing(own)}, what kind of record a site has counts, too.")
    if any(run.audit and run.last.privacy for runs in arms.values() for run in runs):
        sentences.append(_UNCOVERED)
    return tuple(sentences)


def _words(arm: str, runs: int, one: Audited) -> str:
    how = f"from {TARGETS[one.target]}, by {listing([*one.by])}, in {one.runs} of {runs} runs"
    return f"{cases(one.auc, (one.low, one.high))} for {arm} ({how})"

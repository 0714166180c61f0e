"""What the runs of a comparison come to, arm by arm."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, isfinite
from pathlib import Path

from murmura.compare.arms import Candidate
from murmura.compare.audited import Audited, of_models
from murmura.errors import CheckpointError, PrivacyError
from murmura.measure.attacks import CONTROL
from murmura.measure.catalogue import figure, utility_of
from murmura.measure.figure import GUESSING, Figure
from murmura.measure.statistics import Difference, Estimate, differences, estimate
from murmura.privacy.standing import with_others
from murmura.report.standing import caveats_of, promise_of
from murmura.runs.record import RunRecord, read
from murmura.runs.schema import Round

LEAKAGE, UPLOADS = "attack_auc", "upload_auc"
_TARGETS = ("attack", "upload")  # what is attacked: the model, and single uploads


@dataclass(frozen=True)
class Tried:
    """A rate and what it led to: the mean of the utility over the seeds of the search, None where it was not finite."""

    rate: float
    utility: float | None


@dataclass(frozen=True)
class ArmResult:
    """One arm.

    Attributes:
        arm: its name.
        kind: of record.
        seeds: that it was to be run with.
        runs: finished ones, by seed.
        rate: that they trained at.
        tried: every rate that was searched; empty where none was.
        steps: most optimiser steps of all sites together in a run, as far as anybody may know them before.
        epsilon: guaranteed, of the search and one run together, the worst over seeds; None where none is.
        unguaranteed: why there is no ε of an arm that promises one.
        searched: the folders of all runs that looked for its rate, whatever has become of them.
        rate_of: the arm whose rate it has, whatever suits it; empty where it has one of its own.
        attacks: whose AUC its leakage is, and that of its uploads, by what is attacked; where none is named, that of
            the attack that was the strongest in each run, which another run may not have in common with it.
    """

    arm: str
    kind: str
    seeds: Sequence[int]
    runs: Mapping[int, RunRecord]
    rate: float
    tried: tuple[Tried, ...]
    steps: int | None
    epsilon: float | None
    unguaranteed: str
    searched: Sequence[Path] = ()
    rate_of: str = ""
    attacks: Mapping[str, str] = field(default_factory=dict)

    @property
    def utility_figure(self) -> Figure:
        return figure(utility_of(self.kind))

    def values(self, key: str) -> dict[int, float]:
        """A figure at the end of each run that measured it, by seed; finite ones."""
        return by_seed(self.runs.values(), key, self.attacks)

    def figure_of(self, row: Round, key: str) -> float | None:
        """A figure of a round; None where it was not measured."""
        return figure_by(self.attacks, row, key)

    def estimate(self, key: str) -> Estimate | None:
        """Its mean over the seeds; None where no run measured it."""
        values = list(self.values(key).values())
        return estimate(figure(key), values) if values else None

    @property
    def lacking(self) -> list[int]:
        """Seeds whose runs failed, as those do that diverge, or came to no finite utility. A mean over the others would
        be too good."""
        return [seed for seed in self.seeds if seed not in self.values(self.utility_figure.key)]

    @property
    def utility(self) -> Estimate | None:
        """What arms are chosen by, the mean over the seeds; None where no run measured it."""
        return self.estimate(self.utility_figure.key)

    @property
    def before(self) -> float | None:
        """The utility before training, the mean over the runs that measured it; None where none did."""
        first = [run.before.values.get(self.utility_figure.key) for run in self.runs.values() if run.before]
        known = [value for value in first if value is not None and isfinite(value)]
        return sum(known) / len(known) if known else None

    @property
    def leakage(self) -> Estimate | None:
        """The AUC of attacks on the model, likewise."""
        return self.estimate(LEAKAGE)

    @property
    def by_strongest(self) -> ArmResult:
        """The same, attacked by what is the strongest on each run."""
        return replace(self, attacks={})

    @property
    def audits(self) -> list[Audited]:
        """What audits found in its models."""
        return of_models(list(self.runs.values()))

    @property
    def audited(self) -> list[int]:
        """Seeds whose models were audited."""
        return [seed for seed, run in self.runs.items() if of_models([run])]

    @property
    def attacked(self) -> list[int]:
        """Seeds whose models were attacked, while the run went on or by an audit."""
        return sorted({*self.values(LEAKAGE), *self.audited})

    @property
    def most_leakage(self) -> float | None:
        """What limits are held against: its leakage, or what the strongest attack on each run or audits of its models
        have found, where that is more."""
        found = [one.leakage.mean for one in (self, self.by_strongest) if one.leakage is not None]
        return max([*found, *(one.auc for one in self.audits)], default=None)

    @property
    def leakage_at_most(self) -> float | None:
        """The upper end of the widest 95 % interval of what limits are held against."""
        if self.most_leakage is None:
            return None
        ends = [one.widest(LEAKAGE) for one in (self, self.by_strongest)]
        return max([self.most_leakage, *(each[1] for each in ends if each), *(one.high for one in self.audits)])

    def widest(self, key: str) -> tuple[float, float] | None:
        """The wider of two 95 % intervals at each end, over seeds and over records in a run; None where there is
        none."""
        over_seeds = self.estimate(key)
        low, high = (list(self.values(f"{key}_{end}").values()) for end in ("low", "high"))
        return over_seeds.wider(low, high) if over_seeds else None

    @property
    def promise(self) -> str:
        """For what its ε is: δ, unit and adjacency; empty where it promises none."""
        return promise_of(next((run.last.privacy for run in self.runs.values() if run.last.privacy), {}))

    @property
    def caveats(self) -> str:
        """What is said beside the ε of any of its runs; else empty."""
        return caveats_of(self.runs.values())

    @property
    def bytes(self) -> float:
        """That travel in a run, up and down, the most over seeds."""
        return max(run.totals.get("bytes_up", 0) + run.totals.get("bytes_down", 0) for run in self.runs.values())

    @property
    def hides_cohorts(self) -> bool:
        """Whether it is secret whom rounds of its runs asked, so that its bytes are what is to be expected."""
        return any(run.hides_cohorts for run in self.runs.values())

    @property
    def wall(self) -> float | None:
        """Seconds of a run, the mean over seeds; None where runs keep it secret."""
        known = [run.totals["wall"] for run in self.runs.values() if "wall" in run.totals]
        return sum(known) / len(known) if known else None

    @property
    def edge(self) -> bool:
        """Whether the rate is the smallest or the largest that was tried for it, so that one beyond may be better."""
        rates = [one.rate for one in self.tried]
        return not self.rate_of and len(rates) > 1 and self.rate in (min(rates), max(rates))


def by_seed(runs: Iterable[RunRecord], key: str, attacks: Mapping[str, str]) -> dict[int, float]:
    """A figure at the end of each run that has a seed and measured it, leakage by the named attacks; finite ones."""
    values = {
        run.seed: run.totals.get(key) if figure(key).total else figure_by(attacks, run.last, key)
        for run in runs
        if run.seed is not None
    }
    return {seed: value for seed, value in values.items() if value is not None and isfinite(value)}


def figure_by(attacks: Mapping[str, str], row: Round, key: str) -> float | None:
    """A figure of a round, and leakage by the named attack on each target; None where it was not measured."""
    for target, attack in attacks.items():
        attacked, ends = row.attacks.get(target), (f"{target}_auc", f"{target}_auc_low", f"{target}_auc_high")
        if attacked is not None and key in ends and attack in attacked.each:
            return attacked.each[attack][ends.index(key)]
    return row.values.get(key)


def attacked_alike(results: Sequence[ArmResult]) -> list[ArmResult]:
    """The same, with the leakage of arms about one kind of record that of one attack, which finds most in all of them
    together, and that of their uploads likewise: were each measured by its own strongest, that choice would be a part
    of their differences."""
    runs: dict[str, list[RunRecord]] = {}
    for one in results:
        runs.setdefault(one.kind, []).extend(one.runs.values())
    return [replace(one, attacks=finding_most(runs[one.kind])) for one in results]


def finding_most(runs: Sequence[RunRecord]) -> dict[str, str]:
    """By what is attacked, the one that finds most in all runs together of the attacks that were carried out on all
    that were attacked. Never the control, whose AUC is also that of another kind of record, whoever trained on it."""
    found = {}
    for target in _TARGETS:
        every = [attacked.each for run in runs if (attacked := run.last.attacks.get(target))]
        if common := set.intersection(*map(set, every)) - {CONTROL} if every else set[str]():
            found[target] = max(sorted(common), key=lambda attack: sum(each[attack][0] for each in every))
    return found


def better(one: Figure) -> float:
    """1 where more of a figure is better, −1 where less is."""
    return 1.0 if one.better == "higher" else -1.0


def tried(arm: Candidate, folders: Mapping[float, Sequence[Path]]) -> tuple[Tried, ...]:
    """What rates have led to, by the folders of the finished runs of the search at each."""
    found = []
    for rate, own in folders.items():
        key = utility_of(arm.experiment.task.kind)
        values = [read(folder).last.values.get(key) for folder in own]
        known = [value for value in values if value is not None and isfinite(value)]
        whole = bool(values) and len(known) == len(values)
        found.append(Tried(rate, sum(known) / len(known) if whole else None))
    return tuple(found)


def best(arm: Candidate, found: Sequence[Tried]) -> float | None:
    """The rate with the best utility; None where no run of the search came to a finite one."""
    sign = better(figure(utility_of(arm.experiment.task.kind)))
    known = [one for one in found if one.utility is not None]
    return max(known, key=lambda one: sign * (one.utility or 0.0)).rate if known else None


def guaranteed(searched: Sequence[Path], runs: Sequence[RunRecord]) -> tuple[float | None, str]:
    """The ε of the search and one run together, the worst over the runs, or why there is none.

    Whoever takes a rate has seen what the search has made, so all of its runs count, each with its own ledgers; the
    seeds of a comparison beyond the first are there to tell how sure it is, and whoever releases all of them counts all
    of them (``murmura privacy spent``).

    Args:
        searched: every run that looked for a rate, whatever has become of it. What the runs have noted of it counts
            where it is gone, too.
        runs: of the arm, finished.
    """
    told = [run.last.privacy for run in runs]
    if not runs or not all(told):
        return None, ""
    refused = next((one["refused"] for one in told if one.get("refused")), "")
    if refused:
        return None, refused
    try:
        spent = [with_others(run.folder, run.last.privacy, run.options["method"], searched).value for run in runs]
    except (CheckpointError, PrivacyError) as error:
        return None, f"the search for a rate counts too, and {error.what}" if searched else error.what
    return max(spent), ""


def with_search(one: ArmResult, run: RunRecord) -> RunRecord:
    """A run of an arm that was searched, as its arm stands, for which more may have been searched since: its ε is that
    of the search and one run together."""
    if not (one.searched or run.chosen_by) or not run.last.privacy:
        return run
    alone = run.last.privacy.get("alone", run.last.privacy.get("epsilon"))
    privacy = {**run.last.privacy, "alone": alone, "epsilon": one.epsilon, "refused": one.unguaranteed}
    values = {key: value for key, value in run.last.values.items() if key != "epsilon"}
    values |= {} if one.epsilon is None else {"epsilon": one.epsilon}
    last = replace(run.last, values=values, privacy=privacy)
    return replace(run, rounds=(*run.rounds[:-1], last), beside=tuple(one.searched))


def compared(
    results: Sequence[ArmResult], reference: str, key: str, *, picked: bool = False, least: float = -inf
) -> dict[str, Difference]:
    """How a figure differs from the reference's, seed by seed; of arms about the same kind of record.

    Args:
        picked: the reference was picked among them for what they came to.
        least: what a smaller figure counts as.
    """
    known = {one.arm: one for one in results}
    kind = known[reference].kind
    alike = [one for one in results if one.kind == kind]
    values = {one.arm: {seed: max(value, least) for seed, value in one.values(key).items()} for one in alike}
    return differences(values, values.pop(reference), picked=picked)


def frontier(results: Sequence[ArmResult], kind: str) -> list[str]:
    """Arms that no other one beats in both utility and leakage, by their means over all seeds. To be found less than
    guessing finds is no merit."""
    sign = better(figure(utility_of(kind)))
    points = {
        one.arm: (sign * one.utility.mean, -max(one.leakage.mean, GUESSING))
        for one in results
        if one.kind == kind and one.utility and one.leakage and not one.lacking and one.leakage.n == len(one.runs)
    }

    def beaten(own: tuple[float, float]) -> bool:
        return any(all(a >= b for a, b in zip(other, own, strict=True)) and other != own for other in points.values())

    return [arm for arm, own in points.items() if not beaten(own)]

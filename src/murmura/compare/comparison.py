"""A comparison from its arms to what they come to."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os.path import realpath
from pathlib import Path

from murmura.compare import linear
from murmura.compare.arms import Candidate
from murmura.compare.choice import Recommendation, choose
from murmura.compare.config import CompareConfig, Limits
from murmura.compare.jobs import RUNS, SEARCH, Ended, Job, require_done, shared, shared_states, work
from murmura.compare.kept import looks_for, require_own, require_same, require_same_records
from murmura.compare.outcome import ArmResult, Tried, attacked_alike, best, guaranteed, tried
from murmura.compare.remarks import remarks
from murmura.errors import CheckpointError, ConfigError, MurmuraError, RunError
from murmura.experiment.forecast.dry_run import DryRun, Foreseen, dry_run, finished
from murmura.experiment.validate import method_of
from murmura.measure.catalogue import figure, utility_of
from murmura.progress import once, say
from murmura.runs.folder import RunFolder
from murmura.runs.record import RunRecord, read
from murmura.units import listing, several

_WAITING = (
    "a run of the search for a rate was ended from outside or by an unforeseen error. No run that counts begins before "
    "the search is over, since it might come to another rate: give the same command again"
)


@dataclass(frozen=True)
class Outcome:
    """What a comparison has found.

    Attributes:
        name: of the comparison.
        results: arms with a finished run, in their order.
        reference: the arm that others are compared with.
        kind: of record that the choice is about: the reference's.
        seeds: of the runs.
        limits: the user's.
        choice: what to take under them.
        remarks: what to know before trusting it, in sentences.
        at_once: most runs that have shared the machine with one of those that count.
        missing: arms that are in no figure, without a finished run or while their search is not over.
        linear: of labelled records, the accuracy of a linear model by seed (``murmura.compare.linear``).
    """

    name: str
    results: Sequence[ArmResult]
    reference: str
    kind: str
    seeds: Sequence[int]
    limits: Limits
    choice: Recommendation
    remarks: Sequence[str]
    at_once: int = 1
    missing: Sequence[str] = ()
    linear: Mapping[int, float] = field(default_factory=dict)


class Comparison:
    """Arms and how they are compared.

    Args:
        config: options.
        arms: at least one.
        folder: where runs and results are kept.
    """

    def __init__(self, config: CompareConfig, arms: Sequence[Candidate], folder: Path) -> None:
        self.config, self.arms, self.folder = config, arms, folder
        self._failed: list[tuple[Job, Ended]] = []

    @property
    def searches(self) -> list[Job]:
        """Runs that look for a rate, of arms with several."""
        return [
            self._job(SEARCH, arm, seed, rate, f"-rate{rate:g}")
            for seed in self.config.seeds_of_search
            for arm in self.arms
            if _is_searched(arm)
            for rate in arm.rates
        ]

    def runs(self, rates: Mapping[str, float]) -> list[Job]:
        """Runs that count, seed by seed, so that every arm has one before any has two.

        Args:
            rates: of each arm that has one.
        """
        return [
            self._job(RUNS, arm, seed, rates[arm.name])
            for seed in self.config.chosen_seeds
            for arm in self.arms
            if arm.name in rates
        ]

    def _job(self, place: str, arm: Candidate, seed: int, rate: float, more: str = "") -> Job:
        searched = () if place == SEARCH else self._searched_by(arm)
        return Job(arm, seed, rate, self.folder / place / f"{arm.slug}{more}-seed{seed}", place == SEARCH, searched)

    @once()  # arms have the same records, of which there is the same to say
    def check(self) -> dict[str, Foreseen]:
        """Work out every arm without running it. Of one with nothing left to run it is not asked what would stop it.

        Returns:
            what a run of each arm does.

        Raises:
            ConfigError: some arm would be refused; all that are, with the reasons.
            CheckpointError: a folder holds another run, or one on other records.
        """
        require_own(self.folder)
        require_same(self.searches)
        refused, found = dict[str, list[str]](), dict[str, Foreseen]()
        for arm in self.arms:
            jobs = self.jobs_of(arm)
            every = [one for one in jobs if not one.searching]
            may_have = next(one.rates for one in self.arms if one.name == (arm.rate_of or arm.name))
            job = next((one for one in every if one.finished), every[0])
            try:
                require_same(every, may_have)
                experiments = [replace(job, rate=rate).experiment for rate in arm.rates]
                done = all(one.finished for one in jobs)
                planned = finished(experiments[0]) if done else dry_run(experiments[0])
            except CheckpointError:
                raise
            except MurmuraError as error:
                refused.setdefault(str(error), []).append(arm.name)
                continue
            require_same_records(job, planned.plan)
            for reason in planned.refusals if isinstance(planned, DryRun) else ():
                refused.setdefault(reason, []).append(arm.name)
            found[arm.name] = planned
        if refused:
            told = [f"{listing(arms)}: {reason}" for reason, arms in refused.items()]
            what = "these arms would not start, and so nothing was run:\n" + "\n".join(told)
            raise ConfigError(what, where=str(self.folder), fix="Correct or remove them.")
        return found

    def jobs_of(self, arm: Candidate) -> list[Job]:
        """All runs of an arm: those that count, as if at its first rate, since the search has yet to find out at which;
        then those of the search."""
        every = [self._job(RUNS, arm, seed, arm.rates[0]) for seed in self.config.chosen_seeds]
        return [*every, *(job for job in self.searches if job.arm is arm)]

    def carry_out(self, at_once: int, planned: Mapping[str, Foreseen]) -> Outcome:
        """Do what is not done, and say what it all comes to.

        Args:
            at_once: runs side by side.
            planned: of each arm, what ``check`` has found.

        Raises:
            RunError: no run of the reference was finished.
            CheckpointError: a folder holds another run, or another process makes this comparison.
        """
        with RunFolder(self.folder).locked(), shared_states(self.folder):
            return self._carry_out(at_once, planned)

    def _carry_out(self, at_once: int, planned: Mapping[str, Foreseen]) -> Outcome:
        searches = self.searches
        failed = _worked_twice(searches, at_once)
        waiting = {job.arm.name for job, ended in failed if ended.from_outside and not job.finished}
        if waiting:
            say(f"{listing(sorted(waiting))}: {_WAITING}")
        held = {arm.name for arm in self.arms if (arm.rate_of or arm.name) in waiting}
        searched = [arm for arm in self.arms if _is_searched(arm) and arm.name not in waiting]
        found = {arm.name: tried(arm, self._searched(arm)) for arm in searched}
        rates = {arm.name: arm.rates[0] for arm in self.arms if not arm.rate_of and not _is_searched(arm)}
        for arm in searched:
            if (rate := best(arm, found[arm.name])) is not None:
                rates[arm.name] = rate
        rates |= {arm.name: rates[arm.rate_of] for arm in self.arms if arm.rate_of in rates}
        jobs = self.runs(rates)
        require_same(jobs)
        failed += work(jobs, at_once, _told, searches)
        outcome = self._outcome(jobs, found, planned, held)
        if outcome is None:
            reference = next(arm for arm in self.arms if arm.name == self.reference)
            others = " | ".join(dict.fromkeys(f"'{job.arm.name}'" for job in jobs if job.finished))
            instead = f"compare with an arm that has finished runs: --reference {others}." if others else ""
            whose = reference.rate_of or reference.name
            if any(job.arm.name in (whose, reference.name) for job, _ in failed):
                require_done(failed, f"Or {instead}" if others else "")
            lost = f"the search of {whose} came to no finite figure at any of its rates, so the reference has no run"
            fix = f"Give {whose} other rates{f', or {instead}' if others else '.'}"
            raise RunError(lost, where=str(self.folder), fix=fix)
        self._failed = failed
        return outcome

    def write(self, outcome: Outcome) -> Path:
        """Write what was found into the comparison's folder: ``report.html``, the tables as ``comparison.md``, the
        picture as ``comparison.svg`` and all figures as ``comparison.json``.

        Args:
            outcome: what ``carry_out`` has found.

        Returns:
            the page.

        Raises:
            CheckpointError: a file cannot be written.
            RunError: all is written, but some runs had failed; with what each printed last.
        """
        from murmura.compare.files import write  # which stands on this module

        page = write(outcome, self.folder)
        require_done(self._failed, where=page)
        return page

    def _searched(self, arm: Candidate) -> dict[float, list[Path]]:
        """Runs of the search, by rate; none of a rate at which one was not finished."""
        found: dict[float, list[Path]] = {}
        for rate in arm.rates:
            own = [job for job in self.searches if job.arm is arm and job.rate == rate]
            found[rate] = [job.folder for job in own] if all(job.finished for job in own) else []
        return found

    def _searched_by(self, arm: Candidate) -> tuple[Path, ...]:
        """All runs that its rate, or what else the user says, is chosen by; those of the arm whose rate it has, too."""
        whose = [one.experiment.run for one in self.arms if one.name in (arm.name, arm.rate_of)]
        found = [*(Path(place) for run in whose for place in run.chosen_by), *self._ever_searched(arm)]
        return tuple(dict.fromkeys(Path(realpath(one)) for one in found))  # whoever reads them may be in another folder

    def _ever_searched(self, arm: Candidate) -> list[Path]:
        """All runs that have begun to search for its rate: unfinished ones too, those at rates no longer tried, those
        from when it was called otherwise, and those of its own if it has another arm's rate now."""
        own = [one for one in self.arms if one.name in (arm.name, arm.rate_of)]
        # In full: a folder of an arm "X-rate-control" begins like those of "X".
        named = re.compile(rf"(?:{'|'.join(re.escape(one.slug) for one in own)})-rate[\d.e+-]+-seed\d+")
        found = sorted(place for place in (self.folder / SEARCH).glob("*") if RunFolder(place).holds_run)
        return [place for place in found if named.fullmatch(place.name) or any(looks_for(one, place) for one in own)]

    @property
    def reference(self) -> str:
        """The arm that others are compared with."""
        return self.config.reference or self.arms[0].name

    def _outcome(
        self,
        jobs: Sequence[Job],
        found: Mapping[str, tuple[Tried, ...]],
        planned: Mapping[str, Foreseen],
        held: Collection[str],
    ) -> Outcome | None:
        """What finished runs come to; None without one of the reference.

        Args:
            held: arms that wait for a search, whatever runs they have.
        """
        results = []
        for arm in self.arms:
            own = [job for job in jobs if job.arm is arm and job.finished]
            runs = {job.seed: read(job.folder) for job in own}
            if not runs:
                continue
            searched = self._searched_by(arm)
            epsilon, why = guaranteed(searched, list(runs.values()))
            kind = arm.experiment.task.kind
            results.append(
                ArmResult(
                    arm.name,
                    kind,
                    self.config.chosen_seeds,
                    runs,
                    own[0].rate,
                    found.get(arm.rate_of or arm.name, ()),
                    _public_steps(planned[arm.name], list(runs.values())),
                    epsilon,
                    why,
                    searched,
                    arm.rate_of or "",
                )
            )
        results = attacked_alike(results)
        reference = self.reference
        first = next((one for one in results if one.arm == reference), None)
        if first is None:
            return None
        choice = choose(results, self.config.limits, first.kind)
        seeds, limits = self.config.chosen_seeds, self.config.limits
        noted = remarks(results, first.kind, self.config, self.arms)
        missing = [arm.name for arm in self.arms if arm.name not in {one.arm for one in results}]
        noted = [*_left_out(missing, held), *noted]
        every = [run for one in results for run in one.runs.values()]
        if (at_once := shared(self.folder, every)) > 1:
            noted.append(f"Up to {at_once} runs shared the machine, and took longer than they do alone.")
        if len(jobs) > 1 and any(map(_keeps_states, planned.values())):
            noted.append(
                "The first runs compute what layers below the adapters make of the records, and later ones read it: so "
                "the time of a run also depends on its arm's place in the file."
            )
        labelled = [job for job in jobs if job.arm.name == reference and job.finished and first.kind == "labelled"]
        simple = linear.accuracies(labelled)
        return Outcome(
            self.config.name, results, reference, first.kind, seeds, limits, choice, noted, at_once, missing, simple
        )


def _left_out(missing: Sequence[str], held: Collection[str]) -> Iterator[str]:
    """Which arms are in no figure, and why."""
    if waiting := [arm for arm in missing if arm in held]:
        yield f"Left out, since the search for their rate is not over: {listing(waiting)}."
    if others := [arm for arm in missing if arm not in held]:
        yield f"Without a finished run, and so in no figure: {listing(others)}."


def _is_searched(arm: Candidate) -> bool:
    return len(arm.rates) > 1 and not arm.rate_of


def _public_steps(planned: Foreseen, runs: Sequence[RunRecord]) -> int | None:
    """Optimiser steps of a run, as far as anybody may know them: of an arm that promises an ε they must follow from
    options, and neither from how many records sites have nor from whom a round asks."""
    units = {run.last.privacy.get("unit") for run in runs if run.last.privacy}
    fixed = planned.experiment.training.max_steps is not None
    return planned.steps if not units or (units == {"record"} and fixed) else None


def _keeps_states(planned: Foreseen) -> bool:
    """Whether an arm's runs share what frozen layers compute."""
    context, at = planned.plan.context, method_of(planned.experiment).traits.trained_at
    return bool(context and context.model.below and planned.experiment.run.cache_bytes and at == "sites")


def _worked_twice(searches: Sequence[Job], at_once: int) -> list[tuple[Job, Ended]]:
    """Do the runs of a search, and once more what failed by what may pass: else their arm would go without their rates,
    and the same command, once it has passed, come to others. What does not pass says that a rate comes to nothing."""
    failed = work(searches, at_once, _told)
    again = [job for job, ended in failed if ended.may_pass]
    if again:
        say(f"{several(len(again), 'run')} of the search failed by what may pass by itself: once more")
    return [one for one in failed if one[0] not in again] + work(again, at_once, _told, searches)


def _told(job: Job) -> str:
    """The utility that a run ended with."""
    key = utility_of(job.arm.experiment.task.kind)
    return f"{figure(key).title.lower()} {figure(key).words(read(job.folder).last.row)}"

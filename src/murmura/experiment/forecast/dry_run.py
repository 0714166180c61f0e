"""What a run would do, worked out without doing it (``murmura run --dry-run``).

No weights are loaded or fetched: of the model, config and tokenizer are read; of a hub data set, the rows, since nobody
else knows how many there are. What cannot be reached is left out, and the dry run says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from murmura.augment.strategies import Selections, strategy
from murmura.errors import MurmuraError
from murmura.experiment.config import Experiment
from murmura.experiment.forecast import training
from murmura.experiment.forecast.budget import require_answers
from murmura.experiment.forecast.disk import disk
from murmura.experiment.forecast.measuring import MeasuringForecast
from murmura.experiment.forecast.memory import Memory, peak
from murmura.experiment.forecast.notes import notes
from murmura.experiment.forecast.proportions import proportions
from murmura.experiment.forecast.rounds import ForeseenRound, drawn_cohorts, foreseen_rounds
from murmura.experiment.model_spec import ModelSpec
from murmura.experiment.prepare import Plan, prepare
from murmura.experiment.verbs import verbs_of
from murmura.federation.forecast import Forecast, SitePart, Work
from murmura.federation.server.ledger import Ledger
from murmura.federation.wire.releases import rows_of
from murmura.runs.folder import RunFolder
from murmura.runs.schema import Disclosure, SiteReport
from murmura.streams import Stream
from murmura.tracking import tell
from murmura.units import FLOAT32


@dataclass(frozen=True, kw_only=True)
class SitePlan(SiteReport):
    """One site: what becomes of its records, and the most optimiser steps it takes in the first round that asks it. Of
    labelled records also how many have a label to begin with, which are those it then trains on."""

    labelled: int | None
    steps: int


@dataclass(frozen=True)
class Foreseen:
    """A run and its rounds.

    Args:
        plan: of the run, with what is known of its model and records.
        rounds: the first to the last.
    """

    plan: Plan
    rounds: list[ForeseenRound]

    @property
    def experiment(self) -> Experiment:
        return self.plan.decided

    @property
    def steps(self) -> int | None:
        """Optimiser steps of all sites together; None where that is not known, or the server trains."""
        if self.plan.method.traits.trained_at == "server":
            return None
        known = [one.steps for one in self.rounds]
        return None if None in known else sum(one for one in known if one is not None)


@dataclass(frozen=True)
class DryRun(Foreseen):
    """What a run would do; None stands for what could not be found out, and ``unknown`` says why.

    Args:
        plan: what the run goes by.
        rounds: what each round takes.
        sites: in the run's order; those without a usable record would be left out.
        public: what choosing public records, or writing others at the sites, takes; None where there are none.
        work: what is done many times, as far as it is known.
        memory: an estimate of the peak.
        disk: most bytes at a time: of checkpoints and final adapters, or before them of the copies of the records.
        disclosure: what sites would release; messages and bytes are not counted.
        notes: what should be known of these figures.
        refusals: why the run would not start, in its own words.
    """

    sites: list[SitePlan] | None
    public: Forecast | None
    work: list[Work]
    memory: Memory | None
    disk: int | None
    disclosure: list[Disclosure]
    notes: list[str]
    refusals: list[str]

    @property
    def model(self) -> ModelSpec | None:
        """Sizes of the base and of what is trained."""
        return self.plan.context.model if self.plan.context else None

    @property
    def heldout(self) -> Sequence[Any] | None:
        """Records that are measured on; all held-out ones, where it is not known which of them fit."""
        return _heldout(self.plan)

    @property
    def guarantee(self) -> str | None:
        """The privacy plan in words and the ε that it would end with; "none" where nothing is guaranteed."""
        if not self.plan.sizes:
            return None
        return self.plan.guarantee.told() if self.plan.guarantee else "none"

    @property
    def example(self) -> str | None:
        """The first held-out record as the model would see it, as far as that is known without the model."""
        if not self.heldout:
            return None
        context, experiment = self.plan.context, self.experiment
        first = self.heldout[0]
        return context.reading.example(first) if context else experiment.task.preview(experiment.data, first)

    def unused(self, cause: str) -> int | None:
        """How many records nobody uses for a cause."""
        gathered = self.plan.gathered
        return sum(one.cause == cause for one in gathered.unused) if gathered else None

    def count(self, what: str) -> int | None:
        """How much of some work is done each time; None where that is not known, or there is none."""
        return next((one.count for one in self.work if one.what == what), None)


def finished(experiment: Experiment) -> Foreseen:
    """The same of a run that is there already: what decides whether it may begin, and what it would take, is not worked
    out.

    Raises:
        MurmuraError: its options, records or model are no more what they were.
    """
    plan = prepare(experiment, foresee=True, finished=True)
    names = _names(plan)
    public, _ = _public(plan, names)
    return Foreseen(plan, _rounds(plan, names, public.records if public else 0)[1])


def dry_run(experiment: Experiment) -> DryRun:
    """Work out a run. Nothing is trained or written.

    Args:
        experiment: of the run. Where its model or its records cannot be reached, what needs them is None.

    Returns:
        What it would do, ``refusals`` for which it would not start among it.

    Raises:
        MurmuraError: for what would stop the run before its first round too: bad options, records or adapter targets.
    """
    plan = prepare(experiment, foresee=True)
    experiment, method, sizes = plan.decided, plan.method, plan.sizes
    model = plan.context.model if plan.context else None
    names = _names(plan)
    public, choosing = _public(plan, names)
    given = public.records if public else 0
    cohorts, rounds = _rounds(plan, names, given)
    read = sum(sizes.values()) + len(_heldout(plan) or ()) if sizes else 0
    widest = max((len(cohort) for cohort in cohorts), default=None) if cohorts else None
    memory = peak(experiment, model, widest, plan.supplies, read) if model and widest else None
    space = disk(plan, model, names) if model and names else None
    other = method.work(list(plan.owned.values()), experiment.training) if plan.owned else ()
    return DryRun(
        plan=plan,
        sites=_sites(plan, given) if plan.gathered and plan.owned else None,
        rounds=rounds,
        public=public,
        work=[*training.work(plan, rounds), *other, *choosing, *MeasuringForecast(plan, len(rounds), widest).work()],
        memory=memory,
        disk=space,
        disclosure=_disclosure(plan),
        notes=notes(plan) + proportions(experiment, method, rounds, model, memory),
        refusals=_refusals(plan, space),
    )


def _heldout(plan: Plan) -> Sequence[Any] | None:
    if plan.records:
        return plan.records.public.heldout
    return plan.gathered.heldout if plan.gathered else None


def _names(plan: Plan) -> list[str] | None:
    """The sites' names; stand-ins, where the experiment alone says how many there are."""
    if plan.sizes:
        return list(plan.sizes)
    count = 1 if plan.method.traits.pooled else plan.experiment.data.sites.count
    return [f"site {k}" for k in range(count)] if count else None


def _rounds(plan: Plan, names: list[str] | None, public: int) -> tuple[list[list[str]] | None, list[ForeseenRound]]:
    """Whom each round asks, and what it takes."""
    experiment, method, model = plan.decided, plan.method, plan.context.model if plan.context else None
    cohorts = drawn_cohorts(experiment, method, names, Stream(experiment.run.seed)) if names else None
    return cohorts, foreseen_rounds(experiment, method, names, cohorts, plan.owned, model, public)


# ---- what would happen --------------------------------------------------------------------------------------------


def _public(plan: Plan, names: Sequence[str] | None) -> tuple[Forecast | None, Iterable[Work]]:
    """Public records that sites would be given, and what is done to choose them."""
    options = plan.experiment.augment
    if options is None:
        return None, ()
    settings = plan.experiment.method
    own = sum(plan.sizes.values()) if plan.sizes else None
    adapter = plan.context.model.trainable * FLOAT32 if plan.context else 0
    run, how = Selections(options.selections(settings.rounds), len(names or ()), own, adapter), strategy(options)
    return how.forecast(run, plan.pool), how.work(run, plan.pool)


def _sites(plan: Plan, public: int) -> list[SitePlan]:
    experiment, owned = plan.experiment, plan.owned or {}

    def known(records: Sequence[Any]) -> dict[str, Any]:
        found = plan.method.forecast(SitePart(records, 1, True, experiment.training, public=public))
        labelled = found.records if experiment.task.has_labels else None
        return {"labelled": labelled, "steps": found.steps if records else 0}

    if plan.records is None:
        return [SitePlan(name, len(records), None, None, None, **known(records)) for name, records in owned.items()]
    reports = plan.records.planted.reports
    return [SitePlan(**asdict(report), **known(owned.get(report.site, []))) for report in reports]


def _disclosure(plan: Plan) -> list[Disclosure]:
    """Every field that may leave a site, after what was brought together before."""
    method, ledger = plan.method, Ledger()
    if method.traits.pooled:
        ledger.pooled(sum(plan.sizes.values()) if plan.sizes else 1, 0)
    if plan.experiment.data.takes_from_sites:
        ledger.set_apart(len(plan.records.people.from_sites) if plan.records else 1, 0)
    brought = [Disclosure(**row) for row in ledger.table()]
    return [*brought, *(row for _, row in rows_of(verbs_of(plan.decided, method)))]


# ---- whether it would begin ---------------------------------------------------------------------------------------


def _refusals(plan: Plan, space: int | None) -> list[str]:
    """What the run would say, each time that it would refuse to start, other than by what stops its dry run too: all of
    it is worth knowing at once, beside what the run would take.

    Args:
        space: bytes that the run needs on the disk, where they are known.
    """
    tried: list[Callable[[], None]] = [lambda: tell.require(plan.experiment.tracking)]
    if space is not None:
        tried.append(lambda: RunFolder(plan.decided.run.path).require_room(space))
    if owned := plan.owned:
        tried.append(lambda: require_answers(plan.decided, plan.method, plan.privacy, owned))
    return [said for attempt in tried if (said := _refused(attempt))]


def _refused(attempt: Callable[[], None]) -> str:
    try:
        attempt()
    except MurmuraError as error:
        return str(error)
    return ""

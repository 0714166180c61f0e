"""What a run would do, worked out without doing it (``murmura run --dry-run``).

No weights are loaded or fetched: of the model, config and tokenizer are read; of a hub data set, the rows, since nobody
else knows how many there are. What cannot be reached is left out, and the dry run says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from murmura.augment.strategies import strategy
from murmura.experiment.config import Experiment
from murmura.experiment.forecast import augmentation as public
from murmura.experiment.forecast import measuring as measuring
from murmura.experiment.forecast.memory import Memory, disk_space, peak, residual
from murmura.experiment.forecast.notes import notes
from murmura.experiment.forecast.proportions import proportions
from murmura.experiment.forecast.refusals import refusals
from murmura.experiment.forecast.rounds import (
    FLOAT32,
    ForeseenRound,
    drawn_cohorts,
    forecast,
    foreseen_rounds,
    residual_growth,
)
from murmura.experiment.model_spec import ModelSpec
from murmura.experiment.prepare import Plan, prepare
from murmura.experiment.questions import Asked
from murmura.experiment.resources import Supply
from murmura.experiment.verbs import verbs_of
from murmura.federation.adapter_folder import nbytes_of
from murmura.federation.forecast import Work
from murmura.federation.method import Method
from murmura.federation.server.ledger import Ledger, declared
from murmura.federation.wire.masks import STEPS
from murmura.federation.wire.releases import disclosed, owner
from murmura.reading import Reading
from murmura.runs.schema import Disclosure
from murmura.streams import Stream


@dataclass(frozen=True)
class SitePlan:
    """One site: what becomes of its records, and the most optimiser steps it takes in the first round that asks it.
    Of labelled records also how many have a label to begin with, which are those it then trains on; and how many of its
    records are canaries."""

    site: str
    records: int
    used: int | None
    truncated: int | None
    dropped: int | None
    labelled: int | None
    steps: int
    canaries: int = 0


@dataclass(frozen=True)
class DryRun:
    """What a run would do; None stands for what could not be found out, and ``unknown`` says why.

    Args:
        label: the method, as reports call it.
        sites: in the run's order; those without a usable record would be left out.
        heldout: records that are measured on.
        validation: held-out records that the server decides by; none of them is measured on.
        asked: questions, with options or of benchmarks, asked to measure a round.
        bad: unusable records that are skipped.
        overlap: held-out records that are skipped because a site has them too.
        rounds: the first to the last.
        augmentation: public records that sites would be given; None where they are given none.
        tokens: most tokens that the method has written in a round.
        work: what else is done; nothing where the sites are not known.
        tokens_measuring: most tokens that are written to measure a round, without benchmarks.
        tokens_benchmarks: most tokens that are written whenever benchmarks are measured.
        scored: most records that are scored to attack what a round has made.
        model: sizes of the base and of what is trained.
        trains: whether anything is: not where the run begins without an adapter.
        resources: other models that the method uses, and on which side.
        memory: an estimate of the peak.
        disk: bytes of checkpoints and final adapters.
        guarantee: the privacy plan in words and the ε that it would end with; "none" where nothing is guaranteed.
        disclosure: what sites would release; messages and bytes are not counted.
        example: the first held-out record as the model would see it.
        unknown: why the model or the records are not known.
        notes: what should be known of these figures.
        refusals: why the run would not start, in its own words.
    """

    experiment: Experiment
    label: str
    sites: list[SitePlan] | None
    heldout: int | None
    validation: int | None
    asked: Asked | None
    bad: int | None
    overlap: int | None
    rounds: list[ForeseenRound]
    augmentation: public.ForeseenAugmentation | None
    tokens: int | None
    work: list[Work]
    tokens_measuring: int | None
    tokens_benchmarks: int | None
    scored: int | None
    model: ModelSpec | None
    trains: bool
    resources: list[Supply]
    memory: Memory | None
    disk: int | None
    guarantee: str | None
    disclosure: list[Disclosure]
    example: str | None
    unknown: list[str]
    notes: list[str]
    refusals: list[str]


def dry_run(experiment: Experiment) -> DryRun:
    """Work out a run. Nothing is trained or written.

    Raises:
        MurmuraError: for what would stop the run before its first round too: bad options, records or adapter targets.
    """
    plan = prepare(experiment, foresee=True)
    experiment, method, sizes, asked = plan.decided, plan.method, plan.sizes, plan.asked
    model, people = plan.context.model if plan.context else None, plan.records.planted if plan.records else None
    heldout, validation = _heldout(plan)
    names = list(sizes) if sizes else _expected_names(experiment, method)
    augmentation = _augmentation(plan, names)
    given = augmentation.records if augmentation else 0
    cohorts = drawn_cohorts(experiment, method, names, Stream(experiment.run.seed))
    growth = residual_growth(experiment, method, names, cohorts)
    rounds = foreseen_rounds(experiment, method, names, cohorts, growth, plan.owned, model, given)
    read = sum(sizes.values()) + len(heldout or ()) if sizes else 0
    widest = max((len(cohort) for cohort in cohorts), default=None) if cohorts else None
    memory = peak(experiment, model, widest, plan.supplies, read) if model and widest else None
    disk = _disk(experiment, method, model, len(names), sum(growth)) if model and names else None
    noted = notes(experiment, method, plan.gathered, people, sizes)
    return DryRun(
        experiment=experiment,
        label=method.title,
        sites=_sites(plan, given) if plan.gathered and plan.owned else None,
        heldout=None if heldout is None else len(heldout),
        validation=None if validation is None else len(validation),
        asked=asked,
        bad=_unused(plan, "bad"),
        overlap=_unused(plan, "overlap"),
        rounds=rounds,
        augmentation=augmentation,
        tokens=max((round.tokens or 0 for round in rounds), default=0) if sizes and cohorts else None,
        work=list(method.work(list(sizes.values()), experiment.training)) if sizes else [],
        tokens_measuring=measuring.tokens_written(experiment, method, people, model),
        tokens_benchmarks=measuring.tokens_of_benchmarks(method, people, asked),
        scored=measuring.records_scored(experiment, method, people, widest),
        model=model,
        trains=method.trains,
        resources=list(plan.supplies),
        memory=memory,
        disk=disk,
        guarantee=_guarantee(plan) if sizes else None,
        disclosure=_disclosure(plan),
        example=_example(experiment, plan.context.reading if plan.context else None, heldout[0]) if heldout else None,
        unknown=list(plan.unknown),
        notes=noted + proportions(experiment, method, rounds, model, memory),
        refusals=refusals(experiment, method, plan.privacy, plan.owned, disk),
    )


def _unused(plan: Plan, cause: str) -> int | None:
    """How many records are left out for a cause."""
    source = plan.records.people if plan.records else plan.gathered
    return sum(one.cause == cause for one in source.unused) if source else None


def _heldout(plan: Plan) -> tuple[Sequence[Any] | None, Sequence[Any] | None]:
    """Records that are measured on (all held-out ones, where it is not known which of them fit), and those that the
    server decides by."""
    if plan.records:
        return plan.records.public.heldout, plan.records.public.validation
    return [placed.record for placed in plan.gathered.heldout] if plan.gathered else None, None


def _example(experiment: Experiment, what: Reading | None, record: Any) -> str | None:
    """A record as the model would see it, as far as that is known without the model."""
    return what.example(record) if what else experiment.task.preview(experiment.data, record)


def _expected_names(experiment: Experiment, method: Method) -> list[str] | None:
    """Stand-ins for the sites' names, where the experiment alone says how many there are."""
    count = 1 if method.pools else experiment.data.sites.count
    return [f"site {k}" for k in range(count)] if count else None


# ---- what would happen --------------------------------------------------------------------------------------------


def _augmentation(plan: Plan, names: Sequence[str] | None) -> public.ForeseenAugmentation | None:
    """Public records that sites would be given."""
    options = plan.experiment.augment
    if options is None:
        return None
    settings: Any = plan.experiment.method
    own = sum(plan.sizes.values()) if plan.sizes else None
    adapter = plan.context.model.trainable * FLOAT32 if plan.context else 0
    return public.foreseen(options, plan.pool, len(names or ()), own, settings.rounds, adapter)


def _disk(experiment: Experiment, method: Method, model: ModelSpec, sites: int, growth: int) -> int:
    """Bytes of checkpoints and final adapters, with a residual of this rank."""
    most = residual(method.rule, model.state, growth)
    tokenizer = nbytes_of(model.tokenizer)
    return disk_space(experiment, method, sites, model.trainable * FLOAT32, most, tokenizer)


def _sites(plan: Plan, public: int) -> list[SitePlan]:
    experiment, owned = plan.experiment, plan.owned or {}

    def known(records: Sequence[Any]) -> dict[str, Any]:
        found = forecast(experiment, plan.method, records, public=public)
        labelled = found.records if experiment.task.has_labels else None
        return {"labelled": labelled, "steps": found.steps if records else 0}

    if plan.records is None:
        return [SitePlan(name, len(records), None, None, None, **known(records)) for name, records in owned.items()]
    reports = plan.records.planted.reports
    return [SitePlan(**asdict(report), **known(owned.get(report.site, []))) for report in reports]


def _counts(experiment: Experiment, method: Method, name: str) -> bool:
    """Whether a field of what an attack counts would be sent."""
    needed = {"upload_tally": measuring.attacks_uploads(experiment, method), "others": method.keeps_adapters}
    return needed.get(name, True)


def _disclosure(plan: Plan) -> list[Disclosure]:
    """Every declared release of the verbs that the run would ask for, with those that measure it last."""
    experiment, method, ledger = plan.decided, plan.method, Ledger()
    if method.pools:
        ledger.pooled(sum(plan.sizes.values()) if plan.sizes else 1, 0)
    if experiment.data.takes_from_sites:
        ledger.set_apart(len(plan.records.people.from_sites) if plan.records else 1, 0)
    measuring = ["assess"] * method.keeps_adapters + ["attack"] * bool(experiment.evaluation.attacks)
    measuring += ["memorise"] * experiment.evaluation.memorisation
    known = verbs_of(experiment, method)
    asks = strategy(experiment.augment).asks if experiment.augment else ()
    promised = [
        declared(verb, name, r)
        for verb in ["join", *asks, *method.verbs(), *(STEPS if method.rule.config.secure else ()), *measuring]
        for name, r in disclosed(owner(known, verb), verb).items()
        if verb != "attack" or _counts(experiment, method, name)
    ]
    return [*(Disclosure(**row) for row in ledger.table()), *promised]


def _guarantee(plan: Plan) -> str:
    return plan.guarantee.told() if plan.guarantee else "none"

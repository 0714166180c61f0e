"""What a run would do, worked out without doing it (``murmura run --dry-run``).

No weights are loaded or fetched: of the model, config and tokenizer are read; of a hub data set, the rows, since nobody
else knows how many there are. What cannot be reached is left out, and the dry run says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from murmura import methods
from murmura.augment.strategies import strategy
from murmura.data.hub import is_hub_id
from murmura.errors import DataError
from murmura.experiment import dry_run_augment, footprint
from murmura.experiment import dry_run_measuring as measuring
from murmura.experiment.allowed import allowed
from murmura.experiment.augmenting import opened, require_augmentable
from murmura.experiment.canaries import plant
from murmura.experiment.config import Experiment
from murmura.experiment.dry_run_notes import notes
from murmura.experiment.dry_run_proportions import proportions
from murmura.experiment.dry_run_refusals import refusals
from murmura.experiment.dry_run_rounds import (
    FLOAT32,
    ForeseenRound,
    drawn_cohorts,
    forecast,
    foreseen_rounds,
    residual_growth,
)
from murmura.experiment.outline import Outline, OutOfReachError, outline
from murmura.experiment.precision import settled
from murmura.experiment.questions import Asked, ask
from murmura.experiment.reading import evaluation_set, reading
from murmura.experiment.resident import starting
from murmura.experiment.resources import Supply
from murmura.experiment.resources import declared as declared_resources
from murmura.experiment.resources import foreseen as foreseen_resources
from murmura.experiment.sites import Gathered, Population, fit, gather
from murmura.experiment.workplace import verbs_of
from murmura.federation.adapter_folder import nbytes_of
from murmura.federation.forecast import Work
from murmura.federation.method import Method
from murmura.federation.server.ledger import Ledger, declared
from murmura.federation.wire.masks import STEPS
from murmura.federation.wire.releases import disclosed, owner
from murmura.privacy.plan import PrivacyPlan
from murmura.reading import Reading
from murmura.retrieval.pool import Pool
from murmura.runs.schema import Disclosure
from murmura.streams import Stream
from murmura.units import bound

_STAND_IN = 8  # dimensions of the vectors that stand in for a sentence encoder's


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
    augmentation: dry_run_augment.ForeseenAugmentation | None
    tokens: int | None
    work: list[Work]
    tokens_measuring: int | None
    tokens_benchmarks: int | None
    scored: int | None
    model: Outline | None
    trains: bool
    resources: list[Supply]
    memory: footprint.Memory | None
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
    experiment, pool = opened(experiment)
    experiment = settled(experiment)
    method, stream = methods.build(experiment.method, experiment.aggregation), Stream(experiment.run.seed)
    require_augmentable(experiment, method, pool)
    there = _there(experiment, method, stream)
    promised = method.privacy(list(there.sizes.values()), experiment.training) if there.sizes else None
    plan, known = promised[0] if promised else None, len(there.sizes) if there.sizes else None
    experiment = experiment.model_copy(update={"evaluation": allowed(experiment, method, plan, known)})
    model, people = there.model, there.people
    for site in people.sites if people else ():
        method.check(site.name, site.records)
    asked = _asked(experiment, method, there, stream / "data")
    heldout, validation = _heldout(experiment, there, stream / "data" / "validation")
    names = list(there.sizes) if there.sizes else _expected_names(experiment, method)
    augmentation = _augmentation(experiment, pool, names, there)
    given = augmentation.records if augmentation else 0
    cohorts = drawn_cohorts(experiment, method, names, stream)
    growth = residual_growth(experiment, method, names, cohorts)
    rounds = foreseen_rounds(experiment, method, names, cohorts, growth, there.owned, model, given)
    read = sum(there.sizes.values()) + len(heldout or ()) if there.sizes else 0
    widest = max((len(cohort) for cohort in cohorts), default=None) if cohorts else None
    memory = footprint.memory(experiment, model, widest, there.resources, read) if model and widest else None
    disk = _disk(experiment, method, model, len(names), sum(growth)) if model and names else None
    noted = notes(experiment, method, there.gathered, people, there.sizes)
    return DryRun(
        experiment=experiment,
        label=method.title,
        sites=_sites(experiment, method, there, given) if there.gathered and there.owned else None,
        heldout=None if heldout is None else len(heldout),
        validation=None if validation is None else len(validation),
        asked=asked,
        bad=there.unused("bad"),
        overlap=there.unused("overlap"),
        rounds=rounds,
        augmentation=augmentation,
        tokens=max((round.tokens or 0 for round in rounds), default=0) if there.sizes and cohorts else None,
        work=list(method.work(list(there.sizes.values()), experiment.training)) if there.sizes else [],
        tokens_measuring=measuring.tokens_written(experiment, method, people, model),
        tokens_benchmarks=measuring.tokens_of_benchmarks(method, people, asked),
        scored=measuring.records_scored(experiment, method, people, widest),
        model=model,
        trains=method.trains,
        resources=there.resources,
        memory=memory,
        disk=disk,
        guarantee=_guarantee(method, promised) if there.sizes else None,
        disclosure=_disclosure(experiment, method, sum(there.sizes.values()) if there.sizes else 1, people),
        example=_example(experiment, there.reading, heldout[0]) if heldout else None,
        unknown=there.unknown,
        notes=noted + proportions(experiment, method, rounds, model, memory),
        refusals=refusals(experiment, method, plan, there.owned, disk),
    )


# ---- what is there ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _There:
    """What there is to a run; None for what is out of reach, and ``unknown`` says why.

    Attributes:
        gathered: the records.
        reading: how the model sees them.
        people: which of them fit, and whose they are.
        owned: records of each site that would take part; all of its records where it is not known which ones fit.
        sizes: how many those are.
    """

    model: Outline | None
    resources: list[Supply]
    gathered: Gathered | None
    reading: Reading | None
    people: Population | None
    owned: Mapping[str, Sequence[Any]] | None
    sizes: Mapping[str, int] | None
    unknown: list[str]

    def unused(self, cause: str) -> int | None:
        """How many records are left out for a cause."""
        source = self.people or self.gathered
        return sum(one.cause == cause for one in source.unused) if source else None


def _there(experiment: Experiment, method: Method, stream: Stream) -> _There:
    unknown: list[str] = []
    model, resources = _model(experiment, unknown), foreseen_resources(declared_resources(experiment, method), unknown)
    gathered = _gathered(experiment, method, stream / "data", unknown)
    what = reading(experiment, model.tokenizer, model.config, masked=model.masked) if model else None
    if model:
        starting(experiment, model.state)  # refused now, if at all
    people = fit(gathered, experiment.data, what) if gathered and what else None
    if people and what:
        people, _ = plant(experiment, method, people, what, stream / "canaries")
    owned = {site.name: site.records for site in people.sites} if people else _records(gathered) if gathered else None
    sizes = {name: len(records) for name, records in owned.items()} if owned else None
    return _There(model, resources, gathered, what, people, owned, sizes, unknown)


def _model(experiment: Experiment, unknown: list[str]) -> Outline | None:
    try:
        return outline(experiment.model, experiment.lora, experiment.model_task)
    except OutOfReachError as error:
        unknown.append(f"The model: {error}")
        return None


def _gathered(experiment: Experiment, method: Method, stream: Stream, unknown: list[str]) -> Gathered | None:
    """The records, or None where they are on a hub that cannot be reached."""

    def stand_in(texts: Sequence[str]) -> np.ndarray:
        return (stream / "stand-in").numpy().standard_normal((len(texts), _STAND_IN)).astype(np.float32)

    try:
        return gather(
            experiment.data, stream, stand_in, kind=experiment.task.kind, pooled=method.pools, promises=method.promises
        )
    except DataError as error:
        if error.where is None or not is_hub_id(error.where):
            raise
        unknown.append(f"The records: {error}")
        return None


def _asked(experiment: Experiment, method: Method, there: _There, stream: Stream) -> Asked | None:
    """The questions, or None where some are on a hub that cannot be reached."""
    if not (there.people and there.reading and there.model):
        return None
    try:
        return ask(experiment, method, there.reading, there.model, stream)
    except DataError as error:
        if error.where is None or not is_hub_id(error.where):
            raise
        there.unknown.append(f"The questions: {error}")
        return None


def _heldout(
    experiment: Experiment, there: _There, stream: Stream
) -> tuple[Sequence[Any] | None, Sequence[Any] | None]:
    """Records that are measured on (all held-out ones, where it is not known which of them fit), and those that the
    server decides by."""
    if there.people:
        public = evaluation_set(experiment, there.people, stream)
        return public.heldout, public.validation
    return [placed.record for placed in there.gathered.heldout] if there.gathered else None, None


def _example(experiment: Experiment, what: Reading | None, record: Any) -> str | None:
    """A record as the model would see it, as far as that is known without the model."""
    return what.example(record) if what else experiment.task.preview(experiment.data, record)


def _records(gathered: Gathered) -> dict[str, Sequence[Any]]:
    return {name: [placed.record for placed in own] for name, own in gathered.groups.items()}


def _expected_names(experiment: Experiment, method: Method) -> list[str] | None:
    """Stand-ins for the sites' names, where the experiment alone says how many there are."""
    count = 1 if method.pools else experiment.data.sites.count
    return [f"site {k}" for k in range(count)] if count else None


# ---- what would happen --------------------------------------------------------------------------------------------


def _augmentation(
    experiment: Experiment, pool: Pool | None, names: Sequence[str] | None, there: _There
) -> dry_run_augment.ForeseenAugmentation | None:
    """Public records that sites would be given."""
    if experiment.augment is None:
        return None
    settings: Any = experiment.method
    own = sum(there.sizes.values()) if there.sizes else None
    adapter = there.model.trainable * FLOAT32 if there.model else 0
    return dry_run_augment.foreseen(experiment.augment, pool, len(names or ()), own, settings.rounds, adapter)


def _disk(experiment: Experiment, method: Method, model: Outline, sites: int, growth: int) -> int:
    """Bytes of checkpoints and final adapters, with a residual of this rank."""
    residual = footprint.residual(method.rule, model.state, growth)
    tokenizer = nbytes_of(model.tokenizer)
    return footprint.disk(experiment, method, sites, model.trainable * FLOAT32, residual, tokenizer)


def _sites(experiment: Experiment, method: Method, there: _There, public: int) -> list[SitePlan]:
    people, owned = there.people, there.owned or {}

    def known(records: Sequence[Any]) -> dict[str, Any]:
        found = forecast(experiment, method, records, public=public)
        return {
            "labelled": found.records if experiment.task.has_labels else None,
            "steps": found.steps if records else 0,
        }

    if people is None:
        return [SitePlan(name, len(records), None, None, None, **known(records)) for name, records in owned.items()]
    return [SitePlan(**asdict(report), **known(owned.get(report.site, []))) for report in people.reports]


def _counts(experiment: Experiment, method: Method, name: str) -> bool:
    """Whether a field of what an attack counts would be sent."""
    needed = {"upload_tally": measuring.attacks_uploads(experiment, method), "others": method.keeps_adapters}
    return needed.get(name, True)


def _disclosure(experiment: Experiment, method: Method, records: int, people: Population | None) -> list[Disclosure]:
    """Every declared release of the verbs that the run would ask for, with those that measure it last."""
    ledger = Ledger()
    if method.pools:
        ledger.pooled(records, 0)
    if experiment.data.takes_from_sites:
        ledger.set_apart(len(people.from_sites) if people else 1, 0)
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


def _guarantee(method: Method, found: tuple[PrivacyPlan, str] | None) -> str:
    if found is None:
        return method.local_promise or "none"
    promised, accountant = found
    spent = promised.epsilon(accountant=accountant)
    return f"ε = {bound(spent.value)} by {spent.accountant}: {promised.describe()}"

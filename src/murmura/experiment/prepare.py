"""One plan of an experiment, which runs, dry runs, timing and engines go by."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from os.path import realpath
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from murmura.data.folder import is_passed_over
from murmura.data.hub import UnavailableError
from murmura.errors import ConfigError
from murmura.experiment.augmenting import opened, shared_out
from murmura.experiment.canaries import plant
from murmura.experiment.choosing import choosing
from murmura.experiment.config import Experiment
from murmura.experiment.context import ProcessContext, in_context, process_context
from murmura.experiment.elsewhere import Remote
from murmura.experiment.inputs import require_same_inputs
from murmura.experiment.model_spec import model_spec
from murmura.experiment.precision import settled
from murmura.experiment.questions import Asked, ask
from murmura.experiment.reading import evaluation_set
from murmura.experiment.resources import Supply, declared, foreseen
from murmura.experiment.resume import Past, past
from murmura.experiment.server_side import ServerPart
from murmura.experiment.sites import Population, gather
from murmura.experiment.skeleton import OutOfReachError
from murmura.experiment.validate import Run, method_of, require_run
from murmura.federation.method import Method
from murmura.federation.server.checkpoint import Checkpoint
from murmura.federation.site.site import Site
from murmura.measure.canaries import Canary
from murmura.measure.config import EvaluationConfig
from murmura.measure.evaluation_set import EvaluationSet
from murmura.personal.apart import apart_of
from murmura.privacy.guarantee import Guarantee
from murmura.privacy.plan import PrivacyPlan
from murmura.privacy.run_ledgers import RunLedgers
from murmura.reading import Reading
from murmura.retrieval.pool import Pool
from murmura.runs.folder import RunFolder
from murmura.runs.previous import previous_of
from murmura.streams import Stream

T = TypeVar("T")

_STAND_IN = 8  # dimensions of the vectors that stand in for a sentence encoder's


@dataclass(frozen=True)
class Records:
    """The records of a run.

    Args:
        people: all sites, and the records that nobody trains on.
        planted: the same with canaries among the sites' records.
        canaries: those.
        public: what the run is measured with.
    """

    people: Population
    planted: Population
    canaries: Sequence[Canary]
    public: EvaluationSet


@dataclass(frozen=True)
class Plan:
    """What a run goes by, before its first round. Only a dry run's lacks something, and ``unknown`` says why.

    Args:
        experiment: with its arithmetic and the pool's encoder written out.
        method: the one object of it in this process.
        evaluation: how the run is measured.
        pool: of ``[augment]``.
        past: what an earlier part of the run has left.
        context: the model, and how records meet it.
        supplies: other models that the method uses.
        gathered: the records as they are shared out; where the model is out of reach, as if all of them fitted it.
        records: those that the run has.
        asked: questions that are asked to measure a round.
        guarantee: what the run promises of private data; None where nothing, or where it is finished.
        chosen_by: what has been spent by the runs by which options were chosen.
        is_remote: the sites' records are on machines of their own, and only how many there are is known.
    """

    experiment: Experiment
    method: Method
    evaluation: EvaluationConfig
    pool: Pool | None
    past: Past | None
    context: ProcessContext | None
    supplies: Sequence[Supply]
    gathered: Population | None
    records: Records | None
    asked: Asked | None
    guarantee: Guarantee | None
    chosen_by: Sequence[RunLedgers]
    unknown: Sequence[str] = ()
    is_remote: bool = False

    @property
    def complete(self) -> tuple[ProcessContext, Records]:
        """Model and records, of a plan that lacks nothing."""
        assert self.context is not None and self.records is not None, "only a dry run's plan lacks something"
        return self.context, self.records

    @property
    def server(self) -> ServerPart:
        """The server's part."""
        context, records = self.complete
        sites = () if self.is_remote else records.planted.sites
        own = (record for site in sites for record in (*site.records, *site.apart))
        return ServerPart(
            self.experiment,
            self.method,
            context,
            self.evaluation,
            records.public,
            self.privacy,
            records.canaries,
            self.pool,
            shared_out(self.experiment, self.method, self.pool, own),
        )

    @property
    def decided(self) -> Experiment:
        """The experiment with what is measured written out, which depends on what the run promises."""
        return self.experiment.model_copy(update={"evaluation": self.evaluation})

    @property
    def checkpoint(self) -> Checkpoint | None:
        """Of the round after which the run goes on."""
        return self.past.checkpoint if self.past else None

    @property
    def privacy(self) -> PrivacyPlan | None:
        """The privacy plan that the run follows; None where it follows none."""
        return self.guarantee.plan if self.guarantee else None

    @property
    def owned(self) -> Mapping[str, Sequence[Any]] | None:
        """Records of each site that would take part, as far as it is known which ones fit."""
        people = self.records.planted if self.records else self.gathered
        return {site.name: site.records for site in people.sites} if people else None

    @property
    def sizes(self) -> Mapping[str, int] | None:
        """How many those are."""
        return {name: len(records) for name, records in owned.items()} if (owned := self.owned) else None


def require_apart(experiment: Experiment) -> None:
    """Hold a new run's folder to lying apart: starting over moves it, with whatever else is in it, and removes the
    previous run; and what lies among sites' files is taken for one of them.

    Raises:
        ConfigError: the run would be kept in a folder that holds what it reads, or among the sites' files; or its name
            is none of a folder.
    """
    run, data = experiment.run, experiment.data
    if run.folder is None and (run.name == ".." or Path(run.name).name != run.name):
        fix = "Give a name without slashes, or a run.folder."
        raise ConfigError(f"the folder would be runs/{run.name}", where="run.name", fix=fix)
    folder, where, fix = Path(realpath(run.path)), f"run.folder = {run.path}", "Choose another run.folder."
    if folder == folder.parent or (folder.exists() and not folder.is_dir()):
        what = "all folders lie in this one" if folder == folder.parent else "this is a file, and no folder"
        raise ConfigError(what, where=where, fix=fix)
    sites = Path(realpath(data.train)) if data.train else None
    if sites and sites.is_dir() and sites in folder.parents:
        place = sites / folder.relative_to(sites).parts[0]
        if not is_passed_over(place, data.sites.ignore):
            what = f"'{place.name}' would lie among the files of data.train, and be taken for a site's"
            raise ConfigError(what, where=where, fix=fix)
    for key, place in _read(experiment.tables()):
        if any(place.is_relative_to(own) for own in (folder, previous_of(folder))):
            what = f"{key} is {place}, so that the run's own files would lie among what it reads"
            raise ConfigError(what, where=where, fix=fix)


def _read(value: Any, key: str = "") -> Iterator[tuple[str, Path]]:
    """Files and folders that options name, by the names of these; what only looks like one, such as a method's name, is
    left out."""
    if isinstance(value, Mapping):
        for name, one in value.items():
            if (inner := f"{key}.{name}".removeprefix(".")) not in ("run", "tracking"):  # where is written
                yield from _read(one, inner)
    elif isinstance(value, list):
        for one in value:
            yield from _read(one, key)
    elif isinstance(value, str):
        path = Path(value)
        named = key in ("data.train", "data.heldout") or len(path.parts) > 1 or path.suffix
        if named and os.path.exists(path):  # which is False for what can be no path, too
            yield key, path.resolve()


def prepare(
    experiment: Experiment,
    *,
    resume: RunFolder | None = None,
    foresee: bool = False,
    finished: bool = False,
    remote: Remote | None = None,
) -> Plan:
    """Read everything, and refuse what would stop the run.

    Args:
        resume: the folder of the run that goes on.
        foresee: for a dry run: no weights are fetched, random vectors stand in for a sentence encoder's, and what is
            out of reach stays unknown.
        finished: nothing is left to run, so what is promised, which may take long to work out, is not.
        remote: what is known of records where sites are on machines of their own; None: the sites are simulated.

    Raises:
        MurmuraError: bad options, data, model or folder.
    """
    if foresee and not finished:  # a run has asked before it opened its folder
        require_apart(experiment)
    experiment, pool = opened(experiment)
    before = past(resume, experiment) if resume else None
    experiment = before.experiment if before else settled(experiment)
    chosen_by = [] if finished else choosing(experiment.run, resume)
    method = method_of(experiment, pool)
    unknown: list[str] = []
    context, supplies = _foreseen(experiment, method, unknown) if foresee else _found(experiment, method)
    may_be, gathered = unknown if foresee else None, None
    if remote is None:
        reads = context.reading if context else None
        gathered = _reached("The records", lambda: gathered_of(experiment, method, reads, foresee=foresee), may_be)
    records = asked = None
    if context and (gathered or remote):
        stream, reading, model = Stream(experiment.run.seed) / "data", context.reading, context.model
        asked = _reached("The questions", lambda: ask(experiment, method, reading, model, stream), may_be)
        records = records_of(experiment, method, context.reading, asked=asked, gathered=gathered, remote=remote)
    people = records.planted if records else gathered
    sites = people.sites if people else []
    if before and before.checkpoint and resume:
        require_same_inputs(resume, experiment)
    if before and records:
        before.require_same_sites(records.planted)
        before.require_same_measure(records.public)
        before.require_same_promise(records.planted)
    for site in sites if records and not remote else ():
        method.check(site.name, site.records)
    sizes = [len(site.records) for site in sites]
    promising = bool(sizes) and not finished
    guarantee = method.guarantee(sizes, experiment.training) if promising else None  # refused now, if at all
    known = Run(experiment, method, guarantee.plan if guarantee else None, len(sizes) or None)
    if not finished:
        require_run(known)
    return Plan(
        experiment,
        method,
        known.evaluation,
        pool,
        before,
        context,
        supplies,
        gathered,
        records,
        asked,
        guarantee,
        chosen_by,
        unknown,
        remote is not None,
    )


def records_of(
    experiment: Experiment,
    method: Method,
    reading: Reading,
    *,
    asked: Asked | None = None,
    gathered: Population | None = None,
    remote: Remote | None = None,
) -> Records:
    """The records of a run, as every part of it prepares them from the same seed.

    Args:
        reading: how records meet the model.
        asked: questions to measure with.
        gathered: the records, where they are read already.
        remote: what is known of them where they are elsewhere.

    Raises:
        DataError: a record is bad (and ``data.skip_bad`` off), or no site or no held-out record is left.
        ConfigError: canaries would tell nothing here, or do not fit the model.
    """
    stream = Stream(experiment.run.seed)
    if remote is None:
        people = gathered or gathered_of(experiment, method, reading)
    else:
        people = remote.population(experiment, method)
    planted, canaries = plant(experiment, method, people, reading, stream / "canaries")
    if remote is None:
        people, planted = (_set_apart(experiment, method, one) for one in (people, planted))
    public = evaluation_set(experiment, people, stream / "data" / "validation", asked)
    return Records(people, planted, canaries, public)


def _set_apart(experiment: Experiment, method: Method, people: Population) -> Population:
    """The same with what the sites set apart (``[personal]``) no more among what they train on."""
    sites, away = [], dict[str, int]()
    for site in people.sites:
        records, apart = apart_of(experiment, method, site.name, site.records)
        sites.append(Site(site.name, records, apart=apart))
        away[site.name] = len(apart)
    reports = [
        one if one.used is None else replace(one, used=one.used - away.get(one.site, 0)) for one in people.reports
    ]
    return replace(people, sites=sites, reports=reports)


def gathered_of(
    experiment: Experiment, method: Method, reading: Reading | None, *, foresee: bool = False
) -> Population:
    """The records of a run as they are shared out; arguments and errors as of ``prepare``.

    Args:
        reading: how records meet the model; None where it is out of reach.
    """
    stream, kind = Stream(experiment.run.seed) / "data", experiment.task.kind

    def stand_in(texts: Sequence[str]) -> np.ndarray:
        return (stream / "stand-in").numpy().standard_normal((len(texts), _STAND_IN)).astype(np.float32)

    return gather(
        experiment.data,
        stream,
        stand_in if foresee else None,
        kind=kind,
        pooled=method.traits.pooled,
        promises=method.protects is not None,
        reading=reading,
    )


def _found(experiment: Experiment, method: Method) -> tuple[ProcessContext, Sequence[Supply]]:
    context = process_context(experiment, method)
    return context, context.supplies


def _foreseen(
    experiment: Experiment, method: Method, unknown: list[str]
) -> tuple[ProcessContext | None, Sequence[Supply]]:
    """The same without fetching weights; what is out of reach is added to ``unknown``, in words."""
    model = None
    try:
        model = model_spec(experiment, fetch=False)
    except OutOfReachError as error:
        unknown.append(f"The model: {error}")
    found = foreseen(declared(experiment, method), unknown)
    return in_context(experiment, model, found) if model else None, found


def _reached(what: str, read: Callable[[], T], unknown: list[str] | None) -> T | None:
    """What is read; None where it is on a hub that cannot be reached and that may be ``unknown``: it is noted there."""
    try:
        return read()
    except UnavailableError as error:
        if unknown is None:
            raise
        unknown.append(f"{what}: {error}")
        return None

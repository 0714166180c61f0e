"""Build everything an experiment needs, run it, and leave its folder complete."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from murmura import models
from murmura.errors import CheckpointError, Interrupted, MurmuraError, RunError, may_pass
from murmura.experiment.augmenting import require_whole
from murmura.experiment.canaries import WHY_NOT, has_learnt
from murmura.experiment.card import made_by
from murmura.experiment.caveats import caveats
from murmura.experiment.choosing import of_those_named, uncounted, with_choosing
from murmura.experiment.config import Experiment
from murmura.experiment.context import ProcessContext
from murmura.experiment.cost import cost_of
from murmura.experiment.elsewhere import require_records
from murmura.experiment.forecast.budget import require_answers
from murmura.experiment.forecast.disk import disk
from murmura.experiment.inputs import inputs, inputs_of, require_same_models, tell_unnoted_models
from murmura.experiment.precision import automatic, multiplied_in, slow
from murmura.experiment.prepare import Plan, prepare, require_apart
from murmura.experiment.resume import Past, restored
from murmura.experiment.server_side import ServerSide, assemble, publication_of
from murmura.experiment.simulation import simulate
from murmura.experiment.sites import Population
from murmura.federation.adapter_folder import leave_adapter, leave_model
from murmura.federation.engines import ENGINES, Engine
from murmura.federation.method import Method
from murmura.federation.server.checkpoint import prune
from murmura.federation.server.fleet import Fleet
from murmura.federation.server.rounds import Server
from murmura.federation.wire.messages import size
from murmura.methods import METHODS
from murmura.privacy import run_ledgers
from murmura.privacy.journal import Journal
from murmura.progress import discreet, say
from murmura.report import write as build_report
from murmura.runs import files, names, schema
from murmura.runs.folder import RunFolder
from murmura.runs.machine import environment
from murmura.runs.names import CAVEATS, LOG, PRIVACY, TRACKED, TRACKING
from murmura.runs.previous import has_saved
from murmura.runs.record import read
from murmura.runs.schema import DEPLOYED, Input, Resumption, Summary
from murmura.tracking import TRACKERS, tell
from murmura.training.adapter import fingerprint

if TYPE_CHECKING:
    from murmura.experiment.deployment import Deployment

_CANARIES = (
    "canaries: {} random secrets stand among the sites' records, to be looked for in what the run trains; its model is "
    "not for release"
)
_FINISHED = (
    "the run is finished: {} done, and what it leaves is only written anew. For it to go on, raise method.rounds."
)
_SEVERAL = (
    "some persons (data.user) have records at {} sites: no site sees that, and data.records_per_user bounds what they "
    "have at each; the report tells the ε of all of theirs together"
)


@dataclass(frozen=True)
class Result:
    """What a run has come to.

    Attributes:
        folder: where it is kept.
        rows: its metrics as anybody may see them, one row a round, the first from before training; a figure's key is
            that of ``murmura.measure.catalogue``.
    """

    folder: Path
    rows: list[dict[str, Any]]


def run(
    experiment: Experiment, *, resume: bool = False, overwrite: bool = False, deployment: Deployment | None = None
) -> Result:
    """Run an experiment from its first round, or go on after its last saved one.

    Args:
        experiment: what to run.
        resume: go on in the run folder; see ``murmura.experiment.resume`` for what may differ.
        overwrite: start over in a folder that holds a run, which is kept as ``RunFolder.previous``.
        deployment: sites on machines of their own; None: they are simulated.

    Raises:
        MurmuraError: bad options, data, model or folder, all before training starts; or what stopped the run.
    """
    if not resume:
        require_apart(experiment)
    folder = RunFolder(experiment.run.path)
    with folder.opened(resume=resume, overwrite=overwrite):
        return _run(experiment, folder, deployment, resume=resume)


def _run(experiment: Experiment, folder: RunFolder, deployment: Deployment | None, *, resume: bool) -> Result:
    if deployment is None:
        require_records(experiment)
    else:
        deployment.check()
    remote = deployment.federation.remote if deployment else None
    plan = prepare(experiment, resume=folder if resume else None, remote=remote)
    tell.require(plan.experiment.tracking)
    if warning := slow(plan.experiment):
        say(warning)
    context, records = plan.complete
    if plan.method.traits.trained_at == "sites":
        _ = context.model.bank  # loaded now, so that what is wrong with its weights is told before anything is written
    elif plan.method.traits.trained_at == "server":
        models.resolve(plan.experiment.model.name)  # fetched now, so that it is noted which it is
    if deployment:  # and held to it now: what this machine had not is here
        shared = deployment.federation.folder / names.FEDERATION
        require_same_models(shared, plan.experiment, "server")
        tell_unnoted_models(shared, plan.experiment)
    if plan.pool:
        require_whole(plan.experiment, plan.pool, context.loader)
    if records.canaries:
        say(_CANARIES.format(len(records.canaries)))
    if plan.method.protects == "record" and (records.people.exclusions.person_at or 0) > 1:
        say(_SEVERAL.format(records.people.exclusions.person_at))
    if not plan.checkpoint and not plan.is_remote:
        require_answers(plan.decided, plan.method, plan.privacy, plan.owned or {})
    with _reporting_failure(folder, plan) as started:
        folder.prepare(resume=resume, needed=disk(plan, context.model, list(plan.owned or ())))
        run_ledgers.note(folder.path, plan.chosen_by)
        if not resume:  # first of all: whatever a killed run leaves must tell that it is a run's
            folder.write_config(plan.experiment.dump())
        folder.write_withheld(publication_of(plan.method, plan.privacy).withheld)
        return _carried_out(plan, folder, started, deployment)


class _Started:
    """Whether a run's folder tells of it already."""

    told = False


@contextmanager
def _reporting_failure(folder: RunFolder, plan: Plan) -> Iterator[_Started]:
    """On failure, say where the previous run is if no round was saved; and report the ε that the interrupted round has
    spent, where one is promised."""
    started = _Started()
    try:
        yield started
    except BaseException as error:
        if not has_saved(folder.path) and folder.previous.exists():
            say(f"the new run has saved no round; the previous run is in {folder.previous}")
        if folder.holds_run:
            cost = cost_of(folder, plan) if started.told and plan.guarantee else ""
            if isinstance(error, KeyboardInterrupt):
                raise Interrupted(cost) from error
            if isinstance(error, MurmuraError):
                error.fix = " ".join(part for part in (error.fix, cost) if part)
        raise


def _carried_out(plan: Plan, folder: RunFolder, started: _Started, deployment: Deployment | None) -> Result:
    """Bring the sides together and let the method lead, from the first round or from where the run was left."""
    experiment, method, before = plan.experiment, plan.method, plan.past
    context, records = plan.complete
    people, public, read = records.planted, records.public, inputs(plan.experiment)
    run = plan.checkpoint.run["run"] if plan.checkpoint else folder.id
    if deployment:
        engine: Engine = deployment.connect(folder)
    else:
        own = {site.name: [*site.records, *site.apart] for site in people.sites}
        engine = simulate(context, method, own, folder)
    with closing(engine):
        side = assemble(plan.server, engine, folder, run=run)
        side.server.sizes = {site.name: site.size for site in people.sites}
        if plan.guarantee:
            side.server.promised = plan.guarantee
            side.server.caveats = _caveats(plan, side.server, folder)
            side.server.counted = partial(with_choosing, experiment, folder.path)
            for said in side.server.caveats:
                say(said, public=True)
            for said in uncounted(run_ledgers.noted(folder.path), plan.privacy, plan.is_remote):
                say(said)
        side.meet(plan.checkpoint.run["known"] if plan.checkpoint else (), deployment.quorum if deployment else None)
        if before and before.checkpoint:
            before = restored(before, side.server, folder, experiment)
            if side.augmentation:
                side.augmentation.require_same_pool(side.server)
            _tell(before)
        resumed = before.resumed if before else []
        side.server.about = {
            "run": run,
            "experiment": experiment.tables(),
            "sites": [site.name for site in people.sites],
            "resumed": resumed,
            "automatic": automatic(experiment.model),
        }
        if before:
            # The run goes on from an earlier round, with whose next one sites give up what they kept later. Until it is
            # certain to go on, what is damaged can still be mended.
            prune(folder.checkpoint, before.refused)
        if not (before and before.checkpoint):
            _note_brought(side.fleet, method, people)
        done = before is not None and before.is_done
        folder.reopen(done=done, changed=before is not None and bool(before.events))
        if side.personalisation and not done:
            side.personalisation.forget(side.server)
        _describe(plan, folder, resumed, read)
        taken_out = experiment.data.heldout is None or experiment.data.nonmember_records is not None
        folder.write(names.MEASURED, public.measured(secret=plan.guarantee is not None and taken_out))
        started.told = True
        with _published(side.server, folder, engine), _tracked(experiment, folder, side.server, run):
            side.method.lead(side.server, side.fleet)
            side.server.require_whole()
            _finish(folder, experiment, side, context)
    folder.write_live(None)
    if plan.privacy:
        journal = side.server.journal(PRIVACY, Journal)
        if journal.lines:
            folder.write_private(names.ANCHOR, [{names.SITE_ANCHOR: journal.anchor}])
    if plan.guarantee and not side.server.unkept:  # else no site could be asked for its own adapter again
        folder.drop_checkpoints()
    return Result(folder.path, side.server.published)


def _caveats(plan: Plan, server: Server, folder: RunFolder) -> list[str]:
    """Of this part of the run, and of those before it: an ε counts their rounds too, those that were lost as well."""
    said = server.journal(CAVEATS, partial(Journal, what="journal of caveats"))
    own = caveats(plan.experiment, plan.method, plan.privacy, list(server.sizes.values()))
    for line in [*({"said": one} for one in own), *of_those_named(folder.path)]:
        if line not in said.lines:
            said.append(line)
    return [line["said"] for line in said.lines]


def _note_brought(fleet: Fleet, method: Method, people: Population) -> None:
    """Note what sites' records have left them before the first round."""
    if method.traits.pooled:
        pooled = people.sites[0]
        fleet.ledger.pooled(pooled.size, _weight(pooled.records))
    if people.from_sites:
        for ledger in {fleet.ledger, fleet.publication.told}:
            ledger.set_apart(len(people.from_sites), _weight(people.from_sites))


@contextmanager
def _published(server: Server, folder: RunFolder, engine: Engine) -> Iterator[None]:
    """Where cohorts are secret, keep to the run's owner what is said meanwhile, and why the run stops; the engine's
    processes have their last word in it too."""
    if server.publication.tells_sites:
        yield
        return
    with discreet(folder.log), closing(engine):
        try:
            yield
        except MurmuraError as error:
            engine.close()  # so that this is the last line
            folder.log(str(error))
            what = "the run stopped; the reason may tell which sites were asked, which its ε counts on being secret"
            fix = f"Read the last line of {folder.path / LOG}, and keep it to yourself; then start again with --resume."
            raise RunError(what, where=f"round {server.round}", fix=fix, passing=may_pass(error)) from None


@contextmanager
def _tracked(experiment: Experiment, folder: RunFolder, server: Server, run: str) -> Iterator[None]:
    """Tell trackers of experiments what is published (``[tracking]``): round by round; where a run guarantees
    something, when it is finished, since trackers note when they are told of a round, and so how long it took."""
    options, called = experiment.tracking, experiment.run.name
    if not options.to:
        yield
        return

    def begun() -> tell.Tracking:
        place, told = folder.path / TRACKING, folder.path / TRACKED
        return tell.Tracking(options, run, called, place, told, experiment.tables(), server.event)

    tracking = begun() if server.publication.tells_all else None
    server.following = tracking.rounds if tracking else None
    report: Path | None = None
    try:
        yield
        report = folder.report.absolute()
        if tracking is None:
            tracking = begun()
            tracking.rounds(server.published)  # in an earlier part of the run the last one's ε may have counted less
        else:
            tracking.catch_up(server.published)
    finally:
        if tracking is not None:
            tracking.close(report)


def _tell(before: Past) -> None:
    """Say on the terminal where the run goes on, or that it is finished, and what is different from now on."""
    assert before.checkpoint is not None
    rounds = before.checkpoint.round
    if before.is_done:
        say(_FINISHED.format(f"all {rounds} rounds are" if rounds > 1 else "its one round is"))
    else:
        say(f"resuming after round {rounds}")
    for event in before.events:
        say(f"after round {rounds}: {event}")


def _remarks(resumed: Sequence[Mapping[str, Any]]) -> str:
    """For the head of the experiment file, which holds the options of the last round only."""
    lines = [f"# After round {one['after']}: {event}\n" for one in resumed for event in one["events"]]
    return "".join(["# Options changed on the way.\n", *lines, "\n"] if lines else [])


def _weight(records: Sequence[Any]) -> int:
    """Bytes of records."""
    return size({"records": [asdict(record) for record in records]})


def _describe(plan: Plan, folder: RunFolder, resumed: Sequence[Mapping[str, Any]], read: Sequence[Input]) -> None:
    """Write what is known before the first round.

    Args:
        read: what is read from this disk, as it was when it was read.
    """
    method, (context, records) = plan.method, plan.complete
    people = records.planted
    folder.write_config(_remarks(resumed) + plan.experiment.dump())
    if resumed:
        folder.write(names.RESUMED, [Resumption(**one) for one in resumed])
    model, resources = context.model, tuple(supply.told() for supply in context.supplies)
    trained = model.trainable if method.traits.trained_at != "nowhere" else 0
    where: Literal["sites", "server"] = "server" if method.traits.trained_at == "server" else "sites"
    arithmetic = multiplied_in(plan.experiment)
    start = fingerprint(model.start) if model.start else None
    told = environment(model.device, model.origin[0], model.parameters, trained, arithmetic, resources, where, start)
    told = replace(told, brought=_brought(plan.experiment))
    with suppress(CheckpointError):  # it has no figure
        before = files.value(folder.path / names.ENVIRONMENT, schema.Environment) if plan.checkpoint else None
        told = replace(told, started=before.started) if before else told
    if not publication_of(method, plan.privacy).tells_all:  # with the end, which others see, it tells how long it took
        told = replace(told, started=told.started.partition("T")[0])
    folder.write(names.ENVIRONMENT, told)
    if plan.checkpoint:  # of what is not there now, what was noted
        known = {(one.option, one.name) for one in read}
        read = [*read, *(one for one in inputs_of(folder) if (one.option, one.name) not in known)]
    folder.write_private(names.INPUTS, [asdict(one) for one in read])
    unused = [one.row() for one in [*people.unused, *(plan.asked.unused if plan.asked else ())]]
    folder.write_records(people.reports, people.exclusions, unused, plan.method.protects)


def _brought(experiment: Experiment) -> dict[str, str]:
    """What of a run other packages bring, and which they are."""
    named = {f"method {experiment.method.name}": METHODS[experiment.method.name]}
    if experiment.run.engine != DEPLOYED:
        named[f"engine {experiment.run.engine}"] = ENGINES[experiment.run.engine]
    named |= {f"tracker {name}": TRACKERS[name] for name in experiment.tracking.to}
    return {what: origin.package for what, origin in named.items() if origin.package}


def _leave_model(folder: RunFolder, experiment: Experiment, side: ServerSide, context: ProcessContext) -> None:
    """Write the global adapter, or the model that was trained whole, or let the sites keep their own."""
    server, told = side.server, made_by(experiment, side.method, side.server.published)
    remark = WHY_NOT if has_learnt(experiment) else ""
    if remark:
        folder.write_remark(remark)
    if context.model.bank.lora is None:
        with folder.replacing(folder.model, remark) as draft:
            leave_model(draft, server.adapter, server.runtime, told)
    elif side.method.keeps_adapters:
        server.let_keep()
    else:
        with folder.replacing(folder.adapter, remark) as draft:
            leave_adapter(draft, server.adapter, server.runtime, told)
    if side.personalisation is not None:
        side.personalisation.leave(server)


def _finish(folder: RunFolder, experiment: Experiment, side: ServerSide, context: ProcessContext) -> None:
    """Write adapters, summary and report."""
    server, method = side.server, side.method
    if server.has_adapter:
        _leave_model(folder, experiment, side, context)
    else:
        say("the run leaves no adapter")
    folder.write_outcomes(method.outcomes(server))
    rows = server.published
    timed = server.publication.timed(server.rows)
    summary = Summary(
        name=experiment.run.name,
        method=method.title,
        seed=experiment.run.seed,
        rounds=rows[-1]["round"],
        final=rows[-1],
        bytes_up=sum(row["bytes_up"] for row in rows),
        bytes_down=sum(row["bytes_down"] for row in rows),
        wall=sum(row["wall"] for row in timed) if timed else None,
        peak_memory=max((row["peak_memory"] for row in timed), default=None),
        silent=side.silent,
    )
    folder.write(names.SUMMARY, summary)
    build_report([read(folder.path)], folder.report)

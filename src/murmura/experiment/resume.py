"""Going on with a run: what must be as it was, what may change, and what is written down about it.

See docs/decisions/0002-what-a-resumed-run-may-change.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from murmura.config import leaves, shown
from murmura.errors import CheckpointError, ConfigError, DataError, PrivacyError
from murmura.experiment.config import Experiment
from murmura.experiment.precision import settled, stays
from murmura.experiment.sites import Population
from murmura.experiment.validate import method_of
from murmura.experiment.verbs import fingerprint
from murmura.federation.server.checkpoint import Checkpoint, last_saved, latest
from murmura.federation.server.rounds import Server
from murmura.measure.evaluation_set import EvaluationSet
from murmura.runs import files
from murmura.runs.folder import RunFolder
from murmura.runs.names import MEASURED
from murmura.runs.record import read
from murmura.runs.schema import DEPLOYED, MeasuredOn, Summary
from murmura.units import several

_MAY_CHANGE = {
    "aggregation.secure.allow_cohort_change_on_retry",
    "augment.pool",  # where it is: what is in it may not (Augmentation.require_same_pool)
    "budget.delta",
    "budget.epsilon",
    "method.rounds",
    "run.engine",
    "run.workers",
    "run.answer_seconds",
    "run.min_replies",
    "run.cache_bytes",
    "run.slots",
    "run.decode_rows",
    "run.decode_dtype",
}
_ANEW = (
    "A run goes on with the sites that it was begun with. Put back the member (`murmura federation add`, or "
    "`federation remove` for one too many), or begin anew: `murmura serve --overwrite`. That is another run: each "
    "owner gives `murmura site consent` and `murmura site start` again, and what was spent of ε before stays spent."
)
_CALLED = {"run.name", "run.folder", "run.chosen_by"}
"""How the run is called, where it is kept, and which runs count with it, of which none is forgotten: no event."""
_TOLD = "tracking."  # how options begin of who is told of it: likewise


@dataclass(frozen=True)
class Past:
    """What an earlier part of a run has left.

    Attributes:
        begun: the experiment as its last saved round was run; where no round is saved, as it was begun.
        experiment: as it goes on, with the arithmetic that it was begun with.
        checkpoint: of that round, if there is one.
        resumed: what was different each time that the run was resumed, now included, where anything was; JSON.
        events: what is different now, in words.
        refused: rounds with a checkpoint that sites cannot go back to.
        measured: what it was measured on, where a round is saved and that can be read.
    """

    begun: Experiment
    experiment: Experiment
    checkpoint: Checkpoint | None
    resumed: list[dict[str, Any]] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    refused: tuple[int, ...] = ()
    measured: MeasuredOn | None = None

    @property
    def is_done(self) -> bool:
        """Whether the last round is saved, so that nothing is left to train."""
        return self.checkpoint is not None and self.checkpoint.round == self.experiment.method.total_rounds

    def require_same_sites(self, people: Population) -> None:
        """Check that the sites are those that the run was started with; each checks its own records when it joins.

        Raises:
            DataError: there are others.
        """
        now = [site.name for site in people.sites]
        before = self.checkpoint.run["sites"] if self.checkpoint else now
        fix = _ANEW if self.experiment.run.engine == DEPLOYED else "Restore the data, or start another run."
        for site in sorted(set(before) ^ set(now)):
            gone = "is no member of the federation" if fix == _ANEW else "has no records"
            what = f"{gone} any more" if site in before else "was not there when the run was started"
            raise DataError(f"this site {what}", where=f"site {site}", fix=fix)

    def require_same_measure(self, public: EvaluationSet) -> None:
        """Check that the run is measured on the records on which it was, wherever they come from.

        Raises:
            DataError: there are others.
        """
        now = public.measured(secret=False)
        for name, before, after in (
            ("held-out records", self.measured and self.measured.heldout.digest, now.heldout.digest),
            ("non-members", self.measured and self.measured.nonmembers.digest, now.nonmembers.digest),
        ):
            if before not in (None, after):
                what = f"the run was measured on other {name} than there are now"
                raise DataError(what, fix="Restore the data, or start another run.")

    def require_same_promise(self, people: Population) -> None:
        """Check, before anything is written, that the method can keep what it promised when the run was started.

        Raises:
            ConfigError: the method cannot continue with these options.
            PrivacyError: they make another privacy plan.
        """
        sizes = [site.size for site in people.sites]
        old, new = (method_of(one) for one in (self.begun, self.experiment))
        before, now = old.guarantee(sizes, self.begun.training), new.guarantee(sizes, self.experiment.training)
        if self.checkpoint and before and now and before != now:
            what = f"the run was begun under another privacy plan ({before.words}) and would go on under {now.words}"
            fix = "Resume with the same rounds, [training] and options of the method, or start another run."
            raise PrivacyError(what, fix=fix)
        times = [_noisy_selections(one) for one in (self.begun, self.experiment)]
        if self.checkpoint and times[0] != times[1]:
            what = (
                f"the run was begun with noisy centres in {several(times[0], 'round')}, and would go on with some in "
                f"{several(times[1], 'round')}"
            )
            raise PrivacyError(what, where="method.rounds", fix="Resume with the same rounds, or start another run.")


def _noisy_selections(experiment: Experiment) -> int:
    """How often sites give noisy centres, on which their privacy plan depends."""
    config = experiment.augment
    if config is None or config.noise_multiplier is None:
        return 0
    return config.selections(experiment.method.rounds)


def past(folder: RunFolder, experiment: Experiment, refused: Mapping[int, str] | None = None) -> Past:
    """What a run can resume from.

    Args:
        refused: rounds that the sites cannot go back to, and why.

    Raises:
        ConfigError: the folder's experiment is another one, or asks for less than is done.
        CheckpointError: there are rounds, but no checkpoint of them that can be used.
    """
    checkpoint = latest(folder.checkpoint, refused)
    if checkpoint is None and folder.is_finished and read(folder.path).last.privacy:
        what = "the run is finished, and since it promised privacy, what its server knew is removed"
        raise CheckpointError(what, where=str(folder.path), fix="Start another run.")
    if checkpoint is None and folder.metrics.exists():
        what = "the run has rounds behind it, but its checkpoint is gone"
        fix = "Restore it, start over with --overwrite, or choose another run.folder."
        raise CheckpointError(what, where=str(folder.checkpoint), fix=fix)
    begun = Experiment.of(checkpoint.run["experiment"]) if checkpoint else _written_down(folder)
    experiment = settled(experiment, begun)
    noted: list[str] = []
    with suppress(CheckpointError):  # more may have been named since, of which no round was saved
        noted = _written_down(folder).run.chosen_by
    chosen_by = list(dict.fromkeys([*begun.run.chosen_by, *noted, *experiment.run.chosen_by]))
    experiment = experiment.model_copy(update={"run": experiment.run.model_copy(update={"chosen_by": chosen_by})})
    changed = _changed(folder, begun, experiment)
    if checkpoint is None:
        return Past(begun, experiment, None)
    _require_rounds(folder, checkpoint.round, experiment, changed)
    events = [f"{problem}; the run goes on from the one before" for problem in checkpoint.damaged]
    if elsewhere := stays(checkpoint.run.get("automatic", {}), begun, experiment):
        events.append(elsewhere)
    events += [f"{key} is {shown(now)} from here on, and was {shown(was)}" for key, (was, now) in changed.items()]
    new = [{"after": checkpoint.round, "changed": changed, "events": events}] if events else []
    measured = None
    with suppress(CheckpointError):
        measured = files.value(folder.path / MEASURED, MeasuredOn)
    return Past(begun, experiment, checkpoint, [*checkpoint.run["resumed"], *new], events, measured=measured)


def restored(before: Past, server: Server, folder: RunFolder, experiment: Experiment) -> Past:
    """Take server and sites back to the last round that all of them have whole; returns what they resumed from.

    Raises:
        CheckpointError: there is none.
    """
    refused: dict[int, str] = {}
    while before.checkpoint is not None:
        try:
            server.restore(before.checkpoint)
            break
        except CheckpointError as error:
            refused[before.checkpoint.round] = error.what
            before = past(folder, experiment, refused)
    return replace(before, refused=tuple(refused))


def has_more_to_do(folder: RunFolder) -> bool:
    """Whether a run that is finished was stopped before it had its page, or before it removed what its server knew.
    Without a checkpoint it cannot go on with that."""
    if last_saved(folder.checkpoint) is None:
        return False
    summary = files.value(folder.summary, Summary)
    return not folder.report.exists() or bool(summary and summary.final.get("privacy"))


def is_over(folder: RunFolder, experiment: Experiment) -> bool:
    """Whether a run of this experiment has ended here, and has nothing left to write or to remove.

    Raises:
        CheckpointError: the experiment of the run is damaged.
    """
    if not (folder.is_finished and folder.report.exists()):
        return False
    try:
        ended = _written_down(folder)
    except CheckpointError as error:
        fix = "Restore it from a copy. The run is finished: to start over would spend its ε again."
        raise CheckpointError("which run has ended here is not known", where=error.where, fix=fix) from error
    return fingerprint(ended) == fingerprint(experiment) and not has_more_to_do(folder)


def _written_down(folder: RunFolder) -> Experiment:
    try:
        return Experiment.load(folder.config)
    except ConfigError as error:
        what = f"this is no longer the experiment that the run was started with ({error.what})"
        fix = "No round is saved: start over with --overwrite."
        raise CheckpointError(what, where=str(folder.config), fix=fix) from None


def _changed(folder: RunFolder, begun: Experiment, experiment: Experiment) -> dict[str, list[Any]]:
    """Options that differ from those before, as {key: [before, now]}; refuses those that may not."""
    before, now = (dict(leaves(one.tables())) for one in (begun, experiment))
    changed = {}
    for key in {**before, **now}:
        if before.get(key) == now.get(key) or key in _CALLED or key.startswith(_TOLD):
            continue
        fixed = begun.method.fixed_on_resume if key == "method.rounds" else ""
        if fixed or not (key.startswith(_in_rounds(begun)) or key in _MAY_CHANGE):
            what = f"{key} is {shown(now.get(key))}, but the run was started with {shown(before.get(key))}"
            what += f"; {fixed}" if fixed else ""
            fix = "Resume with the same experiment, or start another run."
            raise ConfigError(what, where=str(folder.path), fix=fix)
        changed[key] = [before.get(key), now.get(key)]
    return changed


def _in_rounds(experiment: Experiment) -> tuple[str, ...]:
    """How options begin that may change where a round is left that uses them."""
    return ("training.", "evaluation.", *(f"method.{name}" for name in experiment.method.changeable))


def _require_rounds(folder: RunFolder, done: int, experiment: Experiment, changed: Mapping[str, Any]) -> None:
    rounds = experiment.method.total_rounds
    if rounds < done:
        what = f"method.rounds is {rounds}, but the run has {done} rounds behind it"
        fix = f"Set method.rounds to {done} or more, or start another run."
        raise ConfigError(what, where=str(folder.path), fix=fix)
    idle = next((key for key in changed if key.startswith(_in_rounds(experiment))), None)
    if rounds == done and idle:
        what = f"all rounds are done ({done}), so {idle} = {shown(changed[idle][1])} would change none of them"
        fix = "Raise method.rounds too, resume without the change, or start another run."
        raise ConfigError(what, where=str(folder.path), fix=fix)

"""What a comparison's folder holds already: whether it is one's own, and whether its runs are those asked for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from murmura.audit.subject import hold_to_digests
from murmura.compare.arms import Candidate
from murmura.compare.config import RATE
from murmura.compare.jobs import FIGURES, NOT_SEARCHED, RUNS, SEARCH, WRITTEN, Job
from murmura.config import leaves, shown
from murmura.errors import CheckpointError, MurmuraError
from murmura.experiment.augmenting import opened
from murmura.experiment.config import Experiment
from murmura.experiment.inputs import require_same_inputs
from murmura.experiment.prepare import Plan
from murmura.measure.evaluation_set import record_set
from murmura.runs import files
from murmura.runs.folder import RunFolder
from murmura.runs.record import read
from murmura.units import listing

_RUN = ("engine", "workers", "answer_seconds", "slots", "cache_bytes", "decode_rows", "name", "folder", "chosen_by")
_IDLE = {*(f"run.{key}" for key in _RUN), "budget.epsilon", "budget.delta"}
"""Options that change no result, or only how the run is called and how much its owner allows. All of these may change
in a run that goes on (docs/decisions/0002-what-a-resumed-run-may-change.md)."""
_TOLD = "tracking."  # how options begin of who is told of it: likewise
_OF_AN_ARM = ("method.", "model.trainable", "lora.", "training.", "aggregation.", "augment.", "data.kind")
"""How options begin that one arm of a comparison may have and another not; all have the same records and base."""
_SAME_ARM = {
    RATE,
    "training.tokens_per_pass",
    "training.precision",
    "aggregation.secure.allow_cohort_change_on_retry",
    "method.accountant",
    "method.adjacency",
    "method.delta",
    "augment.noise_delta",
}
"""Among these, those that change nothing but rounding, and those by which the same noise is told as another ε."""
_ELSEWHERE = (
    "Give another folder (--out). Where an ε is promised, name this run and the arm's search in run.chosen_by of the "
    "file: they count there too, and removing them does not undo what they have spent."
)


def require_own(folder: Path) -> None:
    """Hold a comparison's folder to being no file and no run's, and what would be written there to an earlier one's.

    Raises:
        CheckpointError: it is not; nothing of it is touched.
    """
    fix = "Give the comparison another one (--out, or compare.folder)."
    if folder.exists() and not folder.is_dir():
        raise CheckpointError("this is a file, and a comparison is kept in a folder", where=str(folder), fix=fix)
    if RunFolder(folder).holds_run:
        raise CheckpointError("a run is kept in this folder", where=str(folder), fix=fix)
    there = [name for name in WRITTEN if (folder / name).exists()]
    if there and not _is_comparison(folder):
        what = f"{listing(there)} is here already, and no comparison has written it"
        raise CheckpointError(what, where=str(folder), fix=fix)


def _is_comparison(folder: Path) -> bool:
    """Whether a comparison has left its figures here, or a run. Any folder may have one called ``runs``."""
    kept = (run for name in (RUNS, SEARCH) for run in (folder / name).glob("*"))
    return "murmura" in files.state(folder / FIGURES) or any(RunFolder(run).holds_run for run in kept)


def require_same(jobs: Sequence[Job], rates: Collection[float] = ()) -> None:
    """Hold runs that are there already to what would be run, and to the files that it would read.

    Args:
        rates: of which they may have any, where it is not known yet which it will be; if not given, their own alone.

    Raises:
        CheckpointError: a folder holds another experiment, or one that has read something else; nothing of it is
            touched.
        DataError, ConfigError: the pool of [augment] is not there, or is not what is asked for.
    """
    for job in jobs:
        kept = RunFolder(job.folder)
        if not kept.holds_run:
            continue
        # Read as an experiment, a run of an earlier version has the defaults of options that came later; and it has
        # written out what its pool was made with.
        asked, _ = opened(job.experiment)
        there, wanted = (_deciding(one) for one in (Experiment.load(kept.config), asked))
        # A finished search was measured in its last round, however often besides.
        no_matter = {"evaluation.every"} if job.searching and job.finished else set[str]()
        no_matter |= NOT_SEARCHED if job.searching else set()
        no_matter |= {RATE} if there.get(RATE) in rates else set()
        for key in sorted({*there, *wanted} - no_matter):
            if there.get(key) != wanted.get(key) and wanted.get(key) != "auto":  # for which a run writes what it took
                asks = " or ".join(map(shown, rates)) if key == RATE and rates else shown(wanted.get(key))
                what = f"this run has {key} = {shown(there.get(key))}, and the comparison asks for {asks}"
                fix = _ELSEWHERE
                if key == RATE and not rates and not job.searching and len(job.arm.rates) > 1:
                    what += ", the best of the rates as the search has it now"
                    whose = f"'{job.arm.rate_of or job.arm.name}'"
                    fix = f"To keep these runs, leave {asks} out of the rates of {whose}. Or: {fix}"
                raise CheckpointError(what, where=str(job.folder), fix=fix)
        if kept.metrics.exists():
            require_same_inputs(kept, asked)


def looks_for(arm: Candidate, folder: Path) -> bool:
    """Whether a run of a search is one for an arm, by its experiment, whatever that was called; true where that cannot
    be read."""
    try:
        there, wanted = (_telling_apart(one) for one in (Experiment.load(RunFolder(folder).config), arm.experiment))
    except MurmuraError:
        return True
    return all(there.get(key) == wanted.get(key) or wanted.get(key) in ("auto", None) for key in {*there, *wanted})


def _telling_apart(experiment: Experiment) -> dict[str, Any]:
    """The options by which one arm is another than the next, by their full names. All others are left out, since a
    search that is counted in vain makes an ε too large, and one that is forgotten too small."""
    idle = _SAME_ARM | {key for key, _ in experiment.sources()}  # of files that lie elsewhere now
    later = tuple(f"method.{name}" for name in experiment.method.changeable)  # once no more private records are read
    return {
        key: Path(value).name if isinstance(value, str) else value  # a model is the same in another folder
        for key, value in leaves(experiment.tables())
        if key.startswith(_OF_AN_ARM) and key not in idle and not key.startswith(later)
    }


def require_same_records(job: Job, plan: Plan) -> None:
    """Hold a finished run to the records that it would be made with now, where files do not tell: of a hub's data set.

    Args:
        plan: of a dry run, which has no encoder: where one shares records out, they are not compared.

    Raises:
        CheckpointError: one of them has changed since.
    """
    records = None if plan.decided.data.may_cluster else plan.records
    if not job.finished or records is None:
        return
    try:
        hold_to_digests(RunFolder(job.folder), records.planted.sites)
    except MurmuraError as error:
        raise _on_others(job, f"{error.what} ({error.where})") from None
    noted = read(job.folder).measured
    heldout = record_set(records.public.heldout, secret=False).digest
    if noted is not None and noted.heldout.digest not in (None, heldout):
        raise _on_others(job, "it was measured on other held-out records than there are now")


def _on_others(job: Job, what: str) -> CheckpointError:
    what = f"this run cannot be compared with others: {what}"
    fix = "Bring it back as it was, or give another folder (--out)."
    return CheckpointError(what, where=str(job.folder), fix=fix)


def _deciding(experiment: Experiment) -> dict[str, Any]:
    """The options that an experiment's results depend on, by their full names."""
    every = leaves(experiment.tables())
    return {key: value for key, value in every if key not in _IDLE and not key.startswith(_TOLD)}

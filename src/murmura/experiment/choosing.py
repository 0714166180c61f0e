"""The runs by which a run's options were chosen (``run.chosen_by``): what they have spent counts with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from murmura.errors import CheckpointError, ConfigError, MurmuraError, explaining
from murmura.experiment.caveats import CHOSEN
from murmura.experiment.config import Experiment, RunConfig
from murmura.privacy import odometer, run_ledgers
from murmura.privacy.plan import PrivacyPlan
from murmura.privacy.run_ledgers import RunLedgers
from murmura.privacy.standing import with_others
from murmura.progress import say
from murmura.runs.folder import RunFolder
from murmura.runs.previous import is_run, previous_of
from murmura.units import listing

_WHERE = "run.chosen_by = {}"


def choosing(run: RunConfig, resume: RunFolder | None) -> list[RunLedgers]:
    """What the runs by which options were chosen have spent by now, and those that these name; or why that is not
    known. A run that goes on has noted what it named before: those may be gone.

    Args:
        resume: the folder of the run that goes on.

    Raises:
        ConfigError: one is no run, so that no ε with it could be told when all rounds are over.
        CheckpointError, PrivacyError: what the run has noted before cannot be read.
    """
    known, begun_with = set[str](), list[str]()
    if resume:
        known = {one.name for one in run_ledgers.noted(resume.path)}
        with suppress(CheckpointError):
            begun_with = run_ledgers.named(resume.path)
    found = []
    for place in map(str, map(Path, run.chosen_by)):
        if place in begun_with and place not in known:  # which run lay there then cannot be told
            found.append(RunLedgers.unknown(place, f"what {place} had spent was not noted when the run began"))
            continue
        there = _is_run(Path(place))
        if not there and place not in known:
            raise ConfigError("this is not a run folder", where=_WHERE.format(place), fix=_name_one(Path(place)))
        if there:
            found.append(run_ledgers.found(Path(place)))
    return [*(one for run in found for one in run.chosen_by), *found]


def _is_run(folder: Path) -> bool:
    with explaining("this folder cannot be read", _WHERE.format(folder), "or name another run", kind=ConfigError):
        return is_run(folder)


def _name_one(folder: Path) -> str:
    previous = previous_of(folder)
    moved = f"; one that lay there is {previous} now" if is_run(previous) else ""
    return f"Name the folder of a run{moved}."


def of_those_named(folder: Path) -> list[dict[str, str]]:
    """What stands beside the ε of the runs that a run has noted, since its own counts them, and ``of`` which it is
    said: by the end of its folder's name, which several may share."""
    runs = [(Path(one.name).name, one.caveats) for one in odometer.every(run_ledgers.noted(folder))]
    return [{"said": f"Of {of}: {one}", "of": of} for of, told in runs for one in told if one != CHOSEN]


def with_choosing(experiment: Experiment, folder: Path, privacy: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a run guarantees after its last round, those by which its options were chosen counted; or why it is nothing.

    Args:
        folder: of the run.
        privacy: what it guarantees by itself; or what this has returned before, where more such runs were named since.
    """
    alone = privacy.get("alone", privacy.get("epsilon"))
    if alone is None or not (experiment.run.chosen_by or run_ledgers.noted(folder)):
        return privacy
    told = {**privacy, "alone": alone, "epsilon": alone, "refused": None}
    try:
        found = with_others(folder, told, experiment.method.model_dump())
    except MurmuraError as error:
        say(f"No ε is told: {error}")
        why = f"with the runs by which its options were chosen: {error.what}"
        return {**told, "epsilon": None, "refused": why}
    return {**told, "epsilon": found.value, "accountant": found.accountant}


def uncounted(chosen_by: Sequence[RunLedgers], plan: PrivacyPlan | None, is_remote: bool) -> list[str]:
    """Why the runs by which options were chosen will leave no ε after the last round, as far as that is known before
    the first; in sentences.

    Args:
        is_remote: whether sites are on machines of their own.
    """
    if not chosen_by or plan is None:
        return []
    runs = odometer.every(chosen_by)
    why = next((why for one in runs for why in one.damaged.values()), "")
    if is_remote and plan.unit == "record":
        why = "the ledgers of this one are with its sites, each of which may add up its own (murmura privacy spent)"
    elif not why:
        bare = [Path(one.name).name for one in runs if not (one.whole or (one.sites and plan.unit == "record"))]
        why = f"no ε for one {plan.unit} was promised by {listing(bare)}" if bare else ""
    return [f"After the last round no ε will be told: other runs count (run.chosen_by), and {why}."] if why else []

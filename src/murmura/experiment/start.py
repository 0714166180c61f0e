"""What a run's training began with: the adapter of ``model.adapter``, held to the digest that the run noted of it."""

from __future__ import annotations

from pathlib import Path

from murmura.errors import CheckpointError
from murmura.experiment.config import Experiment
from murmura.runs import files
from murmura.runs.folder import RunFolder
from murmura.runs.schema import ENVIRONMENT, Environment
from murmura.training.adapter import State, fingerprint, load_peft
from murmura.training.config import LoraSpec


def start_of(experiment: Experiment, folder: RunFolder) -> tuple[State, LoraSpec] | None:
    """The adapter that a run's training began with, and its shape; None where it began with the model as it is loaded.

    Raises:
        ModelError: it is not there any more.
        CheckpointError: it is another now.
    """
    if experiment.model.adapter is None:
        return None
    state, spec = load_peft(Path(experiment.model.adapter))
    require_same_start(folder, state, experiment.model.adapter)
    return state, spec


def require_same_start(folder: RunFolder, start: State | None, where: str | None) -> None:
    """Refuse an adapter other than that with which a run began.

    Args:
        start: as it is now.
        where: it lies.

    Raises:
        CheckpointError: it is another, or the run has not noted which it was.
    """
    if start is None:
        return
    noted = files.value(folder.path / ENVIRONMENT, Environment)
    if noted is None or noted.adapter != fingerprint(start):
        what = "this adapter is not the one that the run began with"
        fix = "Bring it back as it was, or start another run."
        raise CheckpointError(what, where=f"model.adapter = {where}", fix=fix)

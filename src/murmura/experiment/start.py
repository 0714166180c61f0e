"""What a run's training begins with: the adapter of ``model.adapter``, held to the digest that the run noted of it."""

from __future__ import annotations

from pathlib import Path

from murmura.errors import CheckpointError, ModelError
from murmura.experiment.config import Experiment
from murmura.runs import files
from murmura.runs.folder import RunFolder
from murmura.runs.names import ENVIRONMENT
from murmura.runs.schema import Environment
from murmura.training.adapter import State, fingerprint, load_peft
from murmura.training.config import LoraSpec


def adapter_to_begin_with(experiment: Experiment) -> tuple[State, LoraSpec] | None:
    """The adapter of ``model.adapter`` and its shape; None where training begins with the model as it is loaded.

    Raises:
        ModelError: there is none at that place.
    """
    if experiment.model.adapter is None:
        return None
    try:
        return load_peft(Path(experiment.model.adapter))
    except ModelError as error:
        what = f"the adapter that training begins with cannot be read: {error.what}"
        fix = "Bring the folder back, or write its place in model.adapter; every side of the run needs a copy."
        raise ModelError(what, where=f"model.adapter = {error.where}", fix=fix) from error


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
    try:
        environment = files.value(folder.path / ENVIRONMENT, Environment)
    except CheckpointError:
        environment = None
    noted = environment.adapter if environment else None
    if noted is None:
        what = "which adapter the run began with is not noted, so nobody knows whether this is it"
        fix = f"Bring {ENVIRONMENT} of the run back, if it is lost; a run of an earlier version did not note it."
        raise CheckpointError(what, where=f"model.adapter = {where}", fix=fix)
    if noted != fingerprint(start):
        what = "this adapter is not the one that the run began with"
        fix = "Bring it back as it was, or start another run."
        raise CheckpointError(what, where=f"model.adapter = {where}", fix=fix)

"""The models that a finished run has left, in one bank with the base model that they were tuned from."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from murmura import models
from murmura.errors import ConfigError, ModelError
from murmura.experiment.config import Experiment
from murmura.experiment.inputs import require_same_base
from murmura.experiment.start import adapter_to_begin_with, require_same_start
from murmura.runs.folder import RunFolder
from murmura.training.adapter import State, load_peft
from murmura.training.bank import Bank
from murmura.training.config import LoraSpec


class RunModels:
    """What a run has left, loaded.

    Args:
        experiment: of the run.
        folder: of the run.
        only: where an adapter of it lies, which is loaded as the whole; if not given, all that the run has left is.

    Attributes:
        bank: over the base model, with room for adapters of the largest rank.
        tokenizer: the base model's.
        whole: the global adapter, or the state of all parameters; None where sites have adapters of their own.
        own: of each site that has left one, its own adapter.

    Raises:
        ConfigError: the run has left no model.
        ModelError: a model cannot be loaded, or is not one of this run.
        CheckpointError: the base model is another now.
    """

    def __init__(self, experiment: Experiment, folder: RunFolder, only: Path | None = None) -> None:
        options, self._experiment, self._folder = experiment.model, experiment, folder
        base = self._load(experiment, options.name)
        require_same_base(folder, experiment)
        self.tokenizer: Any = base.tokenizer
        self.whole: State | None = None
        self.own: dict[str, State] = {}
        if options.trainable == "all":
            _require(folder.model)
            trained = self._load(experiment, str(folder.model)).model
            self.whole = {name: tensor.detach().cpu().clone() for name, tensor in trained.named_parameters()}
            self.bank = Bank(base.model, None)
            return
        # Beside a global adapter, what sites have is theirs alone.
        if only is None and folder.sites_with_adapters and not folder.adapter.is_dir():
            found = {site: load_peft(folder.adapter_of(site)) for site in folder.sites_with_adapters}
            self.own = {site: state for site, (state, _) in found.items()}
            specs = [spec for _, spec in found.values()]
        else:
            place = only or folder.adapter
            _require(place)
            self.whole, spec = load_peft(place)
            specs = [spec]
        if options.adapter is not None:  # which may be wider than all that it became
            specs.append(experiment.lora)
        # What one adapter alone is to answer is read once.
        self.bank = Bank(base.model, _widest(specs, folder.path), 0 if only else experiment.run.cache_bytes)

    @cached_property
    def start(self) -> State | None:
        """The adapter that training began with; None where it began with the model as it is loaded.

        Raises:
            ModelError: it is not there any more.
            CheckpointError: it is another now, or the run has not noted which it was.
        """
        found = adapter_to_begin_with(self._experiment)
        start = found[0] if found else None
        require_same_start(self._folder, start, self._experiment.model.adapter)
        return start

    @staticmethod
    def _load(experiment: Experiment, name: str) -> models.LoadedModel:
        options = experiment.model
        return models.load(name, experiment.model_task, options.load_dtype, options.device, options.quantization)


def _require(place: Path) -> None:
    if not place.is_dir():
        fix = "Name a run of a method that trains one; or restore the folder."
        raise ConfigError("the run has left no model", where=str(place), fix=fix)


def _widest(specs: Sequence[LoraSpec], where: Path) -> LoraSpec:
    """The shape of largest rank, into whose bank adapters of smaller ones fit, since all have the run's scale."""
    widest = max(specs, key=lambda one: one.rank)
    if any(abs(one.scale - widest.scale) > 1e-9 * widest.scale for one in specs):
        fix = "Bring the adapters back that the run has left."
        raise ModelError("its adapters have different scales, so they are not of one run", where=str(where), fix=fix)
    return widest

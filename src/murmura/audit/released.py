"""The models that a finished run has left, in one bank with the base model that they were tuned from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from murmura import models
from murmura.errors import ConfigError, ModelError
from murmura.experiment.config import Experiment
from murmura.runs.folder import RunFolder
from murmura.training.adapter import State, load_peft
from murmura.training.bank import Bank
from murmura.training.config import LoraSpec


class Released:
    """What a run has left, loaded.

    Args:
        experiment: of the run.
        folder: of the run.

    Attributes:
        bank: over the base model, with room for adapters of the largest rank.
        tokenizer: the base model's.
        whole: the global adapter, or the state of all parameters; None where sites have adapters of their own.
        own: of each site that has left one, its own adapter.

    Raises:
        ConfigError: the run has left no model.
        ModelError: a model cannot be loaded, or is not one of this run.
    """

    def __init__(self, experiment: Experiment, folder: RunFolder) -> None:
        options = experiment.model
        base = self._load(experiment, options.name)
        self.tokenizer: Any = base.tokenizer
        self.whole: State | None = None
        self.own: dict[str, State] = {}
        if options.trainable == "all":
            _require(folder.model)
            trained = self._load(experiment, str(folder.model)).model
            self.whole = {name: tensor.detach().cpu().clone() for name, tensor in trained.named_parameters()}
            self.bank = Bank(base.model, None)
            return
        if folder.sites_with_adapters and not folder.adapter.is_dir():  # else what sites have besides is theirs alone
            found = {site: load_peft(folder.adapter_of(site)) for site in folder.sites_with_adapters}
            self.own = {site: state for site, (state, _) in found.items()}
            specs = [spec for _, spec in found.values()]
        else:
            _require(folder.adapter)
            self.whole, spec = load_peft(folder.adapter)
            specs = [spec]
        self.bank = Bank(base.model, _widest(specs, folder.path), experiment.run.cache_bytes)

    @staticmethod
    def _load(experiment: Experiment, name: str) -> models.Loaded:
        options = experiment.model
        return models.load(name, experiment.model_task, options.load_dtype, options.device, options.quantization)


def _require(place: Path) -> None:
    if not place.is_dir():
        fix = "Audit a run of a method that trains one; or restore the folder."
        raise ConfigError("the run has left no model, so there is nothing to audit", where=str(place), fix=fix)


def _widest(specs: Sequence[LoraSpec], where: Path) -> LoraSpec:
    """The shape of largest rank, into whose bank adapters of smaller ones fit, since all have the run's scale."""
    widest = max(specs, key=lambda one: one.rank)
    if any(abs(one.scale - widest.scale) > 1e-9 * widest.scale for one in specs):
        raise ModelError("the sites' adapters have different scales, so they are not of one run", where=str(where))
    return widest

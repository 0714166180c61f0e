"""Labels for new texts by the classifier that a run has made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from murmura import methods, models
from murmura.data.cloze import Cloze
from murmura.errors import ConfigError
from murmura.evaluation.labelled import CLASSIFIER, probabilities
from murmura.experiment.config import Experiment
from murmura.experiment.run import site_folder
from murmura.experiment.task import task
from murmura.report.files import mapping
from murmura.training.adapter import load_peft
from murmura.training.bank import Bank
from murmura.workbench import Workbench


@dataclass(frozen=True)
class Prediction:
    """Names of labels, and the distribution over them of each text, float64 [texts, labels]."""

    labels: tuple[str, ...]
    probabilities: np.ndarray

    @property
    def chosen(self) -> list[str]:
        """The likeliest label of each text."""
        return [self.labels[place] for place in self.probabilities.argmax(axis=1)]


def predict(folder: Path, texts: Sequence[str], site: str | None = None) -> Prediction:
    """Label texts with a finished run's model.

    Args:
        folder: of the run.
        texts: to label.
        site: whose adapter, where sites keep their own.

    Raises:
        ConfigError: no finished run of a classifier there, or one that has no such site.
    """
    told = mapping(folder / CLASSIFIER)
    if told is None:
        raise ConfigError(
            "there is no classifier here", where=str(folder),
            fix="Name the folder of a finished run of a method that works with labels, such as lpfl.",
        )  # fmt: skip
    experiment = Experiment.load(folder / "config.toml")
    bank, tokenizer = _model(experiment, folder, site)
    what = task(experiment, tokenizer, bank.model.config, masked=not bank.head.is_decoder)
    assert isinstance(what.cloze, Cloze), f"{methods.kind(experiment.method)} records have no labels"
    bench = Workbench(
        bank, tokenizer, None, experiment.training, max_length=experiment.data.max_length, cloze=what.cloze
    )
    state = bank.read(0)
    return Prediction(what.cloze.labels, probabilities(bench, state, texts, told["weights"], "label"))


def _model(experiment: Experiment, folder: Path, site: str | None) -> tuple[Bank, Any]:
    """The base model with the run's adapter in slot 0, or the model that was trained whole; and its tokenizer."""
    options = experiment.model
    whole = options.trainable == "all"
    name = str(folder / "model") if whole else options.name
    loaded = models.load(name, experiment.model_task, options.dtype, options.device, options.quantization)
    if whole:
        bank = Bank(loaded.model, None)
        bank.load([{n: p.detach().cpu().clone() for n, p in bank.model.named_parameters()}])
        return bank, loaded.tokenizer
    own = sorted(path.name for path in (folder / "sites").glob("*"))
    if own and (site is None or site_folder(site) not in own):
        missing = "" if site is None else f", and none is called '{site}'"
        raise ConfigError(
            f"each site keeps an adapter of its own{missing}", where=str(folder),
            fix=f"Name one: --site {' | '.join(own[:10])}",
        )  # fmt: skip
    if site is not None and not own:
        raise ConfigError("the run has one adapter for all sites", where=str(folder), fix="Leave --site out.")
    state, spec = load_peft(folder / "sites" / site_folder(site) if site else folder / "adapter")
    bank = Bank(loaded.model, spec)
    bank.load([state])
    return bank, loaded.tokenizer

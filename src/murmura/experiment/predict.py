"""Labels for new texts by the classifier that a run has made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from murmura import models
from murmura.data.cloze import Cloze
from murmura.errors import ConfigError
from murmura.experiment.config import Experiment
from murmura.experiment.reading import reading
from murmura.measure.labelled import probabilities
from murmura.model_runtime import ModelRuntime
from murmura.progress import bar
from murmura.runs.folder import RunFolder
from murmura.runs.record import read_classifier
from murmura.runs.schema import PatternWeights
from murmura.training.adapter import load_peft
from murmura.training.bank import Bank

_AT_ONCE = 4096
"""Texts that are made into questions at once, so that memory does not grow with their number."""


class Classifier:
    """The classifier that a finished run has made.

    Args:
        folder: of the run.
        site: whose adapter, where sites keep their own.

    Attributes:
        labels: Names, in the order of probabilities.
        max_length: Most tokens of a text together with a pattern.
        shortened: How many texts did not fit so far, and were read without their end.

    Raises:
        ConfigError: no finished run of a classifier there, or one that has no such site.
    """

    def __init__(self, folder: Path, site: str | None = None) -> None:
        told, experiment = described(folder)
        bank, tokenizer = _model(experiment, RunFolder(folder), site)
        what = reading(experiment, tokenizer, bank.model.config, masked=not bank.head.is_decoder)
        assert isinstance(what.cloze, Cloze), f"{experiment.task.kind} records have no labels"
        self.labels, self._weights, self._cloze = what.cloze.labels, told.weights, what.cloze
        self.max_length, self.shortened = experiment.data.max_length, 0
        self._bench = ModelRuntime(bank, tokenizer, what, experiment.training, max_length=self.max_length)
        self._state = bank.read(0)

    def label(self, texts: Sequence[str]) -> Iterator[tuple[str, np.ndarray]]:
        """The likeliest label of each text, and the probability of every label, float64 [labels]."""
        with bar("texts", len(texts)) as progress:
            for first in range(0, len(texts), _AT_ONCE):
                some = texts[first : first + _AT_ONCE]
                found = probabilities(self._bench, self._state, some, self._weights, "label")
                self.shortened += self._cloze.shortened(some)
                self._cloze.forget()
                yield from ((self.labels[row.argmax()], row) for row in found)
                progress.advance(len(some))


def described(folder: Path) -> tuple[PatternWeights, Experiment]:
    """What a finished run tells of its classifier, and its experiment; nothing is loaded.

    Raises:
        ConfigError: no finished run of a classifier there.
        CheckpointError: what it tells cannot be understood.
    """
    told = read_classifier(folder)
    if told is None:
        missing = "there is no classifier here" if folder.is_dir() else "there is no such folder"
        fix = "Name the folder of a finished run of a method that works with labels, such as lpfl."
        raise ConfigError(missing, where=str(folder), fix=fix)
    return told, Experiment.load(RunFolder(folder).config)


def _model(experiment: Experiment, folder: RunFolder, site: str | None) -> tuple[Bank, Any]:
    """The base model with the run's adapter in slot 0, or the model that was trained whole; and its tokenizer."""
    options = experiment.model
    whole = options.trainable == "all"
    name = str(folder.model) if whole else options.name
    loaded = models.load(name, experiment.model_task, options.load_dtype, options.device, options.quantization)
    if whole:
        bank = Bank(loaded.model, None)
        bank.load([{n: p.detach().cpu().clone() for n, p in bank.model.named_parameters()}])
        return bank, loaded.tokenizer
    own = folder.sites_with_adapters
    if own and site not in own and not (site is None and folder.adapter.is_dir()):
        missing = "" if site is None else f", and none is called '{site}'"
        fix = f"Name one: --site {' | '.join(own[:10])}"
        raise ConfigError(f"each site keeps an adapter of its own{missing}", where=str(folder.path), fix=fix)
    if site is not None and not own:
        raise ConfigError("the run has one adapter for all sites", where=str(folder.path), fix="Leave --site out.")
    state, spec = load_peft(folder.adapter if site is None else folder.adapter_of(site))
    bank = Bank(loaded.model, spec, cache_bytes=0)  # each text is read once
    bank.load([state])
    return bank, loaded.tokenizer

"""Labels for new texts by the classifier that a run has made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from murmura.errors import ConfigError
from murmura.experiment.config import Experiment
from murmura.experiment.trained import Trained, finished
from murmura.measure.labelled import probabilities
from murmura.progress import bar
from murmura.runs import files
from murmura.runs.names import CLASSIFIER, OUTCOMES
from murmura.runs.schema import PatternWeights

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
        CheckpointError, ConfigError: as ``described``; or the run has no such site.
    """

    def __init__(self, folder: Path, site: str | None = None) -> None:
        told, _ = described(folder)
        found = Trained.load(folder, site)
        self._bench, self._state, self._cloze = found.runtime, found.after, found.runtime.cloze
        self.labels, self._weights = self._cloze.labels, told.weights
        self.max_length, self.shortened = found.runtime.max_length, 0

    def label(self, texts: Sequence[str]) -> Iterator[tuple[str, np.ndarray]]:
        """The likeliest label of each text, and the probability of every label, float64 [labels]."""
        with bar("texts", len(texts)) as progress:
            for first in range(0, len(texts), _AT_ONCE):
                some = texts[first : first + _AT_ONCE]
                found = probabilities(self._bench, self._state, some, self._weights, "label")
                self.shortened += len(self._cloze.shortened(some))
                self._cloze.forget()
                yield from ((self.labels[row.argmax()], row) for row in found)
                progress.advance(len(some))


def described(folder: Path) -> tuple[PatternWeights, Experiment]:
    """What a finished run tells of its classifier, and its experiment; nothing is loaded.

    Raises:
        ConfigError: its method makes no classifier.
        CheckpointError: no run is there, one that is not finished, or one whose files cannot be understood.
    """
    experiment, told = finished(folder), files.value(folder / OUTCOMES / CLASSIFIER, PatternWeights)
    if told is None:
        fix = "Name a run of a method that works with labels, such as lpfl."
        raise ConfigError("the run has made no classifier", where=str(folder), fix=fix)
    return told, experiment

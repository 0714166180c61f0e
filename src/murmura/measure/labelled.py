"""A classifier made of cloze questions: its answers, and how it does on public records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from murmura.data.records import Labelled
from murmura.generation.cloze import scores as label_scores
from murmura.generation.scoring import TokenScores
from murmura.measure.classification import quality
from murmura.measure.ensemble import Weighed, ensemble, pattern_accuracies, soft_labels
from murmura.measure.guessing import majority
from murmura.model_runtime import ModelRuntime
from murmura.progress import phase
from murmura.training.adapter import State


def pattern_scores(
    runtime: ModelRuntime, adapters: Sequence[State], texts: Sequence[str], description: str = "read"
) -> np.ndarray:
    """Scores of every label for text i under adapter i, float32 [texts, patterns, labels]."""
    cloze = runtime.cloze
    items = [item for found in cloze.tokenise_all(texts) for item in found]
    patterns, labels = len(cloze.patterns), len(cloze.labels)
    results = np.empty((len(texts), patterns, labels), dtype=np.float32)
    with phase("score"):
        for chosen in runtime.chunks(adapters):
            slots = runtime.load([adapters[i] for i in chosen])
            some = [items[i * patterns + p] for i in chosen for p in range(patterns)]
            each, most = [slot for slot in slots for _ in range(patterns)], 2 * runtime.per_pass
            found = label_scores(runtime.bank, some, each, cloze, tokens_per_pass=most, description=description)
            results[chosen] = found.numpy().reshape(len(chosen), patterns, labels)
    return results


class Validation:
    """Labelled records of the server, which decide what patterns are worth. What it has found of the last adapter it
    remembers, by identity, so that none may be changed in place while it is in use.

    Args:
        records: without any all patterns count alike.
        weighs: patterns count by their accuracy on the records, instead of all alike.
    """

    def __init__(self, records: Sequence[Labelled] = (), *, weighs: bool = True) -> None:
        self.records, self.weighs = records, weighs
        self._last: tuple[State, Weighed] | None = None

    def weigh(self, runtime: ModelRuntime, adapter: State) -> Weighed:
        """Pattern weights of a model (LP-FL, eq. 5), and its accuracy with them."""
        if self._last is None or self._last[0] is not adapter:
            self._last = (adapter, self._weigh(runtime, adapter))
        return self._last[1]

    def _weigh(self, runtime: ModelRuntime, adapter: State) -> Weighed:
        cloze, records = runtime.cloze, self.records
        if not records:
            return Weighed([1.0] * len(cloze.patterns), None)
        found = pattern_scores(runtime, [adapter] * len(records), [r.text for r in records], "validation")
        truth = _truth(records, cloze.labels)
        weights = pattern_accuracies(found, truth) if self.weighs else np.ones(found.shape[1])
        right = ensemble(found, weights).argmax(axis=1) == truth
        return Weighed([float(w) for w in weights], float(right.mean()))

    def figures(self, weighed: Weighed) -> dict[str, Any]:
        """The accuracy on the records, their number, and what guessing comes to; empty without any."""
        if weighed.accuracy is None:
            return {}
        labels = [record.label for record in self.records]
        return {
            "validation_accuracy": weighed.accuracy,
            "validation_accuracy_n": len(labels),
            "validation_accuracy_guess": majority(labels),
        }


def probabilities(
    runtime: ModelRuntime, adapter: State, texts: Sequence[str], weights: Sequence[float], description: str = "read"
) -> np.ndarray:
    """The distribution over labels that all patterns together give each text, float64 [texts, labels]."""
    found = pattern_scores(runtime, [adapter] * len(texts), texts, description)
    return soft_labels(ensemble(found, weights))


def token_scores(runtime: ModelRuntime, adapters: Sequence[State], records: Sequence[Labelled]) -> list[TokenScores]:
    """How ``adapters[i]`` finds the label of ``records[i]`` in each pattern: a pattern's question counts as one token,
    and the labels as all the tokens that there are."""
    if not records:
        return []
    scores = pattern_scores(runtime, adapters, [record.text for record in records], "read").astype(np.float64)
    truth = _truth(records, runtime.cloze.labels)
    whole = np.logaddexp.reduce(scores, axis=2)
    picked = scores[np.arange(len(records)), :, truth]
    first = scores.argmax(axis=2) == truth[:, None]
    return [TokenScores(nll.astype(np.float32), hits) for nll, hits in zip(whole - picked, first, strict=True)]


def measure(
    runtime: ModelRuntime, records: Sequence[Labelled], validation: Validation, adapters: Sequence[State]
) -> list[dict[str, Any]]:
    """Accuracy, loss and calibration of each adapter on the held-out records."""
    truth = _truth(records, runtime.cloze.labels)
    figures = []
    with phase("evaluate"):
        for adapter in adapters:
            weighed = validation.weigh(runtime, adapter)
            found = probabilities(runtime, adapter, [r.text for r in records], weighed.weights, "held-out texts")
            figures.append({**validation.figures(weighed), **quality(found, truth, runtime.cloze.labels)})
    return figures


def _truth(records: Sequence[Labelled], labels: Sequence[str]) -> np.ndarray:
    places = {label: place for place, label in enumerate(labels)}
    return np.array([places[record.label] for record in records])

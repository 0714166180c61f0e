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
from murmura.measure.evaluation_set import EvaluationSet
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


def weigh(runtime: ModelRuntime, public: EvaluationSet, adapter: State) -> Weighed:
    """Pattern weights of a model, from the server's validation set (LP-FL, eq. 5), or the same for all without one."""
    if public.weighed is None or public.weighed[0] is not adapter:
        public.weighed = (adapter, _weigh(runtime, public, adapter))
    return public.weighed[1]


def _weigh(runtime: ModelRuntime, public: EvaluationSet, adapter: State) -> Weighed:
    cloze, records = runtime.cloze, public.validation
    if not records:
        return Weighed([1.0] * len(cloze.patterns), None)
    found = pattern_scores(runtime, [adapter] * len(records), [r.text for r in records], "validation")
    truth = _truth(records, cloze.labels)
    weights = pattern_accuracies(found, truth) if public.weigh_patterns else np.ones(found.shape[1])
    right = ensemble(found, weights).argmax(axis=1) == truth
    return Weighed([float(w) for w in weights], float(right.mean()))


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


def measure(runtime: ModelRuntime, public: EvaluationSet, adapters: Sequence[State]) -> list[dict[str, Any]]:
    """Accuracy, loss and calibration of each adapter on the held-out records."""
    records: Sequence[Labelled] = public.heldout
    truth = _truth(records, runtime.cloze.labels)
    figures = []
    with phase("evaluate"):
        for adapter in adapters:
            weighed = weigh(runtime, public, adapter)
            found = probabilities(runtime, adapter, [r.text for r in records], weighed.weights, "held-out texts")
            figures.append({**validated(public, weighed), **quality(found, truth, runtime.cloze.labels)})
    return figures


def validated(public: EvaluationSet, weighed: Weighed) -> dict[str, Any]:
    """The accuracy on the validation set, the number of its texts, and what guessing comes to; empty without one."""
    if weighed.accuracy is None:
        return {}
    labels = [record.label for record in public.validation]
    return {
        "validation_accuracy": weighed.accuracy,
        "validation_accuracy_n": len(labels),
        "validation_accuracy_guess": majority(labels),
    }


def _truth(records: Sequence[Labelled], labels: Sequence[str]) -> np.ndarray:
    places = {label: place for place, label in enumerate(labels)}
    return np.array([places[record.label] for record in records])

"""Questions with options: how often is the right one the likeliest?

Options are compared as lm-evaluation-harness does it (Gao et al. 2023), by log-likelihood (its ``acc``) or by
log-likelihood per byte of UTF-8 (its ``acc_bytes``; its ``acc_norm`` divides by characters, which is the same for
ASCII). The prompt is not the harness's: an option stands where training has its response, right behind the template's
response header, and no end-of-sequence token is scored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from murmura.data.records import Choice
from murmura.data.tokenising import Tokenised
from murmura.measure.classification import confusion
from murmura.measure.guessing import majority
from murmura.model_runtime import ModelRuntime
from murmura.progress import phase
from murmura.training.adapter import State


def likelihoods(
    runtime: ModelRuntime, adapters: Sequence[State], questions: Sequence[Choice]
) -> list[list[np.ndarray]]:
    """For each adapter and question the log-likelihood of every option, float64 [options], in nats."""
    items = [_items(runtime, question) for question in questions]
    flat = [item for options in items for item in options]
    states = [adapter for adapter in adapters for _ in flat]
    scores = runtime.score(states, flat * len(adapters), description="questions with options")
    ends = np.cumsum([len(options) for options in items])[:-1]
    values = -np.array([score.nll for score in scores]).reshape(len(adapters), len(flat))
    return [np.split(row, ends) for row in values]


def measure(runtime: ModelRuntime, adapters: Sequence[State], questions: Sequence[Choice]) -> list[dict[str, Any]]:
    """Accuracy of each adapter on questions.

    Returns:
        For each adapter ``choice_accuracy``, where the model's answer is the option with the largest log-likelihood,
        and ``choice_accuracy_norm``, where it is the option with the largest log-likelihood per byte of UTF-8; each
        with the number of questions, under the same name and ``_n``, and what guessing comes to, under ``_guess``: the
        share of the option that is right most often, where all questions have the same ones, else 1/k on average. A
        tie goes to the first option. Where all questions have the same options there is also ``confusion``, which
        belongs to ``choice_accuracy``.
    """
    truth = np.array([question.answer for question in questions])
    sizes = [np.array([len(option.encode()) for option in question.options]) for question in questions]
    figures: list[dict[str, Any]] = []
    with phase("evaluate"):
        for found in likelihoods(runtime, adapters, questions):
            plain = np.array([row.argmax() for row in found])
            per_byte = np.array([(row / size).argmax() for row, size in zip(found, sizes, strict=True)])
            shares = {"choice_accuracy": plain == truth, "choice_accuracy_norm": per_byte == truth}
            figures.append({key: float(right.mean()) for key, right in shares.items()})
            figures[-1] |= {f"{key}_n": len(questions) for key in shares}
            figures[-1] |= {f"{key}_guess": _guess(questions) for key in shares}
            figures[-1] |= _by_option(questions, plain, truth)
    return figures


def _by_option(questions: Sequence[Choice], given: np.ndarray, truth: np.ndarray) -> dict[str, Any]:
    return {"confusion": confusion(given, truth, questions[0].options)} if _alike(questions) else {}


def _alike(questions: Sequence[Choice]) -> bool:
    return all(question.options == questions[0].options for question in questions)


def _guess(questions: Sequence[Choice]) -> float:
    if _alike(questions):
        return majority([question.answer for question in questions])
    return float(np.mean([1 / len(question.options) for question in questions]))


def _items(runtime: ModelRuntime, question: Choice) -> list[Tokenised]:
    """The question with each option, all behind the same prompt: what is shortened for the longest is so for all."""
    found = runtime.tokenise_fitting(question.answered())
    assert len(found) == len(question.options), "a question is asked only if every option fits"
    shortest = min(found, key=lambda item: item.start)
    prompt = shortest.ids[: shortest.start]
    return [replace(item, ids=prompt + item.ids[item.start : -1], start=len(prompt)) for item in found]

"""How well a model tells preferred answers from others, by implicit rewards (Rafailov et al. 2023, DPO)."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Any

import numpy as np
import torch

from murmura.generation.scoring import TokenScores
from murmura.measure.evaluation_set import EvaluationSet
from murmura.model_runtime import ModelRuntime
from murmura.progress import phase
from murmura.training.adapter import State
from murmura.training.preference import Pair, dpo_losses


def margins(runtime: ModelRuntime, adapters: Sequence[State], pairs: Sequence[Pair]) -> np.ndarray:
    """log π(chosen) − log π(rejected) of ``pairs[i]`` under ``adapters[i]`` in nats, float64 [n]."""
    items: list[Any] = [item for pair in pairs for item in pair.items]
    found = runtime.score([adapter for adapter in adapters for _ in range(2)], items)
    nll = np.array([one.nll for one in found], np.float64)
    return nll[1::2] - nll[0::2]


def measure(
    runtime: ModelRuntime, public: EvaluationSet, adapters: Sequence[State], known: MutableMapping[Pair, float]
) -> list[dict[str, Any]]:
    """The DPO loss of each adapter on the held-out pairs, and in how many the preferred answer has the larger implicit
    reward; a tie counts half.

    Args:
        known: margins of pairs under the model that training began with; those that are missing are added.
    """
    pairs = runtime.tokenise_fitting(public.heldout)
    with phase("evaluate"):
        if new := [pair for pair in pairs if pair not in known]:
            known.update(zip(new, margins(runtime, [runtime.origin] * len(new), new).tolist(), strict=True))
        before = np.array([known[pair] for pair in pairs])
        found = margins(runtime, [adapter for adapter in adapters for _ in pairs], pairs * len(adapters))
    return [_figures(own, before, runtime.training.dpo_beta) for own in found.reshape(len(adapters), len(pairs))]


def _figures(after: np.ndarray, before: np.ndarray, beta: float) -> dict[str, Any]:
    losses = dpo_losses(torch.from_numpy(after), torch.from_numpy(before), beta)
    raised = (after > before) + 0.5 * (after == before)
    share = {"preference_accuracy": float(raised.mean()), "preference_accuracy_n": len(raised)}
    return {"heldout_loss": float(losses.mean()), **share, "preference_accuracy_guess": 0.5}


def token_scores(runtime: ModelRuntime, adapters: Sequence[State], records: Sequence[Any]) -> list[TokenScores]:
    """What attacks go by: a pair counts as one token, with its margin as that one's log-probability. So *loss
    difference* is by how much training has raised the margin, which is the implicit reward over β."""
    found = margins(runtime, adapters, runtime.tokenise_fitting(records))
    return [TokenScores(np.array([-one], np.float32), np.array([one > 0])) for one in found]

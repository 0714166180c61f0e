"""Discoverable memorisation (Carlini et al. 2023; Nasr et al. 2023): does a model complete its training records?

The model gets the exact training prompt and writes greedily, at most as many tokens as the true response has. ROUGE-L
against the true response is the score. A better model also scores higher on records it never saw, so what
counts is the mean over members minus the mean over non-members.
"""

from __future__ import annotations

from collections.abc import Sequence

from murmura.data.records import Instruction
from murmura.measure.heldout import Continuations, continuations
from murmura.model_runtime import ModelRuntime
from murmura.progress import phase
from murmura.training.adapter import State


def complete(
    runtime: ModelRuntime, adapters: Sequence[State], members: Sequence[Sequence[Instruction]]
) -> list[Continuations]:
    """Let ``adapters[k]`` complete records ``members[k]``; all of them share batches."""
    with phase("attack"):
        return continuations(runtime, adapters, members, "memorisation")

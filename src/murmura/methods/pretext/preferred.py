"""Which of a prompt's texts is preferred to which (Hou et al. 2025, POPri, Algorithm 1), as numbers only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def preferred(votes: npt.NDArray[np.float64], groups: Sequence[Sequence[int]], rank: int) -> list[tuple[int, int]]:
    """A pair of each prompt: the text with the most votes, and the one that is so-and-so-many-th best.

    Texts are told apart by their places and not by what they say. Of equally many votes the first text counts as
    better, but no text is preferred to one with as many: votes that say nothing make no pair.

    Args:
        votes: of each text, noise included.
        groups: the places of each prompt's texts.
        rank: ℓ, from 2; a prompt with fewer texts makes no pair.

    Returns:
        (chosen, rejected), by their places, in the order of the prompts.
    """
    pairs = []
    for group in groups:
        if len(group) < rank:
            continue
        order = sorted(group, key=lambda place: -votes[place])
        chosen, rejected = order[0], order[rank - 1]
        if votes[chosen] > votes[rejected]:
            pairs.append((chosen, rejected))
    return pairs

"""Learning rates by round."""

from __future__ import annotations

import math


def learning_rate(schedule: str, lr: float, lr_min: float, round_index: int, rounds: int) -> float:
    """The rate of a round for schedule ``"constant"``, or ``"cosine"``: constant within a round, cosine over rounds
    (OpenFedLLM, Ye et al. 2024).

    ``lr_min + ½(lr − lr_min)(1 + cos(π t / R))`` with t = ``round_index`` counted from 0; it never quite reaches
    lr_min.
    """
    if schedule != "cosine":
        return lr
    return lr_min + 0.5 * (lr - lr_min) * (1 + math.cos(math.pi * round_index / rounds))

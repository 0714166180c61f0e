"""Random records for training tests."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Item:
    ids: list[int]
    labels: list[int]


def items(count, *, seed=0, vocabulary=250, longest=24):
    """Records of different lengths whose second half is to be predicted."""
    rng = random.Random(seed)
    made = []
    for _ in range(count):
        ids = [rng.randrange(10, vocabulary) for _ in range(rng.randint(6, longest))]
        half = len(ids) // 2
        made.append(Item(ids, [-100] * half + ids[half:]))
    return made

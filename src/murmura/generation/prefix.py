"""What prompts begin with in common, so that it goes through the model once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

_LEAST = 8  # tokens; a shorter common prefix is not worth a pass of its own


@dataclass(eq=False)
class Prefix:
    """A beginning that several prompts share, itself perhaps a continuation of a shorter one.

    Args:
        ids: its tokens, those of ``parent`` included.
        slot: whose adapter reads it.
        parent: the longest shorter one.
    """

    ids: Sequence[int]
    slot: int
    parent: Prefix | None


def shared_prefixes(prompts: Sequence[Sequence[int]], slots: Sequence[int]) -> list[Prefix | None]:
    """The longest beginning that each prompt shares with another of its slot, and that leaves it a token at least."""
    order = sorted(range(len(prompts)), key=lambda i: (slots[i], list(prompts[i])))
    found: list[Prefix | None] = [None] * len(prompts)
    pending: list[tuple[list[int], Prefix | None]] = [
        (list(members), None) for _, members in groupby(order, key=lambda i: slots[i])
    ]
    while pending:
        members, parent = pending.pop()
        # Members are sorted, so what the first and the last have in common all have.
        shortest = min(len(prompts[i]) for i in members)
        common = min(common_prefix(prompts[members[0]], prompts[members[-1]]), shortest - 1)
        if len(members) > 1 and common - (len(parent.ids) if parent else 0) >= _LEAST:
            parent = Prefix(prompts[members[0]][:common], slots[members[0]], parent)
        parts = [list(part) for _, part in groupby(members, key=lambda i: prompts[i][common])]
        for part in parts:
            if len(part) > 1 and len(parts) > 1:
                pending.append((part, parent))
            else:
                for i in part:
                    found[i] = parent
    return found


def common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """With how many equal items (token ids) two sequences begin."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))

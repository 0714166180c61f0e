"""Whom a round asks, where it asks some of the sites."""

from __future__ import annotations

from collections.abc import Sequence

from murmura.streams import Stream


def draw(sites: Sequence[str], count: int | None, stream: Stream, round: int) -> list[str]:
    """A round's cohort: ``count`` of the sites without replacement, in their order; all for None or too many.

    Args:
        stream: the run's randomness.
    """
    if count is None or count >= len(sites):
        return list(sites)
    chosen = set((stream / "cohort" / round).python().sample(list(sites), count))
    return [name for name in sites if name in chosen]

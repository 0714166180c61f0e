"""What a round comes to, from its beginning to the row that tells of it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from murmura.federation.server.fleet import Fleet
from murmura.progress import collect_phases


class Tally:
    """A round that begins now.

    Args:
        fleet: whose traffic and events are counted.

    Attributes:
        counts: the method's counters.
        losses: of sites' training.
        noted: figures besides those that are measured.
    """

    def __init__(self, fleet: Fleet) -> None:
        self.counts: dict[str, int] = {}
        self.losses: list[float] = []
        self.noted: dict[str, float] = {}
        self._fleet = fleet
        before = fleet.ledger.traffic()
        self._traffic = before if fleet.round else replace(before, up=0)  # records that were pooled are of the first
        self._phases = collect_phases()
        self._start = time.perf_counter()

    def count(self, counts: Mapping[str, int]) -> None:
        """Add to the counters."""
        for name, value in counts.items():
            self.counts[name] = self.counts.get(name, 0) + value

    def row(self, figures: Mapping[str, Any], privacy: Mapping[str, Any], memory: int) -> dict[str, Any]:
        """All there is to tell.

        Args:
            figures: that were measured.
            privacy: what is guaranteed after the round.
            memory: bytes at this process's peak.
        """
        return {
            **self.noted,
            **figures,
            "round": self._fleet.round,
            "train_loss": sum(self.losses) / len(self.losses) if self.losses else None,
            **self._fleet.ledger.traffic().since(self._traffic),
            "seconds": self._phases.seconds,
            "at_sites": self._fleet.at_sites,
            "wall": time.perf_counter() - self._start,
            "peak_memory": memory + self._phases.memory,
            "counts": self.counts,
            "epsilon": privacy.get("epsilon"),
            "privacy": privacy,
            "events": self._fleet.events,
            "told": self._fleet.told,
        }

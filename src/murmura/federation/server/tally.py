"""What a round comes to, from its beginning to the row that tells of it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from murmura.federation.server.fleet import Fleet
from murmura.federation.server.ledger import Traffic
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
        self._traffic, self._told = fleet.ledger.traffic(), fleet.told.traffic()
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
            "round": self._fleet.round,
            **self.noted,
            **figures,
            "train_loss": sum(self.losses) / len(self.losses) if self.losses else None,
            **_since(self._traffic, self._fleet.ledger.traffic()),
            "seconds": self._phases.seconds,
            "at_sites": self._fleet.at_sites,
            "wall": time.perf_counter() - self._start,
            "peak_memory": memory + self._phases.memory,
            "counts": self.counts,
            "epsilon": privacy.get("epsilon"),
            "privacy": privacy,
            "events": self._fleet.events,
        }

    def publication(self, figures: Mapping[str, Any], privacy: Mapping[str, Any]) -> dict[str, Any]:
        """What anybody may see of a round whose cohort is secret: what was measured, which follows from the noisy model
        and public records, and the expected traffic. Neither time nor memory, which grow with the cohort, nor events,
        which name who was asked."""
        return {
            "round": self._fleet.round,
            **figures,
            **_since(self._told, self._fleet.told.traffic()),
            "expected": ["bytes_up", "bytes_down"],
            "epsilon": privacy.get("epsilon"),
            "privacy": privacy,
        }


def _since(before: Traffic, now: Traffic) -> dict[str, int]:
    """Bytes that have travelled."""
    return {
        "bytes_up": now.up - before.up,
        "bytes_down": now.down - before.down,
        "bytes_measuring": now.measuring - before.measuring,
    }

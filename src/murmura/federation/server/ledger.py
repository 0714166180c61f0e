"""What left each site, and what travelled: kept from the first message on, saved in every checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from murmura.federation.wire.releases import Release, declared
from murmura.runs.schema import Disclosure

_POOLED = "(set-up)"


@dataclass(frozen=True)
class Traffic:
    """Bytes so far: up and down for the method itself, and what measuring it cost besides."""

    up: int
    down: int
    measuring: int

    def since(self, before: Traffic) -> dict[str, int]:
        """What has travelled since then, as fields of a row."""
        return {
            "bytes_up": self.up - before.up,
            "bytes_down": self.down - before.down,
            "bytes_measuring": self.measuring - before.measuring,
        }


class Ledger:
    """Bytes each way and the disclosure table of a run. What was sent in a round that was then lost has left too, so it
    does not go back with a checkpoint.

    Attributes:
        measuring: verbs that measure a run and are no part of its method.
    """

    def __init__(self) -> None:
        self.measuring: set[str] = set()
        self._asked: dict[str, int] = {}
        self._asks: dict[str, int] = {}
        self._rows: dict[tuple[str, str], Disclosure] = {}

    def declare(self, verb: str, releases: Mapping[str, Release], *, measures: bool = False) -> None:
        """Enter a verb's declared releases; fields that never travel stay out of the table.

        Args:
            measures: the verb only measures the run.
        """
        if measures:
            self.measuring.add(verb)
        for name, release in releases.items():
            if (verb, name) not in self._rows:
                self._rows[verb, name] = declared(verb, name, release)

    def asked(self, verb: str, size: int) -> None:
        """Count one ask, in bytes."""
        self._asked[verb] = self._asked.get(verb, 0) + size
        self._asks[verb] = self._asks.get(verb, 0) + 1

    def asks(self, verb: str) -> int:
        """How often sites have been asked for it, each of them counted; whether they have answered or not."""
        return self._asks.get(verb, 0)

    def released(self, verb: str, sizes: Mapping[str, int]) -> None:
        """Count one reply's fields, in bytes."""
        for name, amount in sizes.items():
            row = self._rows[verb, name]
            row.messages += 1
            row.bytes += amount

    def expect(self, verb: str, count: int, asked: int, sizes: Mapping[str, int]) -> None:
        """Enter expected traffic instead of what happens.

        Args:
            count: of sites that are asked and answer.
            asked: bytes of one ask.
            sizes: bytes of the fields of one reply.
        """
        for _ in range(count):
            self.asked(verb, asked)
            self.released(verb, sizes)
        for name in sizes:
            self._rows[verb, name].expected = True

    def traffic(self) -> Traffic:
        """Where all records are in one place, they are all that has travelled for the method."""
        measured = sum(size for verb, size in self._asked.items() if verb in self.measuring)
        measured += sum(row.bytes for row in self._rows.values() if row.verb in self.measuring)
        up = sum(row.bytes for row in self._rows.values() if row.verb not in self.measuring)
        down = sum(size for verb, size in self._asked.items() if verb not in self.measuring)
        pooled = self._rows.get((_POOLED, "records"))
        return Traffic(pooled.bytes, 0, measured) if pooled else Traffic(up, down, measured)

    def pooled(self, records: int, size: int) -> None:
        """Enter raw records that were brought together in one place before training (centralised baselines)."""
        note = "pooled training: every record left its site"
        self._brought(_POOLED, "all records in clear", note, records, size)

    def set_apart(self, records: int, size: int) -> None:
        """Enter raw records that were taken out of the sites' own before training, to measure with: no public ones."""
        verb = "(set apart)"
        self.measuring.add(verb)
        what = "records of the sites' own in clear, on which nobody trains"
        self._brought(verb, what, "the server measures with them; no ε covers them", records, size)

    def _brought(self, verb: str, what: str, note: str, records: int, size: int) -> None:
        self._rows[verb, "records"] = Disclosure(verb, "records", "records", what, None, note, records, size)

    def table(self) -> list[dict[str, Any]]:
        """The rows that really happened."""
        return [asdict(row) for row in self._rows.values() if row.messages]

    def state(self) -> dict[str, Any]:
        rows = [asdict(row) for row in self._rows.values()]
        return {"asked": self._asked, "asks": self._asks, "rows": rows, "measuring": sorted(self.measuring)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up a ``state``, unless more than that has travelled already."""
        rows = [Disclosure(**row) for row in state["rows"]]
        if _weight(state["asked"], rows) >= _weight(self._asked, self._rows.values()):
            self._asked, self._asks = dict(state["asked"]), dict(state["asks"])
            self.measuring = set(state["measuring"])
            self._rows = {(row.verb, row.field): row for row in rows}


def _weight(asked: Mapping[str, int], rows: Iterable[Disclosure]) -> int:
    """What grows with every message."""
    return sum(asked.values()) + sum(row.messages for row in rows)

"""What left each site, and what travelled: kept from the first message on, saved in every checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Release:
    """What a field of a reply is, and how it is protected.

    Args:
        kind: ``weights``, ``count``, ``metric``, ``text``, ``embeddings``, ``votes`` or ``records``.
        what: the field in plain words.
        protection: ``none``, or the mechanism.
        note: anything a data-protection officer should read beside it; ``{config.x}`` is replaced by the method's x.
    """

    kind: str
    what: str
    protection: str = "none"
    note: str = ""


def Weights(what: str = "adapter tensors", note: str = "") -> Release:
    """Model weights or differences of them."""
    return Release("weights", what, note=note)


def Count(what: str = "number of examples") -> Release:
    """How many of something a site has."""
    return Release("count", what)


def Metric(what: str) -> Release:
    """A loss or another figure computed on a site's records."""
    return Release("metric", what)


@dataclass
class Disclosure:
    """A row of the disclosure table: one field of one verb's replies, over the whole run."""

    verb: str
    field: str
    kind: str
    what: str
    protection: str
    note: str
    messages: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class Traffic:
    """Bytes so far: up and down for the method itself, and what measuring it cost besides."""

    up: int
    down: int
    measuring: int


class Ledger:
    """Bytes each way and the disclosure table of a run.

    Args:
        measuring: verbs that measure a run and are no part of its method.
    """

    def __init__(self, measuring: frozenset[str] = frozenset()) -> None:
        self.measuring = measuring
        self._asked: dict[str, int] = {}
        self._rows: dict[tuple[str, str], Disclosure] = {}

    def declare(self, verb: str, releases: Mapping[str, Release], config: Any) -> None:
        """Enter a verb's declared releases; fields that never travel stay out of the table."""
        for name, release in releases.items():
            key = (verb, name)
            if key not in self._rows:
                note = release.note.format(config=config)
                self._rows[key] = Disclosure(verb, name, release.kind, release.what, release.protection, note)

    def asked(self, verb: str, size: int) -> None:
        """Count one ask, in bytes."""
        self._asked[verb] = self._asked.get(verb, 0) + size

    def released(self, verb: str, sizes: Mapping[str, int]) -> None:
        """Count one reply's fields, in bytes."""
        for name, amount in sizes.items():
            row = self._rows[verb, name]
            row.messages += 1
            row.bytes += amount

    def traffic(self) -> Traffic:
        measured = sum(size for verb, size in self._asked.items() if verb in self.measuring)
        measured += sum(row.bytes for row in self._rows.values() if row.verb in self.measuring)
        up = sum(row.bytes for row in self._rows.values() if row.verb not in self.measuring)
        down = sum(size for verb, size in self._asked.items() if verb not in self.measuring)
        return Traffic(up, down, measured)

    def pooled(self, records: int, size: int) -> None:
        """Enter raw records that were brought together in one place before training (centralised baselines)."""
        self._rows["(set-up)", "records"] = Disclosure(
            "(set-up)", "records", "records", "all records in clear", "none",
            "pooled training: every record left its site", records, size,
        )  # fmt: skip

    def table(self) -> list[dict[str, Any]]:
        """The rows that really happened."""
        return [asdict(row) for row in self._rows.values() if row.messages]

    def state(self) -> dict[str, Any]:
        return {"asked": self._asked, "rows": [asdict(row) for row in self._rows.values()]}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._asked = dict(state["asked"])
        self._rows = {(row["verb"], row["field"]): Disclosure(**row) for row in state["rows"]}

"""The disclosure table: what left each site, and what may be said about its protection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from murmura.federation.wire.releases import DifferentialPrivacy, Protection, protection_from_json
from murmura.report.table import Row
from murmura.runs.record import RunRecord
from murmura.runs.schema import Disclosure
from murmura.units import count, listing, size

_CONTENT = frozenset({"weights", "embeddings", "text"})
"""Kinds of release from which records can be read."""


@dataclass(frozen=True, slots=True)
class Released:
    """What left the sites in one or several methods alike.

    Attributes:
        rows: Positions of those methods in the report's table.
        runs: Names of the runs, where a method's runs differ from one another; else empty.
        entries: The table; None where the runs recorded none.
        differential: Whether an entry carries differential privacy.
    """

    rows: tuple[int, ...]
    runs: tuple[str, ...]
    entries: tuple[dict[str, Any], ...] | None
    differential: bool


def released(rows: Sequence[Row]) -> list[Released]:
    """The disclosure tables of a report; methods that released the same are put together."""
    found: dict[str, tuple[list[int], list[str], RunRecord]] = {}
    for position, row in enumerate(rows):
        alike = len({repr(_entries(run)) for run in row.runs}) == 1
        for run in row.runs[:1] if alike else row.runs:
            key = repr(_entries(run)) if alike else f"{position} {_entries(run)!r}"
            positions, names, _ = found.setdefault(key, ([], [], run))
            positions.append(position)
            names.extend([] if alike else [run.name])
    return [
        Released(tuple(dict.fromkeys(positions)), tuple(names), _entries(run), _differential(run))
        for positions, names, run in found.values()
    ]


def partly(rows: Sequence[Row], releases: Sequence[Released]) -> list[str]:
    """A sentence on each run of which only a part carries differential privacy, and that has no ε for it: such as one
    whose centres have noise and whose adapters have none."""
    found = []
    for one in releases:
        bare = {entry["kind"] for entry in one.entries or () if entry["bare"]}
        if one.differential and bare & _CONTENT:
            fields = listing([entry["field"] for entry in one.entries or () if entry["differential"]])
            labels = f"{listing([rows[position].label for position in one.rows])}: " if len(rows) > 1 else ""
            found.append(
                f"{labels}Of all that sites sent, only {fields} left with noise for differential privacy. No ε covers "
                "the rest, and so none is stated for the run."
            )
    return found


def _differential(run: RunRecord) -> bool:
    return any(isinstance(_protection(entry), DifferentialPrivacy) for entry in run.disclosure or ())


def _protection(entry: Disclosure) -> Protection:
    """How a field was protected; None where that is not told, or told in a way that is not understood."""
    try:
        return protection_from_json(entry.protection)
    except ValueError:
        return None


def _entries(run: RunRecord) -> tuple[dict[str, Any], ...] | None:
    if run.disclosure is None:
        return None
    return tuple(
        {
            "verb": entry.verb,
            "field": entry.field,
            "kind": entry.kind,
            "what": entry.what or entry.kind,
            "note": entry.note,
            "protection": protection.words if (protection := _protection(entry)) else "none",
            "bare": protection is None,
            "differential": isinstance(protection, DifferentialPrivacy),
            "messages": count(entry.messages),
            "bytes": size(entry.bytes),
            "expected": entry.expected,
        }
        for entry in run.disclosure
    )

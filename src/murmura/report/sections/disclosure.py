"""The disclosure table: what left each site, and what may be said about its protection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from murmura.federation.wire.releases import DifferentialPrivacy
from murmura.report.content import Block, Entry, Heading, Paragraph, ReportSection, Table, entry, note
from murmura.report.protection import protection
from murmura.report.table import Row, attacked, runs_of
from murmura.runs.schema import Disclosure
from murmura.units import count, listing, size

_CONTENT = frozenset({"weights", "embeddings", "text"})
"""Kinds of release from which records can be read."""
_LEAD = (
    "Everything that a site sent in any message, over the whole run, and how it was protected. A field that is not "
    "listed here was not sent: a method must declare what it releases."
)
_MADE_KNOWN = (
    "Before the run, whoever leads the federation was told of each site, its name, its public keys, and "
    "exactly how many records it takes part with (public.json), by which it was made known. No ε covers that number."
)
_COLUMNS = ("Field", "What it is", "In reply to", "Protection", "Messages", "Bytes")


@dataclass(slots=True)
class _Released:
    """What left the sites in one or several methods alike: its table, None where none was recorded, the methods' rows
    and, where a method's runs differ from one another, their names."""

    entries: tuple[Disclosure, ...] | None
    rows: list[Row] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)

    @property
    def noisy(self) -> list[str]:
        """The fields that carry differential privacy."""
        return [one.field for one in self.entries or () if isinstance(protection(one), DifferentialPrivacy)]

    @property
    def labels(self) -> list[str]:
        return [row.label for row in self.rows]


def disclosure(rows: Sequence[Row]) -> ReportSection:
    """What left the sites; methods that released the same are put together."""
    blocks: list[Block] = []
    every = _released(rows)
    for one in every:
        if len(rows) > 1 or one.runs:
            blocks.append(Heading([*(row.name for row in one.rows), *map(Entry, one.runs)]))
        if one.entries is None:
            blocks.append(Paragraph("Not recorded: what left the sites cannot be known from here."))
        elif not one.entries:
            blocks.append(Paragraph("Nothing left any site."))
        else:
            blocks.append(Table(_COLUMNS, list(map(_row, one.entries)), text=range(4), stacked=True, css="releases"))
    if any(not run.simulated for run in runs_of(rows)):
        blocks.append(note(_MADE_KNOWN))
    for one in every:
        bare = {entry.kind for entry in one.entries or () if protection(entry) is None}
        if one.noisy and bare & _CONTENT:
            labels = f"{listing(one.labels)}: " if len(rows) > 1 else ""
            blocks.append(
                note(
                    f"{labels}Of all that sites sent, only {listing(one.noisy)} left with noise for differential "
                    "privacy. No ε covers the rest, and so none is stated for the run."
                )
            )
    unprotected = [
        row for row in rows if any(row in one.rows and one.entries is not None and not one.noisy for one in every)
    ]
    if unprotected:
        whose = listing([row.label for row in unprotected])
        what = f"{whose}: nothing" if any(one.noisy for one in every) else "Nothing"
        measured = "; the leakage figures measure one attack and are no bound" if attacked(rows) else ""
        blocks.append(
            note(
                f"{what} here was protected by differential privacy: no calibrated noise was added. Training on few "
                "examples, or sending only an adapter, is not differential privacy, and neither is a mix of adapters. "
                f"No ε (the bound that differential privacy gives) is stated, since none is guaranteed{measured}."
            )
        )
    return ReportSection("What left the sites", _LEAD, blocks)


def _released(rows: Sequence[Row]) -> list[_Released]:
    found: dict[str, _Released] = {}
    for row in rows:
        alike = len({repr(run.disclosure) for run in row.runs}) == 1
        for run in row.runs[:1] if alike else row.runs:
            key = f"{'' if alike else row.position} {run.disclosure!r}"
            one = found.setdefault(key, _Released(run.disclosure))
            one.rows += [] if row in one.rows else [row]
            one.runs += [] if alike else [run.name]
    return list(found.values())


def _row(one: Disclosure) -> list[Entry | str]:
    known, expected = protection(one), "expected" if one.expected else ""
    words = Entry(known.words, badge="plain") if known else Entry("none", badge="warn")
    what = entry(one.what or one.kind, one.note)
    return [one.field, what, one.verb, words, entry(count(one.messages), expected), entry(size(one.bytes), expected)]

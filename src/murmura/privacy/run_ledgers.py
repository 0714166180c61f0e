"""The ledgers that a run has left in its folder, and what it has noted of those of other runs.

A run whose options were chosen by what others came to (``run.chosen_by``) stands on what those have spent, too. It
notes that when it begins, and each time that it is resumed: whatever becomes of their folders, it counts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from murmura.errors import CheckpointError, MurmuraError, PrivacyError, explaining
from murmura.privacy.journal import Anchor, Journal
from murmura.privacy.ledger import PrivacyLedger
from murmura.runs import files
from murmura.runs.names import (
    ANCHOR,
    CAVEATS,
    CHECKPOINTS,
    CHOSEN_BY,
    CONFIG,
    FEDERATION,
    ID,
    OWNER,
    PRIVACY_LEDGER,
    PRIVATE,
    RECORDS,
    SITE_ANCHOR,
    SITE_JOURNAL,
    SITE_RECORDS,
    SITES,
    SUMMARY,
    WRITTEN,
    site_of,
)
from murmura.runs.schema import DEPLOYED, SiteReport

_DAMAGED = (AttributeError, KeyError, TypeError)  # of a file that holds something else than a run writes
EVERY_SITE = "every site"
"""Stands for the sites of a run that are elsewhere: the server's ledger holds for each, whatever records it has."""
_NOTED = "journal of the runs that options were chosen by"


class NoLedgersError(CheckpointError):
    """There is no run, or nothing here of what it has spent."""


@dataclass(frozen=True)
class RunLedgers:
    """The ledgers of one run, where they lie on this machine.

    Attributes:
        name: the folder, as it was given.
        records: by site, the digest of the records that it joined with; None where the run did not come to note it.
            There is no site where all of them are elsewhere.
        sites: ledgers of the sites that have one, for their records.
        whole: the server's ledger, which is for whole sites; None where the run does not protect them.
        damaged: by site why its ledger cannot be believed.
        elsewhere: whether it protects whole sites, and nothing here says which records they have.
        caveats: what stands beside its own ε, in sentences.
        id: by which it is known wherever it lies; None where its folder has none.
        at: when it was looked at, in ISO 8601, UTC.
        finished: it had finished by then, and so does not go on.
        promises: its method was given an ε to keep within, whether or not a ledger holds what it spends.
        chosen_by: what it has noted of the runs by which its options were chosen, and of those that these name.
    """

    name: str
    records: Mapping[str, str | None]
    sites: Mapping[str, PrivacyLedger]
    whole: PrivacyLedger | None
    damaged: Mapping[str, str] = field(default_factory=dict)
    elsewhere: bool = False
    caveats: tuple[str, ...] = ()
    id: str | None = None
    at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="microseconds"))
    finished: bool = False
    promises: bool = False
    chosen_by: tuple[RunLedgers, ...] = ()

    @classmethod
    def unknown(cls, name: str, why: str, id: str | None = None) -> RunLedgers:
        """Of a run of which it is not known what it has spent: no ε that counts it can be told."""
        return cls(name, {EVERY_SITE: None}, {}, None, {EVERY_SITE: why}, id=id)

    @property
    def is_unknown(self) -> bool:
        """What it has spent is not known."""
        return EVERY_SITE in self.damaged

    @property
    def is_empty(self) -> bool:
        """It has asked nobody, and so has spent nothing."""
        return not (self.records or self.sites or self.whole or self.damaged)

    @property
    def as_far_as(self) -> dict[str, int]:
        """How many lines each ledger has."""
        every = {**self.sites, EVERY_SITE: self.whole}
        return {party: len(ledger.journal.lines) for party, ledger in every.items() if ledger}

    def to_json(self) -> dict[str, Any]:
        """All but what it has noted itself."""
        return {
            "name": self.name,
            "records": dict(self.records),
            "sites": {site: ledger.journal.lines for site, ledger in self.sites.items()},
            "whole": self.whole and self.whole.journal.lines,
            "damaged": dict(self.damaged),
            "elsewhere": self.elsewhere,
            "caveats": list(self.caveats),
            "id": self.id,
            "at": self.at,
            "finished": self.finished,
            "promises": self.promises,
        }

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> RunLedgers:
        """The inverse of ``to_json``.

        Raises:
            PrivacyError: a ledger is none.
        """
        sites = {site: PrivacyLedger.of(Journal.of(lines)) for site, lines in told["sites"].items()}
        whole = told["whole"] and PrivacyLedger.of(Journal.of(told["whole"]))
        return cls(**{**told, "sites": sites, "whole": whole, "caveats": tuple(told["caveats"])})


def read(folder: Path) -> RunLedgers:
    """The ledgers in a run folder; those of a run that is under way or was abandoned too, which has no other results.

    Raises:
        NoLedgersError: this is not a run folder, or its ledgers are gone.
        CheckpointError: it may not be read, or what it says of its sites is damaged.
        PrivacyError: the server's ledger is damaged or has lost lines; of sites see ``damaged``.
    """
    with explaining("the ledgers of this run cannot be read", folder):
        return _read(folder)


def found(folder: Path) -> RunLedgers:
    """What can be known of a run by now."""
    try:
        return read(folder)
    except MurmuraError as error:
        return RunLedgers.unknown(str(folder), str(error).rstrip("."), id_of(folder))


def id_of(folder: Path) -> str | None:
    """By which a run is known wherever it lies; None where its folder has none that can be read."""
    with suppress(CheckpointError):
        return files.text(folder / ID)
    return None


def note(folder: Path, runs: Sequence[RunLedgers]) -> None:
    """Have a run keep what the runs have spent by which its options were chosen.

    Raises:
        CheckpointError: it cannot be written, so that the run may not go on.
        PrivacyError: what it has noted before is damaged or was edited.
    """
    if runs:
        journal = Journal(folder / CHOSEN_BY, _NOTED)
        for run in runs:
            line = run.to_json()
            its = [one for one in journal.lines if one["name"] == run.name or (run.id and one["id"] == run.id)]
            same = [one for one in its if {**one, "at": ""} == {**line, "at": ""}]
            if any(one["at"] >= run.at for one in same) or (same and same[-1] is its[-1] and not run.is_unknown):
                continue
            # Clocks are set back, and what is noted later was not read before.
            journal.append(line | {"at": max([run.at, *(one["at"] for one in its)])})


def noted(folder: Path) -> tuple[RunLedgers, ...]:
    """What a run has noted of others, of each perhaps several times.

    Raises:
        PrivacyError: it is damaged or was edited.
        CheckpointError: it cannot be read.
    """
    with explaining("what chose the options of this run cannot be read", folder, "", *_DAMAGED):
        return tuple(RunLedgers.from_json(line) for line in Journal.peek(folder / CHOSEN_BY, _NOTED).lines)


def named(folder: Path) -> list[str]:
    """The runs that the experiment of a run says its options were chosen by.

    Raises:
        CheckpointError: that cannot be read.
    """
    with explaining("what chose the options of this run cannot be read", folder, "", *_DAMAGED):
        return [str(Path(one)) for one in _options(folder, "run").get("chosen_by", [])]


def chosen_by(folder: Path) -> tuple[RunLedgers, ...]:
    """What a run has noted of others; and that it should have, of those that its experiment names besides.

    Raises:
        PrivacyError, CheckpointError: as of ``noted`` and ``named``.
    """
    told, names = noted(folder), named(folder)
    missing = set(names) - {one.name for one in told}
    return (
        *told,
        *(RunLedgers.unknown(one, f"{folder} has not noted what {one} had spent") for one in sorted(missing)),
    )


def _options(folder: Path, table: str) -> Mapping[str, Any]:
    """Of a table of the experiment; empty where there is no file."""
    found: Mapping[str, Any] = files.toml(files.text(folder / CONFIG) or "", folder / CONFIG).get(table, {})
    if not isinstance(found, Mapping):
        raise CheckpointError(f"[{table}] is no table", where=str(folder / CONFIG), fix="Restore it from a copy.")
    return found


def _read(folder: Path) -> RunLedgers:
    if not (folder / CONFIG).is_file():
        fix = "Give a folder that `murmura run` wrote."
        raise NoLedgersError("this is not a run folder", where=str(folder), fix=fix)
    places = sorted(
        path for path in (folder / PRIVATE).glob("*") if path.is_dir() and path.name not in (OWNER, FEDERATION)
    )
    records, ledgers, damaged = {}, {}, {}
    for place in places:
        site = site_of(place.name)
        try:
            told = Journal.peek(place / SITE_JOURNAL, f"journal of site {site}")
            own = Journal.peek(place / PRIVACY_LEDGER)
            records[site] = next((line[SITE_RECORDS] for line in told.lines if SITE_RECORDS in line), None)
            for anchor in (line[SITE_ANCHOR] for line in told.lines if SITE_ANCHOR in line):
                own.check(anchor)
            if own.lines:
                ledgers[site] = PrivacyLedger.of(own)
        except PrivacyError as error:
            records.setdefault(site, None)
            damaged[site] = str(error)
    anchor = _anchor(folder / ANCHOR) if (folder / ANCHOR).exists() else None  # before what it is an anchor of grows
    server = Journal.peek(folder / CHECKPOINTS / PRIVACY_LEDGER)
    if anchor is not None:
        server.check(anchor)
    simulated = _options(folder, "run").get("engine") != DEPLOYED
    spent = bool(ledgers or server.lines)  # before that, nothing was
    for site in _taken_part(folder) - records.keys() if spent and simulated else ():
        records[site], damaged[site] = None, f"what site {site} kept of this run is gone, and its ledger with it"
    untouched = simulated and _has_asked_nobody(folder)
    if not places and not damaged and (simulated or not server.lines) and not untouched:
        fix = f"Its ledgers are in {PRIVATE}/ and {CHECKPOINTS}/, which are not published, or with sites elsewhere."
        raise NoLedgersError("nothing is left of what this run spent", where=str(folder), fix=fix)
    whole = PrivacyLedger.of(server) if server.lines else None
    said = Journal.peek(folder / CHECKPOINTS / f"{CAVEATS}.journal", "journal of caveats")
    return RunLedgers(
        str(folder),
        records,
        ledgers,
        whole,
        damaged,
        elsewhere=whole is not None and not simulated,
        caveats=tuple(str(line.get("said")) for line in said.lines if "of" not in line),
        id=id_of(folder),
        finished=(folder / SUMMARY).exists() and not any((folder / CHECKPOINTS).glob("round-*")),
        promises=bool(_options(folder, "method").get("epsilon")),
        chosen_by=chosen_by(folder),
    )


def _has_asked_nobody(folder: Path) -> bool:
    """Whether a run has ended before it had anything of any site: what it keeps for itself is there, and nothing that
    it writes before its first round."""
    left = (name for name in WRITTEN if name not in (CONFIG, CHECKPOINTS, PRIVATE))
    return (folder / PRIVATE).is_dir() and not any((folder / name).exists() for name in left)


def _taken_part(folder: Path) -> set[str]:
    """The sites with records that a run used, by what its owner can read; where that is gone, all that it tells of."""
    place = folder / RECORDS
    with explaining("what this run used of its sites' records cannot be read", place, "", *_DAMAGED):
        if place.exists():
            told = (line["sites"] for _, line in files.lines(place) if "sites" in line)
            return {one["site"] for sites in told for one in sites if one["used"]}
        every = files.rows(folder / SITES, SiteReport) or ()
        return {one.site for one in every if one.used != 0}


def _anchor(path: Path) -> Anchor:
    try:
        found: Anchor = json.loads(path.read_text(encoding="utf-8").splitlines()[1])[SITE_ANCHOR]
        _ = found["lines"], found["head"]
    except (ValueError, IndexError, KeyError, TypeError, RecursionError) as error:
        fix = "Restore it from a copy."
        raise PrivacyError("how far the privacy ledger had come is damaged", where=str(path), fix=fix) from error
    return found

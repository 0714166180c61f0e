"""What several runs over the same records have spent together, by the ledgers that they have left.

An ε is that of one run. Whoever sees the results of several runs over the same records has seen them all, whether they
were seeds of one experiment, attempts at its hyperparameters, or different methods; the ε of all of them follows from
the composition of everything that their ledgers hold. That is less than the sum of their ε, and more than the largest.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from murmura.errors import CheckpointError, PrivacyError, explaining
from murmura.privacy.accounting import Epsilon
from murmura.privacy.composition import PrivateSelection, ReleasedSteps, adjacency, at_most, composed
from murmura.privacy.journal import Anchor, Journal
from murmura.privacy.ledger import PrivacyLedger
from murmura.privacy.parts import Unit
from murmura.runs import files
from murmura.runs.names import (
    ANCHOR,
    CAVEATS,
    CHECKPOINTS,
    CONFIG,
    FEDERATION,
    OWNER,
    PRIVACY_LEDGER,
    PRIVATE,
    RECORDS,
    SITE_ANCHOR,
    SITE_JOURNAL,
    SITE_RECORDS,
    site_of,
)
from murmura.runs.schema import SIMULATIONS

_DAMAGED = (AttributeError, KeyError, TypeError)  # of a file that holds something else than a run writes
EVERY_SITE = "every site"
"""Stands for the sites of a run that are elsewhere: the server's ledger holds for each, whatever records it has."""


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
        caveats: what stands beside its ε, in sentences.
    """

    name: str
    records: Mapping[str, str | None]
    sites: Mapping[str, PrivacyLedger]
    whole: PrivacyLedger | None
    damaged: Mapping[str, str] = field(default_factory=dict)
    elsewhere: bool = False
    caveats: tuple[str, ...] = ()


def read(folder: Path) -> RunLedgers:
    """The ledgers in a run folder; those of a run that is under way or was abandoned too, which has no other results.

    Raises:
        NoLedgersError: this is not a run folder, or its ledgers are gone.
        CheckpointError: it may not be read, or what it says of its sites is damaged.
        PrivacyError: the server's ledger is damaged or has lost lines; of sites see ``damaged``.
    """
    with explaining("the ledgers of this run cannot be read", folder):
        return _read(folder)


def chosen_by(folder: Path) -> list[Path]:
    """The runs that a run says its options were chosen by.

    Raises:
        CheckpointError: it cannot be read.
    """
    with explaining("what chose the options of this run cannot be read", folder, "", *_DAMAGED):
        return [Path(one) for one in _options(folder).get("chosen_by", [])]


def _options(folder: Path) -> Mapping[str, Any]:
    """Of the table ``[run]``; empty where there is no file."""
    found: Mapping[str, Any] = files.toml(files.text(folder / CONFIG) or "", folder / CONFIG).get("run", {})
    if not isinstance(found, Mapping):
        raise CheckpointError("[run] is no table", where=str(folder / CONFIG), fix="Restore it from a copy.")
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
    server = Journal.peek(folder / CHECKPOINTS / PRIVACY_LEDGER)
    if (folder / ANCHOR).exists():
        server.check(_anchor(folder / ANCHOR))
    simulated = _options(folder).get("engine", SIMULATIONS[0]) in SIMULATIONS
    spent = bool(ledgers or server.lines)  # before that, nothing was
    for site in _taken_part(folder) - records.keys() if spent and simulated else ():
        records[site], damaged[site] = None, f"what site {site} kept of this run is gone, and its ledger with it"
    if not places and not damaged and (simulated or not server.lines):
        fix = f"Its ledgers are in {PRIVATE}/ and {CHECKPOINTS}/, which are not published, or with sites elsewhere."
        raise NoLedgersError("nothing is left of what this run spent", where=str(folder), fix=fix)
    whole = PrivacyLedger.of(server) if server.lines else None
    said = Journal.peek(folder / CHECKPOINTS / f"{CAVEATS}.journal", "journal of caveats")
    caveats = tuple(str(line.get("said")) for line in said.lines)
    return RunLedgers(str(folder), records, ledgers, whole, damaged, whole is not None and not simulated, caveats)


def _taken_part(folder: Path) -> set[str]:
    """The sites with records that a run used, by what its owner can read; none where that is gone."""
    with explaining("what this run used of its sites' records cannot be read", folder / RECORDS, "", *_DAMAGED):
        told = (line["sites"] for _, line in files.lines(folder / RECORDS) if "sites" in line)
        return {one["site"] for sites in told for one in sites if one["used"]}


def _anchor(path: Path) -> Anchor:
    """
    Raises:
        PrivacyError: it is not what a finished run has left there.
    """
    try:
        found: Anchor = json.loads(path.read_text(encoding="utf-8").splitlines()[1])[SITE_ANCHOR]
    except (ValueError, IndexError, KeyError, TypeError, RecursionError) as error:
        fix = "Restore it from a copy."
        raise PrivacyError("how far the privacy ledger had come is damaged", where=str(path), fix=fix) from error
    return found


@dataclass(frozen=True)
class Total:
    """What has been spent of one set of records.

    Attributes:
        unit: what is protected: a record, or the site with all of them.
        members: who held the records, as (run, site), in every run that had them; ``EVERY_SITE`` where it may have.
        runs: how many runs that is.
        epsilon: of all those runs together; None where it is refused.
        refused: why there is none.
        remarks: what was assumed, and what stands beside the ε of each run.
    """

    unit: Unit
    members: tuple[tuple[str, str], ...]
    epsilon: Epsilon | None
    refused: str = ""
    remarks: tuple[str, ...] = ()

    @property
    def runs(self) -> int:
        return len({run for run, _ in self.members})


def totals(
    runs: Sequence[RunLedgers], delta: float | None = None, chosen: PrivateSelection | None = None, size: int = 1
) -> list[Total]:
    """What the runs have spent, for each set of records that sites joined with; the same digest is the same records.

    Records of different digests may still overlap: ``anywhere`` bounds what that costs. A run whose sites are elsewhere
    counts for all records, since any of them may have been at one of its sites.

    Args:
        delta: δ of every ε; the smallest of the runs' own if None.
        chosen: how these runs, as one, were chosen among others like them whose ledgers are not given.
        size: of so many units together: records of one site, or sites.

    Raises:
        PrivacyError: none of the runs has a ledger, δ is not in (0, 1), or a group has no member.
    """
    ledgers = [ledger for run in runs for ledger in (*run.sites.values(), run.whole) if ledger is not None]
    if not ledgers and not any(run.damaged for run in runs):
        names = ", ".join(run.name for run in runs)
        raise PrivacyError("no privacy was promised, and so none is accounted for", where=names)
    if delta is None:
        delta = min((ledger.plan.delta for ledger in ledgers), default=1e-5)
    held: dict[str, list[tuple[RunLedgers, str]]] = {}
    for run in runs:
        for site, digest in run.records.items():
            held.setdefault(digest or _like(site, runs), []).append((run, site))
    elsewhere = [(run, EVERY_SITE) for run in runs if run.elsewhere]
    found = []
    for known in list(held.values()) or [[]]:
        members = known + elsewhere
        single = any(run.sites or (run.damaged and run.whole is None) for run, _ in members)
        units: list[Unit] = ["record"] if single else []
        units += ["site"] if any(run.whole for run, _ in members) else []
        found += [_total(unit, members, delta, chosen, size) for unit in units or ["record"]]
    return _merged(found)


def anywhere(
    runs: Sequence[RunLedgers],
    unit: Unit,
    delta: float | None = None,
    size: int = 1,
    chosen: PrivateSelection | None = None,
) -> Epsilon | None:
    """ε of a record that may have been at any one site of each run, or of any one site of each: where sites' records
    differ from run to run, as they do when a partition follows a seed or a site has more records than before. None
    where a run has no bound for such a unit.

    Args:
        delta, size, chosen: as of ``totals``.

    Raises:
        PrivacyError: δ is not in (0, 1).
    """
    releases = []
    for run in runs:
        ledgers = list(run.sites.values()) if unit == "record" else []
        ledgers += [run.whole] if run.whole is not None and not ledgers else []
        if run.damaged or not ledgers:
            return None
        try:
            releases.append([ReleasedSteps.of(ledger, unit) for ledger in ledgers])
        except PrivacyError:  # it departed from its plan
            return None
    plans = [release.plan for own in releases for release in own]
    if delta is None:
        delta = min(plan.delta for plan in plans)
    return at_most(releases, delta, adjacency([plan for plan in plans if plan.unit == unit]), size, chosen)


def together(runs: Sequence[RunLedgers], unit: Unit, delta: float | None = None) -> Epsilon:
    """The ε of the unit that is protected least by all these runs together.

    Raises:
        PrivacyError: there is none: a ledger is missing or damaged, or a run departed from its plan.
    """
    parts = [one for one in totals(runs, delta) if one.unit == unit]
    refused = next((one.refused for one in parts if one.epsilon is None), "" if parts else "no run protects it")
    if refused:
        raise PrivacyError(f"no ε of all runs together: {refused}")
    known = [one.epsilon for one in parts if one.epsilon is not None]
    if any(one.runs < len(runs) for one in parts):
        bound = anywhere(runs, unit, delta)
        if bound is None:
            raise PrivacyError("no ε of all runs together: records of different digests may overlap, and one has none")
        known.append(bound)
    return max(known, key=lambda one: one.value)


def _like(site: str, runs: Sequence[RunLedgers]) -> str:
    """Records that a run did not come to note are taken for those of the site of the same name in the other runs."""
    known = (run.records.get(site) for run in runs)
    return next((digest for digest in known if digest), f"unknown records of site {site}")


def _total(
    unit: Unit, members: list[tuple[RunLedgers, str]], delta: float, chosen: PrivateSelection | None, size: int
) -> Total:
    remarks, releases = [], []
    who = tuple((run.name, site) for run, site in members)
    counted, copies = set[str](), Counter(run.name for run, _ in members)
    for run, site in members:
        remarks += [] if run.name in counted else [f"{run.name}: {said}" for said in run.caveats]
        try:
            if site in run.damaged:
                raise PrivacyError(run.damaged[site])
            if run.elsewhere:
                told = f"the sites of {run.name} are elsewhere: counted as if one of them had these records"
                remarks += [told] * (len(copies) > 1)
            elif run.records[site] is None:
                remarks.append(f"{run.name} stopped before it noted the records of site {site}: taken for the same")
            own = [run.sites[site]] if site in run.sites and unit == "record" else []
            shared = [run.whole] if run.whole is not None and run.name not in counted else []
            counted.add(run.name)
            if not own and run.whole is None:
                _require_unused(unit, run, site)
            releases += [ReleasedSteps.of(ledger, unit) for ledger in own]
            releases += [ReleasedSteps.of(ledger, unit, copies[run.name]) for ledger in shared]
        except PrivacyError as error:
            return Total(unit, who, None, error.what)
    if any(release.plan.unit != unit or release.copies > 1 for release in releases):
        remarks.append("runs that protect whole sites are counted without their sampling")
    shared_by = adjacency([release.plan for release in releases if release.plan.unit == unit])
    return Total(unit, who, composed(releases, delta, shared_by, chosen, size), remarks=tuple(remarks))


def _require_unused(unit: Unit, run: RunLedgers, site: str) -> None:
    """Nothing protects what this run did with the site's records: unless it did nothing.

    Raises:
        PrivacyError: it may have.
    """
    if unit == "site" and run.sites:
        raise PrivacyError(f"{run.name} protects single records, and no whole site")
    if not run.sites:
        raise PrivacyError(f"{run.name} used these records, and promised no privacy")
    raise PrivacyError(f"{run.name} has no ledger of site {site}")


def _merged(found: list[Total]) -> list[Total]:
    """Sites of one run that share a total are one line."""
    lines: dict[object, Total] = {}
    for one in found:
        key = (one.unit, one.epsilon, one.refused, frozenset(run for run, _ in one.members))
        before = lines.get(key)
        if before is not None:
            remarks = tuple(dict.fromkeys(before.remarks + one.remarks))
            members = tuple(dict.fromkeys(before.members + one.members))
            one = replace(before, members=members, remarks=remarks)
        lines[key] = one
    return list(lines.values())

"""What several runs over the same records have spent together, by the ledgers that they have left.

An ε is that of one run. Whoever sees the results of several runs over the same records has seen them all, whether they
were seeds of one experiment, attempts at its hyperparameters, or different methods; the ε of all of them follows from
the composition of everything that their ledgers hold. That is less than the sum of their ε, and more than the largest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from os.path import realpath

from murmura.errors import PrivacyError
from murmura.privacy.accounting import Epsilon
from murmura.privacy.composition import PrivateSelection, ReleasedSteps, adjacency, at_most, composed
from murmura.privacy.ledger import PrivacyLedger
from murmura.privacy.parts import Unit
from murmura.privacy.run_ledgers import EVERY_SITE, RunLedgers


def every(runs: Sequence[RunLedgers]) -> list[RunLedgers]:
    """These runs and those by which their options were chosen: each once, with all that is known of it, and without
    what it has noted of others. One that has ended before it asked anybody is left out."""
    states: dict[object, list[RunLedgers]] = {}
    noted = sorted((one for run in runs for one in run.chosen_by), key=lambda one: (one.at, one.is_unknown))
    given = sorted(runs, key=lambda one: one.is_unknown)  # read now, and so after all that was noted
    for one in noted:
        states.setdefault(one.id or object(), []).append(one)  # without an id, any folder may hold it
    for one in given:
        states.setdefault(one.id or realpath(one.name), []).append(one)
    names, found = set[str](), []
    for one in (_of_states(known) for known in states.values()):
        if not one.is_empty:
            name = one.name
            while realpath(name) in names:
                name += ", as it was before"  # another run lay there
            names.add(realpath(name))
            found.append(replace(one, name=name, chosen_by=()))
    return found


def _of_states(states: Sequence[RunLedgers]) -> RunLedgers:
    """What is known of a run that was looked at several times: of each ledger the longest state, as none is ever
    rewound. Where it could not be read it may have gone on, unless it had finished there, or was read there later.

    Args:
        states: in time.
    """
    for place, one in enumerate(states):
        there = [other for other in states if not other.is_unknown and realpath(other.name) == realpath(one.name)]
        excused = any(other.finished for other in there if other in states[:place])
        if one.is_unknown and not excused and not any(other in states[place:] for other in there):
            return one
    return reduce(_joined, [one for one in states if not one.is_unknown])


def _joined(one: RunLedgers, other: RunLedgers) -> RunLedgers:
    """Two states of one run."""
    records = {**one.records, **{site: digest for site, digest in other.records.items() if digest}}
    records |= {site: None for site in other.records.keys() - records.keys()}
    damaged, sites, whole = {**one.damaged, **other.damaged}, dict[str, PrivacyLedger](), one.whole or other.whole
    try:
        if one.whole and other.whole:
            whole = _later(one.whole, other.whole)
        for site in {**one.sites, **other.sites}:
            had = [run.sites[site] for run in (one, other) if site in run.sites]
            sites[site] = had[0] if len(had) == 1 else _later(*had)
    except PrivacyError as error:
        records, damaged = {EVERY_SITE: None}, {EVERY_SITE: error.what}  # whatever else is known of it
    caveats = tuple(dict.fromkeys((*one.caveats, *other.caveats)))
    elsewhere = one.elsewhere or other.elsewhere
    return replace(
        other, records=records, sites=sites, whole=whole, damaged=damaged, elsewhere=elsewhere, caveats=caveats
    )


def _later(one: PrivacyLedger, other: PrivacyLedger) -> PrivacyLedger:
    less, more = sorted((one, other), key=lambda ledger: len(ledger.journal.lines))
    if more.journal.lines[: len(less.journal.lines)] != less.journal.lines:
        raise PrivacyError("of one run two ledgers are known, of which neither goes on where the other ends")
    return more


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

    Runs by which options of these were chosen count too (``every``). Records of different digests may still overlap:
    ``anywhere`` bounds what that costs. A run whose sites are elsewhere counts for all records, since any of them may
    have been at one of its sites.

    Args:
        delta: δ of every ε; the smallest of the runs' own if None.
        chosen: how these runs, as one, were chosen among others like them whose ledgers are not given.
        size: of so many units together: records of one site, or sites.

    Raises:
        PrivacyError: none of the runs has a ledger, δ is not in (0, 1), or a group has no member.
    """
    names = ", ".join(run.name for run in runs)
    runs = every(runs)
    ledgers = [ledger for run in runs for ledger in (*run.sites.values(), run.whole) if ledger is not None]
    if not ledgers and not any(run.damaged for run in runs):
        if any(run.promises for run in runs):
            what = "no ledger was kept: DP-Prompt needs none (add up the ε of its runs); others took no private step"
            raise PrivacyError(what, where=names)
        raise PrivacyError("no privacy was promised, and so none is accounted for", where=names)
    if delta is None:
        delta = min((ledger.plan.delta for ledger in ledgers), default=1e-5)
    held: dict[str, list[tuple[RunLedgers, str]]] = {}
    for run in runs:
        for site, digest in run.records.items() if not run.is_unknown else ():
            held.setdefault(digest or _like(site, runs), []).append((run, site))
    elsewhere = [(run, EVERY_SITE) for run in runs if run.elsewhere or run.is_unknown]
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
    for run in every(runs):
        copies = max(Counter(filter(None, run.records.values())).values(), default=1)
        if run.damaged or not (run.whole or (run.sites and unit == "record")):
            return None
        try:
            if unit == "record":
                releases.append([ReleasedSteps.of(ledger, unit) for ledger in run.sites.values()])
            if run.whole is not None:
                releases.append([ReleasedSteps.of(run.whole, unit, copies)])
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
    runs = every(runs)
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
    """Nothing protects what this run did with the site's records: unless it did nothing."""
    if unit == "site" and run.sites:
        raise PrivacyError(f"{run.name} protects single records, and no whole site")
    if not run.sites:
        by_itself = "kept no ledger: DP-Prompt needs none, and its ε adds to that of the others"
        raise PrivacyError(f"{run.name} used these records, and {by_itself if run.promises else 'promised no privacy'}")
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

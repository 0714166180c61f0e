"""What a guarantee means beyond its one ε: the whole curve of the run's ledgers, and what it allows any attack."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from murmura.errors import CheckpointError, PrivacyError
from murmura.privacy import odometer
from murmura.privacy.composition import Release, at_most, undominated
from murmura.privacy.curve import Curve
from murmura.privacy.standing import told
from murmura.report.table import Row
from murmura.runs.record import RunRecord
from murmura.units import bound

_MOST = 32  # sites with other plans, of which each takes a second


_ADJACENCIES = {
    "zero-out": "in “zero-out” the contribution of one is blanked while its place remains, so that how many there are "
    "is no secret",
    "replace-one": "in “replace-one” one is exchanged for any other",
}
_ACCOUNTANTS = {
    "rdp": "“rdp” by Rényi divergences",
    "pld": "“pld” by distributions of the privacy loss, which is tighter",
    "exact": "“exact” by a formula, where everybody is in every step",
}


@dataclass(frozen=True, slots=True)
class Promise:
    """The guarantee of one run of a row.

    Attributes:
        position: Of the row.
        label: Of the row.
        curve: That holds for all units.
        delta: δ of the run's ε.
        person: What it is worth for a person, where the run bounds how many records of one a site has.
    """

    position: int
    label: str
    curve: Curve
    delta: float
    person: str = ""

    @property
    def words(self) -> list[str]:
        """What it means, in sentences."""
        return [*self.curve.words(), *([self.person] if self.person else [])]


def terms(runs: Sequence[RunRecord]) -> list[str]:
    """What adjacency and accountant mean, in a sentence each, as far as these runs have them."""
    told = [run.last.privacy for run in runs]
    adjacencies = [what for word, what in _ADJACENCIES.items() if any(one.get("adjacency") == word for one in told)]
    known = [str(one.get("accountant") or "").lower() for one in told]
    accountants = [what for word, what in _ACCOUNTANTS.items() if any(one.startswith(word) for one in known)]
    return [
        *(
            [f"The adjacency is which two sets of data the bound compares: {'; '.join(adjacencies)}."]
            if adjacencies
            else []
        ),
        *([f"The accountant is how ε is added up over the steps: {'; '.join(accountants)}."] if accountants else []),
    ]


def promises_of(rows: Sequence[Row]) -> list[Promise]:
    """Of each row with an ε whose first run has its ledgers here; a folder that was published has none."""
    found = (_promise(position, row.label, row.runs[0]) for position, row in enumerate(rows))
    return [one for one in found if one is not None]


def _promise(position: int, label: str, run: RunRecord) -> Promise | None:
    """What holds for every unit: at one δ, or for a group, another site may be protected least than at the run's δ."""
    releases = _releases(run)
    if not 0 < len(releases) <= _MOST:
        return None
    plan, config = releases[0].plan, tomllib.loads(run.config)
    target = config.get("method", {}).get("epsilon") if plan.unit == "record" else None
    curve = Curve.worst([_curve(release) for release in releases])
    if target:  # exact ones would tell how many records a site has
        curve = replace(curve, table=tuple((delta, told(one, float(target))) for delta, one in curve.table))
    return Promise(position, label, curve, plan.delta, _of_a_person(run, config.get("data", {}), releases, target))


def _releases(run: RunRecord) -> list[Release]:
    """What the run's own ledgers say, of all who are protected."""
    promised = run.last.privacy
    if promised.get("epsilon") is None:
        return []
    try:
        left = odometer.read(run.folder)
        if left.damaged:
            return []  # of whoever is missing, nothing is known
        ledgers = [left.whole] if promised["unit"] == "site" else list(left.sites.values())
        return undominated(Release.of(ledger, promised["unit"]) for ledger in ledgers if ledger is not None)
    except (CheckpointError, PrivacyError, OSError):
        return []


def _of_a_person(run: RunRecord, data: dict[str, Any], releases: Sequence[Release], target: float | None) -> str:
    """The guarantee for all records of a person."""
    most = data.get("records_per_user")
    if releases[0].plan.unit != "record" or not isinstance(most, int):
        return ""
    of = "1 record" if most == 1 else f"{most} records"
    words = (
        f"A person has at most {of} at a site (data.records_per_user): for all of them together, at one site, ε is "
        f"{_together(tuple(releases), most, 1, target)} at the same δ."
    )
    at = run.exclusions.person_at if run.exclusions else None
    if at is not None and at > 1:
        words += (
            f" Some persons have records at several sites, {at} at most: for all of theirs, at all of these sites, it "
            f"is {_together(tuple(releases), most, at, target)}."
        )
    return words


@lru_cache(maxsize=64)
def _together(releases: tuple[Release, ...], most: int, sites: int, target: float | None) -> str:
    """ε of so many records at each of so many sites, which may be any of them."""
    plan = releases[0].plan
    found = at_most([releases] * sites, plan.delta, plan.adjacency, most).value
    return bound(told(found, float(target)) if target else found)


@lru_cache(maxsize=64)
def _curve(release: Release) -> Curve:
    return Curve.of(release.event(release.plan.adjacency), release.plan.adjacency)

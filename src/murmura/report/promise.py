"""What a guarantee means beyond its one ε: the whole curve of the run's ledger, and what it allows any attack."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from murmura.errors import CheckpointError, PrivacyError
from murmura.privacy import groups, odometer
from murmura.privacy.accounting import Epsilon
from murmura.privacy.curve import Curve
from murmura.privacy.odometer import Release
from murmura.report.table import Row
from murmura.runs.record import RunRecord
from murmura.units import bound


@dataclass(frozen=True, slots=True)
class Promise:
    """The guarantee of one run of a row.

    Attributes:
        position: Of the row.
        label: Of the row.
        curve: Of the unit that is protected least.
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


def promises_of(rows: Sequence[Row]) -> list[Promise]:
    """Of each row with an ε whose first run has its ledgers here; a folder that was published has none."""
    found = []
    for position, row in enumerate(rows):
        release = _release(row.runs[0])
        if release is not None:
            person = _of_a_person(row.runs[0], release)
            found.append(Promise(position, row.label, _curve(release), release.plan.delta, person))
    return found


def _release(run: RunRecord) -> Release | None:
    """What the run's own ledgers say of the unit that is protected least."""
    told = run.last.privacy
    if told.get("epsilon") is None:
        return None
    try:
        left = odometer.read(run.folder)
        ledgers = [left.whole] if told["unit"] == "site" else list(left.sites.values())
        known = [ledger for ledger in ledgers if ledger is not None]
        # The plan that the run tells of is the weakest site's; where noise is made for a target, it tells of none.
        alike = [ledger for ledger in known if ledger.plan.describe() == told["plan"]]
        weakest = max(alike or known, key=lambda ledger: ledger.epsilon().value, default=None)
        return None if weakest is None else Release.of(weakest, told["unit"])
    except (CheckpointError, PrivacyError, OSError):
        return None


def _of_a_person(run: RunRecord, release: Release) -> str:
    """The guarantee for all records of a person at one site."""
    most = tomllib.loads(run.config).get("data", {}).get("records_per_user")
    if release.plan.unit != "record" or not isinstance(most, int):
        return ""
    found = _group(release, most)
    of = "1 record" if most == 1 else f"{most} records"
    return (
        f"A person has at most {of} at a site (data.records_per_user): for all of them together, at one site, ε is "
        f"{bound(found.value)} at the same δ."
    )


@lru_cache(maxsize=64)
def _group(release: Release, size: int) -> Epsilon:
    return groups.epsilon(release.plan, size, release.steps, release.repeated)


@lru_cache(maxsize=64)
def _curve(release: Release) -> Curve:
    return Curve.of(release.event(release.plan.adjacency), release.plan.adjacency)

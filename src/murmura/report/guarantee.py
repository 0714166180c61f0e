"""What a guarantee means beyond its one ε: the whole curve of the run's ledgers, and what it allows any attack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from murmura.errors import CheckpointError, PrivacyError
from murmura.privacy import run_ledgers
from murmura.privacy.composition import ReleasedSteps, at_most, undominated
from murmura.privacy.curve import Curve
from murmura.privacy.reported import rounded, target_of
from murmura.privacy.standing import PrivacySpent, standing
from murmura.report.protection import added_by_server, hides_training, summed
from murmura.report.table import Row, runs_of
from murmura.runs.record import RunRecord
from murmura.runs.schema import DEPLOYED, Round
from murmura.units import bound, listing

_MOST = 32  # sites with other plans, of which each takes a second
_BOUNDLESS = 700  # an ε that bounds no attack, and whose exponential is hardly a float any more
_OF_ALL = (
    "Runs over the same records are seen together: below the ε of one run (the largest) stands that of all on which "
    "the row rests."
)
_ALONE = (
    "Each ε is of its own row alone: whoever also sees what the other rows made of the same records, with an ε or "
    "without, has seen more than it bounds. `murmura privacy spent RUN...` adds up what runs have spent."
)
_SECRET = (
    "ε counts on nobody knowing which sites a round asked, nor how many. So bytes and messages are expected "
    "values (the expected number of sites times what one sends), and time, memory and events are "
    "for the run's owner alone."
)
_SHARING = (
    "ε is that of sites that train each by itself. In this simulation several may have shared passes (run.slots), "
    "where one moves the others by rounding, which no margin covers."
)
OF_PERSONS = (
    "A person may have {most} records at a site (data.records_per_user), and ε is for one of them. For all together it "
    "is larger: `murmura privacy spent RUN... --group {most}` tells it where the ledgers of all runs that count are, "
    "and `murmura site show` at each site."
)
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
class RowGuarantee:
    """The guarantee of every run of a row.

    Attributes:
        row: Which.
        curve: That holds for all units.
        delta: δ of the runs' ε.
        person: What it is worth for a person, where runs bound how many records of one a site has.
    """

    row: Row
    curve: Curve
    delta: float
    person: str = ""

    @property
    def words(self) -> list[str]:
        """What it means, in sentences."""
        return [*self.curve.words(), *([self.person] if self.person else [])]


def scope(rows: Sequence[Row]) -> list[str]:
    """A sentence on each kind of ε in the table: for whom it holds, and with which δ; and one on what is not told since
    it counts on that."""
    found: dict[str, list[str]] = {}
    for row in rows:
        for one in (run.last.privacy for run in row.runs if run.last.privacy.get("epsilon") is not None):
            sentence = f"bounds what one {one['unit']} changes ({one['adjacency']}), but for δ = {one['delta']:g}"
            labels = found.setdefault(sentence, [])
            if row.label not in labels:
                labels.append(row.label)
    of = {sentence: f" of {listing(labels)}" if len(found) > 1 else "" for sentence, labels in found.items()}
    sentences = [f"ε{whose} {sentence}." for sentence, whose in of.items()]
    several = any(cell.together for row in rows for cell in row.cells.values())
    return [*sentences, *([_OF_ALL] if several else []), *limits(rows), *interrupted(rows)]


def limits(rows: Sequence[Row]) -> list[str]:
    """That no ε of the table is for all of its rows, nor for a person where none is told; and what the table does not
    tell since an ε counts on that."""
    sentences = [_ALONE] if len(rows) > 1 and any(row.cells["epsilon"].n for row in rows) else []
    hiding = [row.label for row in rows if any(run.hides_cohorts for run in row.runs)]
    sharing = [row.label for row in rows if any(map(_shared_passes, row.runs))]
    told = {_SECRET: hiding, _SHARING: sharing}
    for row in rows:
        if most := _untold_of_persons(row):
            told.setdefault(OF_PERSONS.format(most=most), []).append(row.label)
    return [*sentences, *(f"{listing(labels)}: {what}" for what, labels in told.items() if labels)]


def of_persons(rows: Sequence[Row]) -> list[str]:
    """A sentence on each ε of one record where persons may have several: what it is for all of a person's, or where
    that is told."""
    told: dict[str, list[str]] = {}
    for row in rows:
        most = persons_have(row.runs)
        known = [one.person for one in guarantees([row]) if one.person]
        for what in known or [OF_PERSONS.format(most=most)] * bool(most):
            told.setdefault(what, []).append(row.label)
    return [f"{listing(labels)}: {what}" if len(rows) > 1 else what for what, labels in told.items()]


def persons_have(runs: Sequence[RunRecord]) -> int:
    """How many records a person may have at a site, where there is an ε of one record; 0 elsewhere, and where it is
    one."""
    promised = any(run.last.privacy.get("epsilon") is not None for run in runs)
    most = runs[0].options.get("data", {}).get("records_per_user") if runs else None
    if not promised or runs[0].last.privacy.get("unit") != "record" or not isinstance(most, int) or most == 1:
        return 0
    return most


def _untold_of_persons(row: Row) -> int:
    """``persons_have`` where the ε of all of them together is not told."""
    return 0 if any(one.person for one in guarantees([row])) else persons_have(row.runs)


def _shared_passes(run: RunRecord) -> bool:
    """Whether a site's ε holds for sites that trained in common passes."""
    options = run.options.get("run", {})
    whole = run.options.get("model", {}).get("trainable") == "all"
    slots, engines = _ever(run, "slots", options.get("slots")), _ever(run, "engine", options.get("engine", "local"))
    alone = whole or slots == {1} or engines == {DEPLOYED}
    promised = run.last.privacy.get("epsilon") is not None and run.last.privacy["unit"] == "site"
    trained = run.disclosure is None or any(map(hides_training, run.disclosure))  # if it is not known, it may be
    return promised and trained and not alone


def _ever(run: RunRecord, option: str, last: Any) -> set[Any]:
    """An option of ``[run]``, as it was in any of a run's rounds."""
    changes = [one.changed for one in run.resumed]
    return {last, *(changed[key][0] for changed in changes if (key := f"run.{option}") in changed)}


def interrupted(rows: Sequence[Row]) -> list[str]:
    """A sentence on each unfinished run whose privacy ledgers, which are only on the machine where it ran, hold more
    than its last saved round."""
    sentences = []
    for run in runs_of(rows):
        if (found := unsaved(run)) is not None:
            what = ""
            if not run.last.privacy and found.epsilon is not None and found.delta is not None:  # else the row tells it
                what = f" at δ = {found.delta:g}, for one {found.unit},"
            sentences.append(
                f"{run.name} stopped after it had sent more than it saved: its figures are those of round "
                f"{run.last.number}, but {found.words}{what} {found.by}."
            )
    return sentences


def unsaved(run: RunRecord) -> PrivacySpent | None:
    """What an unfinished run has spent by its ledgers, where these hold more than its last saved round tells."""
    if run.finished or run.last.privacy.get("refused"):
        return None
    found = standing(run.folder, run.last.number, run.options["method"])
    told = run.last.privacy.get("epsilon") or 0.0
    more = found is not None and found.unsaved and (found.epsilon is None or found.epsilon > told)
    return found if more else None


def terms(runs: Sequence[RunRecord]) -> list[str]:
    """What adjacency and accountant mean, in a sentence each, as far as these runs have them."""
    every = [run.last.privacy for run in runs]
    known = [str(one.get("accountant") or "").lower() for one in every]
    adjacencies = [what for word, what in _ADJACENCIES.items() if any(one.get("adjacency") == word for one in every)]
    accountants = [what for word, what in _ACCOUNTANTS.items() if any(one.startswith(word) for one in known)]
    adjacency = f"The adjacency is which two sets of data the bound compares: {'; '.join(adjacencies)}."
    accountant = f"The accountant is how ε is added up over the steps: {'; '.join(accountants)}."
    return [adjacency] * bool(adjacencies) + [accountant] * bool(accountants)


def last_audited(run: RunRecord) -> Round | None:
    """The last round after which an audit with canaries has shown an ε; a run that stopped may have gone on since."""
    return next((one for one in reversed(run.rounds) if "audit_epsilon" in one.values), None)


def is_contradicted(run: RunRecord) -> bool:
    """Whether the last audit with canaries has shown more than the run itself guaranteed by then."""
    one = last_audited(run)
    epsilon = None if one is None else one.privacy.get("alone", one.privacy.get("epsilon"))
    return one is not None and epsilon is not None and one.values["audit_epsilon"] > epsilon


def trusted(runs: Sequence[RunRecord]) -> str:
    """What the server sees without noise since it adds that itself, as the end of a sentence; empty where sites add it.

    Against the server, and whoever breaks into it, no ε of such a run holds.
    """
    sent = [one for run in runs for one in run.disclosure or () if added_by_server(one)]
    if not sent:
        return ""
    return "the sum of what sites send without it" if all(map(summed, sent)) else "what each site sends without it"


def guarantees(rows: Sequence[Row]) -> list[RowGuarantee]:
    """Of each row whose runs all have an ε, and their ledgers here: a folder that was published has none. Nor is there
    one where other runs count too, by which options were chosen: it would be that of the run alone."""
    return [one for one in map(_guarantee, rows) if one is not None]


def _guarantee(row: Row) -> RowGuarantee | None:
    """What holds for every unit: at one δ, or for a group, another site may be protected least than at the run's δ."""
    every = [_releases(run) for run in row.runs]
    releases = undominated(release for own in every for release in own)
    if not all(every) or len(releases) > _MOST:
        return None
    plan, config = releases[0].plan, row.runs[0].options
    target = target_of(config.get("method", {}), plan.unit)
    curve = Curve.worst([_curve(release) for release in releases])
    if target:
        curve = _as_told(curve, target)
    return RowGuarantee(row, curve, plan.delta, _of_a_person(row.runs, config.get("data", {}), releases, target))


def _as_told(curve: Curve, target: float) -> Curve:
    """A curve of noise that was made for a target, with each ε of its table as it may be told, and nothing else: exact
    ones, and what they allow an attack, would tell how many records a site has."""
    table = tuple((delta, rounded(one, target)) for delta, one in curve.table)
    points = tuple((one, delta) for delta, one in table if one < _BOUNDLESS)
    return replace(curve, points=points, table=table)


def _releases(run: RunRecord) -> list[ReleasedSteps]:
    """What the run's own ledgers say, of all who are protected; nothing where others count too."""
    privacy = run.last.privacy
    if privacy.get("epsilon") is None or run.beside:
        return []
    try:
        left = run_ledgers.read(run.folder)
        if left.damaged or left.chosen_by:
            return []  # of whoever is missing, nothing is known
        ledgers = [left.whole] if privacy["unit"] == "site" else list(left.sites.values())
        return undominated(ReleasedSteps.of(ledger, privacy["unit"]) for ledger in ledgers if ledger is not None)
    except (CheckpointError, PrivacyError):
        return []


def _of_a_person(
    runs: Sequence[RunRecord], data: dict[str, Any], releases: Sequence[ReleasedSteps], target: float | None
) -> str:
    """The guarantee of any of the runs for all records of a person."""
    most = data.get("records_per_user")
    if releases[0].plan.unit != "record" or not isinstance(most, int):
        return ""
    of = "1 record" if most == 1 else f"{most} records"
    words = (
        f"A person has at most {of} at a site (data.records_per_user): for all of them together, at one site, ε is "
        f"{_together(tuple(releases), most, 1, target)} at the same δ."
    )
    at = max((run.exclusions.person_at or 1 for run in runs if run.exclusions), default=1)
    if at > 1:
        words += (
            f" Some persons have records at several sites, {at} at most: for all of theirs, at all of these sites, it "
            f"is {_together(tuple(releases), most, at, target)}."
        )
    return words


@lru_cache(maxsize=64)
def _together(releases: tuple[ReleasedSteps, ...], most: int, sites: int, target: float | None) -> str:
    """ε of so many records at each of so many sites, which may be any of them."""
    plan = releases[0].plan
    found = at_most([releases] * sites, plan.delta, plan.adjacency, most).value
    return bound(rounded(found, target))


@lru_cache(maxsize=64)
def _curve(release: ReleasedSteps) -> Curve:
    return Curve.of(release.event(release.plan.adjacency), release.plan.adjacency)

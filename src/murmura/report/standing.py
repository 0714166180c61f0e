"""What is told of a row of a report, or of an arm of a comparison: what leaks, what is guaranteed, what it cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from murmura.measure.figure import GUESSING
from murmura.report.attacks import few_attacked, own_adapters, unlike
from murmura.report.guarantee import trusted
from murmura.report.table import promises_privacy
from murmura.runs import RunRecord
from murmura.units import bound, decimal, duration, listing, size

TOLD = 4
"""Rows that are told one by one; of more, the ends alone."""
UNATTACKED = "Not measured: no attack was carried out."
_UPLOADS_ALONE = "The model itself was not attacked while the run went on."
KNOWN_BEFORE = (
    "the loss alone told members from non-members even before training, by what else they differ in or since the model "
    "knew some"
)
ITS_KIND = "There a site’s records are compared with others of all sites: what kind of record it has counts, too."
_UNTRIED = (
    "Each attack of a run looks at a model, or at a single upload, of one round. Whoever keeps them all, as a server "
    "can, may find more: {}."
)
_AUDIT, _KEEPING = "audit the run (murmura audit)", "set audit.keep = true, and "
_SIMULATE = "simulate the federation on records like its own, and audit that (murmura audit)"
_HEAD = "Of 100 pairs of a record that was trained on and one that was not, the strongest attack on the model picks the"
LITTLE = "So few records were attacked that it says little."
_LITTLE_FOR = "So few records were attacked for {} that it says little."
_OUTSIDE = "No ε covers these figures, which come from private records."
_NOTHING = "Nothing: no ε bounds what attacks could find."
_ALONE = "Each ε is of one alone: whoever also sees what others made of the same records has seen more than it bounds."


@dataclass(frozen=True, slots=True)
class RowSummary:
    """What the first screen tells of a row or of an arm: what each counts in a way of its own, and the runs, from which
    the rest follows for both alike.

    Attributes:
        label: its name.
        runs: that it rests on.
        leakage: AUC of the strongest attack on the model; None where none was carried out.
        ends: of its 95 % interval.
        epsilon: guaranteed; None where none is.
        told: for what that ε is: δ, unit, and whatever it does not count.
        refused: why there is no ε, of runs that promise one.
        sent: bytes that travelled, up and down.
        seconds: of a run; None where that is not told.
        upload: the leakage of what one site sends, in words; empty where it was not attacked.
        together: what the runs come to together, in words, where that is not what one of them has; else empty.
        by_ledgers: whether an ε is told by privacy ledgers alone, since no saved round has one.
    """

    label: str
    runs: Sequence[RunRecord]
    leakage: float | None
    ends: tuple[float, float] | None
    epsilon: float | None
    told: str
    refused: str
    sent: float | None
    seconds: float | None
    upload: str = ""
    together: str = ""
    by_ledgers: bool = False


def untried(runs: Sequence[RunRecord]) -> tuple[str, ...]:
    """What nobody has tried on these runs, and how to; nothing where each kept its rounds and was audited with them."""
    kept = all(run.options.get("audit", {}).get("keep") for run in runs)
    if kept and all(run.audit for run in runs):
        return ()
    if not any(run.simulated for run in runs):  # whose records are with their sites, and are not here to be attacked
        return (_UNTRIED.format(_SIMULATE),)
    return (_UNTRIED.format(_AUDIT if kept else _KEEPING + _AUDIT),)


def cases(share: float | None, ends: tuple[float, float] | None) -> str:
    """``62 (95 %: 56 to 69)``: of 100; empty where nothing was measured."""
    if share is None:
        return ""
    return _hundred(share) if ends is None else f"{_hundred(share)} (95 %: {_hundred(ends[0])} to {_hundred(ends[1])})"


def _hundred(share: float) -> str:
    """With further digits where it would be written as guessing is, and is not."""
    told = (decimal(100 * share, digits) for digits in range(4))
    return decimal(100 * share, 0) if share == GUESSING else next((one for one in told if float(one) != 50), "50")


def promise_of(privacy: Mapping[str, Any]) -> str:
    """``at δ = 1e-05, for one record (zero-out)``; empty where nothing is promised."""
    if privacy.get("delta") is None:
        return ""
    return f"at δ = {privacy['delta']:g}, for one {privacy['unit']} ({privacy['adjacency']})"


def caveats_of(runs: Iterable[RunRecord]) -> str:
    """What is said beside the ε of any of these runs, each once."""
    return " ".join(dict.fromkeys(filter(None, (run.last.privacy.get("caveat") for run in runs))))


# ---- what leaks ------------------------------------------------------------------------------------------------------


def leaks(standings: Sequence[RowSummary], apart: str = "") -> tuple[str, ...]:
    """What the strongest attack has found, in plain words.

    Args:
        apart: why it cannot be compared from row to row, if it cannot.
    """
    known = sorted((one for one in standings if one.leakage is not None), key=lambda one: one.leakage or 0.0)
    several = len(standings) > 1
    uploads = [f"{one.upload} for {one.label}" if several else one.upload for one in standings if one.upload]
    if not known and not uploads:
        return (UNATTACKED,)
    told = _several(known) if several else list(map(_reading, known))
    missing = [one.label for one in standings if one.leakage is None]
    if missing:
        told.append(f"Not measured for {listing(missing)}." if known else _UPLOADS_ALONE)
    if one_by_one := uploads and len(uploads) <= TOLD:
        told.append(f"In what a single site sends, before it is mixed with the others’: {listing(uploads)}. {ITS_KIND}")
    few = [
        one
        for one in standings
        if (one.leakage is not None and few_attacked(one.runs, "attack"))
        or (one.upload and one_by_one and few_attacked(one.runs, "upload"))
    ]
    if several and few:
        told.append(_LITTLE_FOR.format(listing([one.label for one in few])))
    elif any(not few_attacked(one.runs, "attack") for one in few):  # of the model it is told with the figure
        told.append(LITTLE)
    told += [f"These cannot be compared with one another: {apart}."] * bool(apart)
    told += [_OUTSIDE] * any(promises_privacy(one.runs) for one in standings if one.leakage is not None or one.upload)
    return tuple(told)


def _reading(one: RowSummary) -> str:
    """Of one alone."""
    return f"{_HEAD} right one in {cases(one.leakage, one.ends)}; guessing is 50. {_MEANS[_shows(one)]}"


def _several(known: Sequence[RowSummary]) -> list[str]:
    """Of the least and the most, or of all where they are few; and for whom nothing was shown."""
    if not known:
        return []
    shown = known if len(known) <= TOLD else [known[0], known[-1]]
    ends = "" if len(known) <= TOLD else f" These are the least and the most of {len(known)}."
    found = listing([f"{cases(one.leakage, one.ends)} for {one.label}" for one in shown])
    told = [f"{_HEAD} right one in {found}; guessing is 50.{ends}"]
    for what, words in _FOR.items():
        whose = [one.label for one in known if _shows(one) == what]
        told += [words.format(listing(whose))] if whose else []
    return told


def _shows(one: RowSummary) -> str:
    """What may be said of an attack that came to this."""
    if few_attacked(one.runs, "attack"):
        return "little"
    if one.ends is None:
        return "unknown"
    low, high = one.ends
    more = "unlike" if unlike(one.runs) else "own" if own_adapters(one.runs) else "more"
    return more if low > GUESSING else "less" if high < GUESSING else "nothing"


_MEANS = {
    "more": "That is more than guessing: the model gives away something of which records it was trained on.",
    "own": "That is more than guessing: sites’ own adapters give away something of which records they were trained "
    "on, or of what kind these are.",
    "unlike": f"That is more than guessing; but {KNOWN_BEFORE}.",
    "nothing": "That may be guessing: nothing was shown, which is no proof that nothing leaks.",
    "less": "That is less than guessing: it tells them apart the wrong way round, by what else they differ in.",
    "unknown": "Without an interval it cannot be told from guessing.",
    "little": LITTLE,
}
_FOR = {
    "own": "For {}, whose sites keep adapters of their own, what kind of record a site has counts, too.",
    "unlike": f"More than guessing is shown for {{}}; but {KNOWN_BEFORE}.",
    "nothing": "Nothing was shown for {}, which is no proof that nothing leaks.",
    "less": "Less than guessing, for {}, tells them apart the wrong way round, by what else they differ in.",
    "unknown": "Without an interval it cannot be told from guessing for {}.",
}


def promised(standings: Sequence[RowSummary]) -> tuple[str, ...]:
    """Which ε holds for whom and against whom, and for whom none does; of what ledgers alone tell, nothing."""
    having = [one for one in standings if one.epsilon is not None]
    lacking = [one for one in standings if one.epsilon is None and not one.by_ledgers]
    if not having and not lacking:
        return ()
    if len(standings) == 1:
        one = standings[0]
        if one.epsilon is not None:
            return (_epsilon(one), *_beside(having), *_trusting(having))
        return (f"Nothing: the ε that was promised is refused ({one.refused}).",) if one.refused else (_NOTHING,)
    if len(lacking) == len(standings):
        refused = [f"{one.label}: {one.refused}" for one in standings if one.refused]
        return (_NOTHING, *([f"Refused: {'; '.join(refused)}."] if refused else []))
    told = [
        f"{listing(whose)}{', each' if len(whose) > 1 else ''}: {epsilon}"
        for epsilon, whose in _alike(having, _epsilon).items()
    ]
    none = [f"{one.label}{f' ({one.refused})' if one.refused else ''}" for one in lacking]
    beside = (*_beside(having, named=True), *_trusting(having, named=True))
    return (*told, *beside, *([f"Nothing for {listing(none)}."] if none else []), _ALONE)


def _alike(rows: Iterable[RowSummary], says: Callable[[RowSummary], str]) -> dict[str, list[str]]:
    """What is said of some of these rows, and of which, so that nothing is said twice."""
    found: dict[str, list[str]] = {}
    for row in rows:
        if said := says(row):
            found.setdefault(said, []).append(row.label)
    return found


def _beside(having: Sequence[RowSummary], named: bool = False) -> list[str]:
    """What to know beside an ε."""
    found = _alike(having, lambda one: caveats_of(one.runs))
    return [f"Beside the ε of {listing(whose)}: {said}" if named else said for said, whose in found.items()]


def _trusting(having: Sequence[RowSummary], named: bool = False) -> list[str]:
    """Where an ε does not hold against the server, which adds the noise itself."""
    return [
        f"{f'That of {listing(whose)}' if named else 'It'} does not hold against the server, which adds the noise "
        f"itself and sees {sees}."
        for sees, whose in _alike(having, lambda one: trusted(one.runs)).items()
    ]


def _epsilon(one: RowSummary) -> str:
    """``ε = 7.900 at δ = 1e-05, for one record (zero-out), whatever the attack.``"""
    more = f" Seen together, {one.together}." if one.together else ""
    return f"ε = {bound(one.epsilon or 0.0)}{f' {one.told}' if one.told else ''}, whatever the attack.{more}"


def costs(standings: Sequence[RowSummary], apart: str = "") -> tuple[str, ...]:
    """Bytes and time of a run.

    Args:
        apart: why times cannot be compared from row to row, if they cannot.
    """
    every = {one.label: _cost(one) for one in standings}
    told: tuple[str, ...]
    if len(set(every.values())) == 1:
        told = (f"{next(iter(every.values()))}{', for each of them' if len(every) > 1 else ''}.",)
    elif len(every) <= TOLD:
        told = (f"{'; '.join(f'{label}: {cost}' for label, cost in every.items())}.",)
    else:
        told = _range(standings, bool(apart))
    return (*told, *([f"Times cannot be compared with one another: {apart}."] if apart else []))


def _range(standings: Sequence[RowSummary], untimed: bool) -> tuple[str, ...]:
    """What many rows cost, by the ends: of what was sent, or of time where as much was sent for all.

    Args:
        untimed: times cannot be compared.
    """
    known = sorted((one for one in standings if one.sent is not None), key=lambda one: one.sent or 0.0)
    lacking = [one.label for one in standings if one.sent is None]
    told = [f"Traffic was not recorded for {listing(lacking)}."] if lacking and known else []
    if len({size(one.sent or 0.0) for one in known}) > 1:
        return (f"From {_ends(known)}, by what was sent.", *told)
    level = known or list(standings)
    timed = sorted((one for one in level if one.seconds and not untimed), key=lambda one: one.seconds or 0.0)
    if len({duration(one.seconds or 0.0) for one in timed}) > 1:
        secret = [one.label for one in level if not one.seconds]
        untold = [f"No time is told for {listing(secret)}."] if secret else []
        return (f"From {_ends(timed)}, by time.", *untold, *told)
    expecting, counted = ([one for one in level if _is_expected(one) == wanted] for wanted in (True, False))
    first = (counted or level)[0]
    each = _cost(first) if len(timed) == len(level) else _sent(first)
    whose = [one.label for one in expecting]
    only = [f"For {listing(whose)} it is what is expected."] if expecting and counted else []
    return (f"{each}, for each of {'the others' if told else 'them'}.", *only, *told)


def _ends(known: Sequence[RowSummary]) -> str:
    return " to ".join(f"{_cost(one)} ({one.label})" for one in (known[0], known[-1]))


def _sent(one: RowSummary) -> str:
    return "traffic not recorded" if one.sent is None else f"{size(one.sent)} sent{' (expected)' * _is_expected(one)}"


def _is_expected(one: RowSummary) -> bool:
    """Whether the bytes were not counted, but follow from public numbers."""
    return any(run.hides_cohorts for run in one.runs)


def _cost(one: RowSummary) -> str:
    sent = _sent(one)
    return sent if one.seconds is None else f"{sent}, {duration(one.seconds)}"

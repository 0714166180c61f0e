"""Whether arms had the same records, which options alone do not tell: what is left out, is set apart to validate with,
or is attacked follows from the method too."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from murmura.compare.outcome import ArmResult
from murmura.runs.record import RunRecord
from murmura.units import count, listing

Known = tuple[int | None, str | None]
"""How many records, and their digest; None for what is not told."""


def on_other_records(results: Sequence[ArmResult]) -> list[str]:
    """Of arms about one kind of record those that had others than the first of them, in sentences."""
    told = []
    for what, known in _USES.items():
        if apart := [one for one in results[1:] if _differ(one, results[0], known)]:
            others = listing([f"{one.arm} on {_counted(one, known)}" for one in apart])
            told.append(
                f"Not all arms were {what} the same records: {results[0].arm} on {_counted(results[0], known)}, "
                f"{others}. A part of what they differ by may come of that."
            )
    return told


def _measured(run: RunRecord) -> Known:
    found = run.measured.heldout if run.measured else None
    return (found.count, found.digest) if found else (None, None)


def _attacked(run: RunRecord) -> Known:
    """Which ones is not told: of sites that are unlike, an arm may attack evenly, and another in proportion."""
    found = run.last.attacks.get("attack")
    return (found.members if found else None), None


def _trained(run: RunRecord) -> Known:
    used = [site.used for site in run.sites or ()]
    known = [one for one in used if one is not None]
    return (sum(known) if known and len(known) == len(used) else None), None


_USES: Mapping[str, Callable[[RunRecord], Known]] = {
    "measured on": _measured,
    "attacked on": _attacked,
    "trained on": _trained,
}


def _differ(one: ArmResult, other: ArmResult, known: Callable[[RunRecord], Known]) -> bool:
    pairs = [(known(one.runs[seed]), known(other.runs[seed])) for seed in one.runs.keys() & other.runs.keys()]
    return any(own != first and None not in (own, first) for pair in pairs for own, first in zip(*pair, strict=True))


def _counted(one: ArmResult, known: Callable[[RunRecord], Known]) -> str:
    return " or ".join(dict.fromkeys(count(known(run)[0] or 0) for run in one.runs.values()))

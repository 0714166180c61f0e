"""Whether arms had the same records, which options alone do not tell: what is left out, is set apart to validate with,
or is attacked follows from the method too; and whether their runs were made on like machines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from murmura.compare.outcome import ArmResult
from murmura.runs.record import RunRecord
from murmura.units import count, listing

Known = tuple[int | None, str | None]
"""How many records, and their digest; None for what is not told."""
_OTHERS = "as many others"


def on_other_records(results: Sequence[ArmResult]) -> list[str]:
    """Of arms about one kind of record those that had others than the first that tells of its own, in sentences."""
    told = []
    for what, known in _USES.items():
        every = {one.arm: {seed: known(run) for seed, run in one.runs.items()} for one in results}
        telling = [arm for arm, own in every.items() if any(told != (None, None) for told in own.values())]
        if apart := [arm for arm in telling if _differ(every[arm], every[telling[0]])]:
            base, counts = _counted(every[telling[0]]), {arm: _counted(every[arm]) for arm in apart}
            others = [f"{arm} on {_OTHERS if own == base else own}" for arm, own in counts.items()]
            told.append(
                f"Not all arms were {what} the same records: {telling[0]} on {base}, {listing(others)}. That may "
                "explain part of what they differ by."
            )
    return told


def made_unlike(results: Sequence[ArmResult]) -> list[str]:
    """Whether runs were made on different devices, or in different numbers, as "auto" chooses where it stands."""
    found: dict[str, list[str]] = {}
    for one in results:
        for made in (run.environment for run in one.runs.values() if run.environment):
            precisions = dict.fromkeys(told for told in (made.training_precision, made.writing_precision) if told)
            found.setdefault(f"{made.device} in {' and '.join(precisions) or 'unknown numbers'}", []).append(one.arm)
    if len(found) < 2:
        return []
    each = "; ".join(f"{how}: {listing(list(dict.fromkeys(arms)))}" for how, arms in found.items())
    return [f"Not all runs were made alike ({each}): that may explain part of what arms differ by."]


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


def _differ(one: Mapping[int, Known], other: Mapping[int, Known]) -> bool:
    """By what is told of both, with any seed."""
    pairs = [(one[seed], other[seed]) for seed in one.keys() & other.keys()]
    return any(own != first and None not in (own, first) for pair in pairs for own, first in zip(*pair, strict=True))


def _counted(own: Mapping[int, Known]) -> str:
    return " or ".join(dict.fromkeys(count(known) for known, _ in own.values() if known is not None))

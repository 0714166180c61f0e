"""How far the ledgers of a run have come, compared with the rounds that it has saved."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from murmura.errors import CheckpointError, PrivacyError
from murmura.privacy import odometer
from murmura.privacy.ledger import PrivacyLedger
from murmura.privacy.reported import ReportedEpsilons
from murmura.runs.folder import RunFolder
from murmura.runs.names import REPORTED
from murmura.units import bound

_TOLD = "by what sites have told, and what is promised where they have not"
_STEP = 1.25  # between one ε that is told of sites' records and the next


@dataclass(frozen=True)
class PrivacySpent:
    """What a run has spent by now, by its ledgers where they are on this machine, else by what sites have told.

    Attributes:
        unsaved: most attempts at rounds after the last saved one that any of the ledgers holds, or for which sites were
            asked.
        epsilon: of the party that is protected least; None where it is refused.
        refused: why there is none.
        by: what says so.
    """

    unsaved: int
    epsilon: float | None
    refused: str = ""
    by: str = "by the privacy ledgers"

    @property
    def words(self) -> str:
        """ε, or that there is none."""
        return f"ε = {bound(self.epsilon)}" if self.epsilon is not None else "no ε can be told any more"

    @property
    def cost(self) -> str:
        """What the round that was interrupted has cost, for whoever may resume the run."""
        if self.unsaved:
            return (
                f"What was sent in the interrupted round counts: {self.words} {self.by}, and what is "
                "repeated after --resume counts again."
            )
        return f"The interrupted round has spent no privacy: {self.words}, as when the run was last saved."


def standing(folder: Path, saved: int, method: Mapping[str, Any]) -> PrivacySpent | None:
    """How far the ledgers of a run have come; None where none has been begun, or nothing of them is here.

    Args:
        folder: of the run.
        saved: its last saved round.
        method: the options of its method.
    """
    return _ledgers(folder, saved, method) or _told(folder, saved, method)


def _told(folder: Path, saved: int, method: Mapping[str, Any]) -> PrivacySpent | None:
    """By what the sites of a method with noise have told the server of ledgers that are with them."""
    path = RunFolder(folder).journal(REPORTED)
    try:
        if not (method.get("epsilon") or method.get("noise_multiplier")) or not path.exists():
            return None
        found = ReportedEpsilons.peek(path)
    except PrivacyError as error:
        return PrivacySpent(1, None, str(error))
    except OSError:
        return None
    worst = found.worst
    return PrivacySpent(found.asked_after(saved), worst["epsilon"], worst["refused"] or "", _TOLD)


def _ledgers(folder: Path, saved: int, method: Mapping[str, Any]) -> PrivacySpent | None:
    """By the ledgers themselves."""
    try:
        found = odometer.read(folder)
    except odometer.NoLedgersError:
        return None
    except (CheckpointError, PrivacyError) as error:
        return PrivacySpent(1, None, str(error))
    ledgers = [*found.sites.values(), *([found.whole] if found.whole else [])]
    if found.damaged:
        return PrivacySpent(1, None, next(iter(found.damaged.values())))
    if not ledgers:
        return None
    unsaved = max(sum(round > saved for round in ledger.rounds) for ledger in ledgers)
    try:
        return PrivacySpent(unsaved, max(_epsilon(ledger, method) for ledger in ledgers))
    except PrivacyError as error:
        return PrivacySpent(unsaved, None, str(error))


def _epsilon(ledger: PrivacyLedger, method: Mapping[str, Any]) -> float:
    spent = ledger.epsilon(str(method.get("accountant") or "best")).value
    target = method.get("epsilon")
    return rounded(spent, float(target)) if target and ledger.plan.unit == "record" else spent


def with_others(folder: Path, others: Sequence[Path], promise: Mapping[str, Any], method: Mapping[str, Any]) -> float:
    """The ε of a run and of others by which its options were chosen, all together, as it may be told.

    Args:
        folder: of the run.
        others: folders of runs, whatever has become of them.
        promise: of the run by itself: ``epsilon``, ``delta`` and ``unit``.
        method: the options of its method.

    Raises:
        CheckpointError, PrivacyError: there is none.
    """
    before = [odometer.read(one) for one in chosen_in_turn(others) if one.resolve() != folder.resolve()]
    own = odometer.read(folder)
    least = float(promise["epsilon"])
    if not any(one.sites or one.whole or one.damaged for one in (*before, own)):
        if not before:
            return least  # what protects by itself at the site, as paraphrases are, has no ledger
        raise PrivacyError("none of these runs has a ledger, and so what they have spent together cannot be told")
    spent = odometer.together([*before, own], promise["unit"], promise["delta"]).value
    if not math.isfinite(spent):
        raise PrivacyError("there is no finite bound")
    target = method.get("epsilon")
    return max(least, rounded(spent, float(target)) if target and promise["unit"] == "record" else spent)


def chosen_in_turn(folders: Iterable[Path]) -> list[Path]:
    """Runs, and those by which their own options were chosen, and so on; each once, however its folder is written.

    Raises:
        CheckpointError: what one was chosen by cannot be read.
    """
    found, left = dict[Path, Path](), list(folders)
    while left:
        folder = left.pop(0)
        if folder.resolve() not in found:
            found[folder.resolve()] = folder
            left += odometer.chosen_by(folder)
    return list(found.values())


def rounded(epsilon: float, target: float) -> float:
    """An ε that may be told of a site whose noise was made for a ``target``: rounded up to the target, or to the target
    times a power of 1.25. The exact one follows from how many records the site has, which is nobody's business.
    """
    if not 0 < epsilon < math.inf:
        return epsilon
    power = math.ceil(math.log(epsilon / target, _STEP) - 1e-9)
    while target * _STEP**power < epsilon:
        power += 1
    return target * _STEP**power

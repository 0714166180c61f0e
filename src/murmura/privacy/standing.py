"""How far the ledgers of a run have come, compared with the rounds that it has saved."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from murmura.errors import CheckpointError, PrivacyError
from murmura.privacy import odometer, run_ledgers
from murmura.privacy.accounting import Epsilon
from murmura.privacy.ledger import PrivacyLedger
from murmura.privacy.reported import ReportedEpsilons, rounded, target_of
from murmura.privacy.run_ledgers import RunLedgers
from murmura.runs.folder import RunFolder
from murmura.runs.names import REPORTED
from murmura.units import bound

_TOLD = "by what sites have told, and what is promised where they have not"
_WITH_OTHERS = "by the privacy ledgers, with those of the runs by which its options were chosen"
_ELSEWHERE = "the runs by which its options were chosen count too, and the ledgers of this one are with its sites"


@dataclass(frozen=True)
class PrivacySpent:
    """What a run has spent by now, by its ledgers where they are on this machine, else by what sites have told.

    Attributes:
        unsaved: most attempts at rounds after the last saved one that any of the ledgers holds, or for which sites were
            asked.
        epsilon: of the party that is protected least; None where it is refused.
        refused: why there is none.
        by: what says so.
        delta, unit: for what that ε is; None where that is not known.
    """

    unsaved: int
    epsilon: float | None
    refused: str = ""
    by: str = "by the privacy ledgers"
    delta: float | None = None
    unit: str | None = None

    @property
    def words(self) -> str:
        """ε, or that there is none."""
        return f"ε = {bound(self.epsilon)}" if self.epsilon is not None else "no ε can be told any more"

    @property
    def cost(self) -> str:
        """What the round that was interrupted has cost, for whoever may resume the run; nobody else may read why there
        is no ε."""
        if self.unsaved:
            why = f" The reason: {self.refused.rstrip('.')}." if self.refused else ""
            return (
                f"What was sent in the interrupted round counts: {self.words} {self.by}, and what is "
                f"repeated after --resume counts again.{why}"
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
        found, others = ReportedEpsilons.peek(path), run_ledgers.chosen_by(folder)
    except (CheckpointError, PrivacyError) as error:
        return PrivacySpent(1, None, str(error))
    except OSError:
        return None
    if others:
        return PrivacySpent(found.asked_after(saved), None, _ELSEWHERE, _TOLD)
    worst, delta = found.worst, method.get("delta")
    return PrivacySpent(found.asked_after(saved), worst["epsilon"], worst["refused"] or "", _TOLD, delta, "record")


def _ledgers(folder: Path, saved: int, method: Mapping[str, Any]) -> PrivacySpent | None:
    """By the ledgers themselves."""
    try:
        found = run_ledgers.read(folder)
    except run_ledgers.NoLedgersError:
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
        epsilon, plan = max(_epsilon(ledger, method) for ledger in ledgers), ledgers[0].plan
        spent = PrivacySpent(unsaved, epsilon, delta=plan.delta, unit=plan.unit)
        if not found.chosen_by:
            return spent
        promise = {"epsilon": epsilon, "delta": plan.delta, "unit": plan.unit}
        return replace(spent, epsilon=with_others(folder, promise, method).value, by=_WITH_OTHERS)
    except PrivacyError as error:
        return PrivacySpent(unsaved, None, str(error))


def _epsilon(ledger: PrivacyLedger, method: Mapping[str, Any]) -> float:
    spent = ledger.epsilon(str(method.get("accountant") or "best")).value
    return rounded(spent, target_of(method, ledger.plan.unit))


def with_others(
    folder: Path, promise: Mapping[str, Any], method: Mapping[str, Any], others: Sequence[Path] = ()
) -> Epsilon:
    """The ε of a run and of those by which its options were chosen, all together, as it may be told.

    Args:
        folder: of the run.
        promise: of the run by itself: ``epsilon``, ``delta`` and ``unit``.
        method: the options of its method.
        others: folders of runs that count besides those that the run has noted.

    Raises:
        CheckpointError, PrivacyError: there is none. What is said of it names runs by the last part of their folders.
    """
    runs = odometer.every(ledgers_of(folder, others))
    if not any(one.sites or one.whole or one.damaged for one in runs):
        if len(runs) == 1:  # what protects by itself at the site, as paraphrases are, has no ledger
            return Epsilon(promise["epsilon"], promise["accountant"], promise["delta"], promise["adjacency"])
        raise PrivacyError("none of these runs has a ledger, and so what they have spent together cannot be told")
    try:
        spent = odometer.together(runs, promise["unit"], promise["delta"])
    except PrivacyError as error:
        raise PrivacyError(without_places(error.what, runs), fix=error.fix) from error
    if not math.isfinite(spent.value):
        raise PrivacyError("there is no finite bound")
    told = rounded(spent.value, target_of(method, promise["unit"]))
    return replace(spent, value=max(float(promise["epsilon"]), told))


def ledgers_of(folder: Path, others: Sequence[Path]) -> list[RunLedgers]:
    """Of a run, and of others that count with it; of one that is gone what the run has noted.

    Raises:
        CheckpointError, PrivacyError: those of the run itself cannot be read.
    """
    own = run_ledgers.read(folder)
    noted = {one.name for one in own.chosen_by}
    return [own, *(run_ledgers.found(one) for one in others if one.exists() or str(one) not in noted)]


def without_places(text: str, runs: Iterable[RunLedgers]) -> str:
    """What is said of runs, by the last parts of their folders' names: where these lie is nobody else's business."""
    names = {one.name for run in runs for one in (run, *run.chosen_by)}
    for name in sorted(names, key=len, reverse=True):
        text = text.replace(name, Path(name).name) if Path(name).name else text
    return text

"""What the attacks of runs looked at, by which their figures are to be read."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from murmura.measure.figure import GUESSING
from murmura.runs.record import RunRecord

_LOSS_ENDS = ("attack_loss_auc_low", "attack_loss_auc_high")


def few_attacked(runs: Sequence[RunRecord], target: str) -> bool:
    """Whether an attack on that had so few records in some run that it says little."""
    found = [run.last.attacks[target] for run in runs if target in run.last.attacks]
    return any(one.says_little for one in found)


def own_adapters(runs: Sequence[RunRecord]) -> bool:
    """Whether sites' own adapters were attacked in these runs: only then do sites tell how non-members look to them."""
    return any((one.verb, one.field) == ("attack", "others") for run in runs for one in run.disclosure or ())


def unlike(runs: Sequence[RunRecord]) -> bool:
    """Whether before training the loss alone told members from others in these runs, by the mean of their intervals, or
    in an audit: they then are records of different kinds, or what training began with knew some."""
    values = [run.before.values for run in runs if run.before]
    lows, highs = ([one[key] for one in values if one.get(key) is not None] for key in _LOSS_ENDS)
    before = bool(lows and highs) and not statistics.fmean(lows) <= GUESSING <= statistics.fmean(highs)
    return before or any(run.audit.unlike for run in runs if run.audit)

"""How well scores tell members from others, from counts alone.

Scores are counted in cells between cut points that depend on the others' scores only. So whoever has members' scores
can hand over how many fall into each cell, and no score. Scores in one cell count as equal; of as few others as there
are cells nothing is lost.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from murmura.measure.auc_interval import interval

CELLS = 20  # most places in the order of the others' scores, but for the largest ones
_TOP, _ALONE = 0.02, 5  # share of the others, with the largest scores, that have places of their own; how many at most
CUTS = 2 * (CELLS + _ALONE)
"""Cut points, always as many."""

FALSE_POSITIVES = 0.01
ENOUGH = 100
"""Others from which a rate of false positives of 1 % can be read: above all of them one more scores less often."""


def cut_points(others: np.ndarray) -> np.ndarray:
    """Cut points between the others' scores, float64, as many whatever the scores: what is left over is infinite.

    Cells are places in the order of the others, so that tallies of several models, each with cut points of its own, can
    be added up: neighbouring ranks are one place, equally many of them, and there is a cell for each place and one
    before each. Equal scores are all where the one in their middle is, and a place that they leave empty is above or
    below them. The largest scores have places of their own, so that a low rate of false positives can be read: from as
    many others on that this would take more places than there are, all that may be taken for members share these.

    Args:
        others: float64 [n], at least one, all finite.
    """
    ranked = np.sort(others)
    top = max(min(math.ceil(_TOP * len(ranked)), _ALONE), wrongly_taken(len(ranked))) if len(ranked) > CELLS else 0
    low = len(ranked) - top
    parts = np.array_split(np.arange(low), min(CELLS, low))
    parts += np.array_split(np.arange(low, len(ranked)), min(top, _ALONE)) if top else []
    place = np.concatenate([np.full(len(part), k) for k, part in enumerate(parts)])
    first, last = (np.searchsorted(ranked, ranked, side=side) for side in ("left", "right"))
    home = place[(first + last - 1) // 2]
    cuts = np.full(CUTS, np.inf)
    for k, part in enumerate(parts):
        own = ranked[home == k]
        bottom, top = ranked[part[0]], ranked[part[-1]]
        if len(own):
            ends = own[0], np.nextafter(own[-1], np.inf)
        else:  # its scores are equal to ones that are elsewhere
            ends = (
                np.nextafter(bottom, np.inf) if home[part[0]] < k else bottom,
                top if home[part[-1]] > k else np.nextafter(top, np.inf),
            )
        cuts[2 * k : 2 * k + 2] = ends
    return cuts


def wrongly_taken(others: int) -> int:
    """How many of so many others may score above a threshold that one more, drawn as they are, passes with a chance of
    ``FALSE_POSITIVES`` at most: k of n, of (k + 1)/(n + 1). -1 where it is larger even above all of them."""
    return math.floor(FALSE_POSITIVES * (others + 1) + 1e-9) - 1


def tally(scores: np.ndarray, cuts: np.ndarray) -> np.ndarray:
    """How many scores lie in each cell, float64 [cells]: before the first cut point, from each one to before the next,
    and from the last on."""
    places = np.searchsorted(cuts, scores, side="right")
    return np.bincount(places, minlength=len(cuts) + 1).astype(np.float64)


@dataclass(frozen=True)
class Roc:
    """Members against others.

    Args:
        members: how many of them are in each cell, cells in the order of their scores.
        others: the same of the others, in any multiple.
        distinct: how many others there are.
    """

    members: np.ndarray
    others: np.ndarray
    distinct: int

    @property
    def count(self) -> int:
        """How many members there are."""
        return int(self.members.sum())

    @property
    def auc(self) -> float:
        """The chance that a member scores higher than one of the others, equal scores counting half."""
        return float((self.members * _below(self.others)).sum() / self.members.sum())

    @property
    def interval(self) -> tuple[float, float]:
        """Of the AUC, 95 % (``measure.auc_interval``)."""
        spread = _variance(self.members, _below(self.others), self.count)
        of_others = _variance(self.others, 1 - _below(self.members), self.distinct)
        return interval(self.auc, (spread, of_others), (self.count, self.distinct))

    @property
    def caught(self) -> float:
        """The largest share of members found where no more of the others are taken for members than may be
        (``wrongly_taken``)."""
        wrong = self.others[::-1].cumsum() / self.others.sum()
        right = self.members[::-1].cumsum() / self.members.sum()
        return float(max(right[wrong <= wrongly_taken(self.distinct) / self.distinct + 1e-12], default=0.0))


def strongest(rocs: Sequence[Roc]) -> int:
    """Which of several attacks has the largest AUC; of equal ones the first."""
    return int(np.argmax([roc.auc if roc.count and roc.distinct else 0.5 for roc in rocs]))


def _below(counts: np.ndarray) -> np.ndarray:
    """For each cell the share of all that is in cells before it, and half of what is in it."""
    return (counts.cumsum() - counts / 2) / counts.sum()


def _variance(counts: np.ndarray, values: np.ndarray, number: int) -> float:
    """Of values that occur so often, in a sample of ``number``; 0 of a single one."""
    shares = counts / counts.sum()
    mean = (shares * values).sum()
    return float((shares * (values - mean) ** 2).sum() * number / max(number - 1, 1))

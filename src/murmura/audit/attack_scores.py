"""How well scores tell members from others.

Members are scored by the model that may have learnt them: their own site's, where sites have models of their own. All
of these then score the others too, and a member is compared with what its own site's model makes of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from murmura.measure.auc_interval import interval
from murmura.measure.roc import ENOUGH, wrongly_taken
from murmura.runs.audit import Histogram

DRAWS = 2000
ENDS = (0.025, 0.975)
_BINS = 24


@dataclass(frozen=True)
class AttackScores:
    """Members against others, by one attack.

    Args:
        members: scores, float64 [M].
        others: scores, float64 [K, N]: row k by the model of site k, or one row for all.
        rows: int64 [M], the row of others that each member is compared with.
    """

    members: np.ndarray
    others: np.ndarray
    rows: np.ndarray

    def part(self, members: np.ndarray, others: np.ndarray) -> AttackScores:
        """Only those members and others for which a bool of [M] or [N] is true."""
        return AttackScores(self.members[members], self.others[:, others], self.rows[members])

    @property
    def is_finite(self) -> bool:
        """Whether every score is a number that can be compared."""
        return bool(np.isfinite(self.members).all() and np.isfinite(self.others).all())

    @cached_property
    def wins(self) -> np.ndarray:
        """float64 [M, N]: 1 where a member scores higher than one of the others, ½ where they are equal, else 0."""
        own, other = self.members[:, None], self.others[self.rows]
        return (own > other) + 0.5 * (own == other)

    @property
    def auc(self) -> float:
        """The chance that a member scores higher than one of the others, equal scores counting half."""
        return float(self.wins.mean())

    @property
    def tpr(self) -> float | None:
        """The share of members found where no more of the others are taken for members than may be
        (``roc.wrongly_taken``); None where there are too few others to read that from."""
        others = self.wins.shape[1]
        if others < ENOUGH:
            return None
        return float(((self.wins < 1).sum(axis=1) <= wrongly_taken(others)).mean())

    @property
    def interval(self) -> tuple[float, float]:
        """Of the AUC, 95 % (``measure.auc_interval``)."""
        if min(self.wins.shape) < 2:
            return 0.0, 1.0
        spread = self.wins.mean(axis=1).var(ddof=1), self.wins.mean(axis=0).var(ddof=1)
        return interval(self.auc, (float(spread[0]), float(spread[1])), self.wins.shape)

    def tpr_interval(self, draws: tuple[np.ndarray, np.ndarray]) -> tuple[float, float]:
        """Of ``tpr``, 95 %, by the bootstrap (Efron 1979): the threshold is found anew in each draw. Where all draws
        say the same, the end is that of as many independent members: 1 − 0.025^(1/M) or its complement."""
        members, others = draws
        count, number = self.wins.shape
        found = ((self.wins < 1) @ others.T <= wrongly_taken(number)).T
        shares = np.einsum("bm,bm->b", members, found) / count
        low, high = (float(end) for end in np.quantile(shares, ENDS))
        if low == high:
            end = 0.025 ** (1 / count)
            return (0.0, 1 - end) if not low else (end, 1.0) if low == 1 else (low, high)
        return low, high


def draws(members: int, others: int, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """How often each member and each of the others is in each bootstrap sample, float64 [draws, M] and [draws, N]; the
    same draws serve all attacks, so that these can be compared."""
    return tuple(  # type: ignore[return-value]
        generator.multinomial(count, np.full(count, 1 / count), size=DRAWS).astype(np.float64)
        if count
        else np.zeros((DRAWS, 0))
        for count in (members, others)
    )


def shape(members: np.ndarray, others: np.ndarray) -> Histogram:
    """The distribution of scores. Ends are where one in fifty lies beyond, rounded, so that no edge is a score."""
    both = np.concatenate([members.ravel(), others.ravel()])
    low, high = np.quantile(both, (0.02, 0.98))
    digits = 1 - int(np.floor(np.log10(max(high - low, 1e-9))))
    low, high = (float(np.round(end, digits)) for end in (low, high))
    edges = np.linspace(low, max(high, low + 10.0**-digits), _BINS + 1)
    counts = [np.histogram(np.clip(one, edges[0], edges[-1]), edges)[0] for one in (members.ravel(), others.ravel())]
    return Histogram(tuple(edges.tolist()), *(tuple(one.tolist()) for one in counts))

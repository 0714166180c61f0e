"""Rules under which a few sites that send anything do little harm.

Each looks at every single upload, as one vector: the change from the global adapter, all factors A and B that travel
one after the other, in float64. All uploads of a round are in memory together, as they came; rules that look at each
number by itself take some numbers at a time. Sites count alike, since one that lies may claim any number of examples.

============  ========================================================================================================
rule          next global adapter
============  ========================================================================================================
median        each number by itself: the median (of an even number of sites the mean of the two in the middle)
trimmed-mean  each number by itself: the mean without the f largest and the f smallest
krum          the upload with the smallest sum of squared distances to its n − f − 2 nearest; or the mean of the m best
norm-bound    the mean of the changes, of which none is longer than M: longer ones are scaled down to it
============  ========================================================================================================

Sources: coordinate-wise median and trimmed mean (Yin et al. 2018, arXiv 1803.01498), Krum and Multi-Krum (Blanchard et
al. 2017, 1703.02757), norm bound (Sun et al. 2019, 1911.07963). What these papers prove is about the parameters
themselves; a LoRA's A and B are multiplied with one another, and no theorem about their product is claimed here.
"""

from __future__ import annotations

from abc import abstractmethod

import torch

from murmura.aggregation.config import BoundedRule, KrumRule, TrimmedRule
from murmura.aggregation.mean import check, shapes
from murmura.aggregation.rules import Contributions, Rule
from murmura.errors import RunError
from murmura.streams import Stream
from murmura.training.adapter import State

_AT_ONCE = 2**14  # numbers; a multiple of 64, so that each is added up as it would be among all of them


class Robust(Rule):
    """A rule on the changes that sites send, one row a site."""

    def step(self, current: State, contributions: Contributions, *, scale: float, round: int, stream: Stream) -> State:
        like = self.upload(current, round)
        names = list(like)
        base = torch.cat([like[name].double().flatten() for name in names])
        rows, expected = [], shapes(like)
        for number, (state, _) in enumerate(contributions, start=1):
            check(state, expected, number)
            rows.append(torch.cat([state[name].detach().cpu().flatten() for name in names]))
        if len(rows) < self.least:
            what = f"{len(rows)} sites answered, and rule '{self.config.rule.kind}' needs {self.least}"
            lower = "'liars' or 'chosen'" if isinstance(self.config.rule, KrumRule) else "'liars'"
            fix = f"Lower {lower} in [aggregation.rule], or bring sites back and start again with --resume."
            raise RunError(what, where=f"round {round}", fix=fix)
        moved = base + self.changed(rows, base)
        sizes = [like[name].numel() for name in names]
        parts = zip(names, moved.split(sizes), strict=True)
        return {**current, **{name: part.view(like[name].shape).float() for name, part in parts}}

    def changed(self, rows: list[torch.Tensor], base: torch.Tensor) -> torch.Tensor:
        """``change`` of what sites have made of the global adapter; no row is left in the list."""
        changes = base.new_empty(len(rows), len(base))
        for place in reversed(range(len(rows))):
            torch.sub(rows.pop(), base, out=changes[place])
        return self.change(changes)

    @abstractmethod
    def change(self, changes: torch.Tensor) -> torch.Tensor:
        """What the global adapter changes by.

        Args:
            changes: float64 (sites, numbers); may be written over.

        Returns:
            float64 (numbers,).
        """


class NumberByNumber(Robust):
    """A rule on each number by itself."""

    def changed(self, rows: list[torch.Tensor], base: torch.Tensor) -> torch.Tensor:
        parts = zip(base.split(_AT_ONCE), *(row.split(_AT_ONCE) for row in rows), strict=True)
        return torch.cat([Robust.changed(self, own, part) for part, *own in parts])


class Median(NumberByNumber):
    """Coordinate-wise median (Yin et al. 2018, Definition 1)."""

    title = "median"

    def change(self, changes: torch.Tensor) -> torch.Tensor:
        ordered, count = changes.sort(dim=0).values, len(changes)
        return (ordered[(count - 1) // 2] + ordered[count // 2]) / 2


class TrimmedMean(NumberByNumber):
    """Coordinate-wise trimmed mean (Yin et al. 2018, Definition 2)."""

    title = "trimmed mean"

    def change(self, changes: torch.Tensor) -> torch.Tensor:
        assert isinstance(self.config.rule, TrimmedRule)
        liars = self.config.rule.liars
        return changes.sort(dim=0).values[liars : len(changes) - liars].mean(dim=0)


class Krum(Robust):
    """Krum (Blanchard et al. 2017, Section 4), and Multi-Krum with more than one chosen."""

    title = "Krum"

    def change(self, changes: torch.Tensor) -> torch.Tensor:
        assert isinstance(self.config.rule, KrumRule)
        nearest = len(changes) - self.config.rule.liars - 2
        apart = torch.cdist(changes, changes, compute_mode="donot_use_mm_for_euclid_dist").square()
        apart.fill_diagonal_(torch.inf)
        scores = apart.sort(dim=1).values[:, :nearest].sum(dim=1)
        chosen = scores.argsort(stable=True)[: self.config.rule.chosen]
        return changes[chosen].mean(dim=0)


class NormBound(Robust):
    """The mean of changes that are clipped to a norm (Sun et al. 2019, Section 4)."""

    title = "norm bound"

    def change(self, changes: torch.Tensor) -> torch.Tensor:
        assert isinstance(self.config.rule, BoundedRule)
        norms = changes.norm(dim=1, keepdim=True)
        return changes.mul_(self.config.rule.norm / norms.clamp(min=self.config.rule.norm)).mean(dim=0)

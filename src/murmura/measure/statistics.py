"""Means over seeds and differences between arms that were run with the same seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import inf
from statistics import fmean, stdev

from murmura.measure.figure import AUC, SHARE, Figure, interval
from murmura.runs.schema import FEW
from murmura.units import decimal, signed

_CERTAIN = 0.05  # largest p of a difference that is called one
_ALIKE = 1e-9  # most by which differences differ that are the same but for rounding


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over ``n`` seeds with its 95 % interval (Student's t, n - 1 degrees of freedom).

    There is none of one seed, nor of seeds that all came to the same, as of few texts they may by chance: it would be
    certain of anything.
    """

    mean: float
    n: int
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, values: Sequence[float], least: float = -inf, most: float = inf) -> Estimate:
        """Of at least one value.

        Args:
            least, most: that the figure can be, beyond which no interval reaches.
        """
        from scipy.special import stdtrit

        mean, n = fmean(values), len(values)
        if n == 1 or max(values) - min(values) <= _ALIKE:
            return cls(mean, n)
        reach = float(stdtrit(n - 1, 0.975)) * stdev(values) / n**0.5
        return cls(mean, n, max(mean - reach, least), min(mean + reach, most))

    @classmethod
    def of_shares(cls, values: Sequence[float]) -> Estimate:
        """Of at least one value from 0 to 1, such as texts' ROUGE-L; it has an interval always.

        Of fewer than ``FEW`` values Student's is too narrow where they are unevenly spread, as where one answer in ten
        is right and the others are nowhere near. So it reaches as far there as that of a share (Wilson's), which is the
        widest there is, and likewise where all are alike.
        """
        found = cls.of(values, 0.0, 1.0)
        if found.ends and found.n >= FEW:
            return found
        low, high = interval(found.mean, found.n)
        if found.ends:
            low, high = min(low, found.ends[0]), max(high, found.ends[1])
        return cls(found.mean, found.n, low, high)

    def wider(self, lows: Sequence[float], highs: Sequence[float]) -> tuple[float, float] | None:
        """The wider of two intervals at each end: this one, and the mean of those within single runs; None where there
        is neither."""
        ends = [(fmean(lows), fmean(highs))] if lows and highs else []
        ends += [self.ends] if self.ends else []
        return (min(low for low, _ in ends), max(high for _, high in ends)) if ends else None

    @property
    def ends(self) -> tuple[float, float] | None:
        """Of its interval; None where there is none."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def words(self) -> str:
        """``2.193 (2.150 to 2.236)``."""
        return with_ends(self.mean, self.ends)


def with_ends(mean: float, ends: tuple[float, float] | None) -> str:
    """A mean and the ends of its interval, where there is one: ``2.193 (2.150 to 2.236)``."""
    return decimal(mean) + (f" ({' to '.join(map(decimal, ends))})" if ends else "")


def estimate(of: Figure, values: Sequence[float]) -> Estimate:
    """The mean of a figure over seeds; no interval of a share or an AUC leaves 0 to 1."""
    return Estimate.of(values, 0.0, 1.0) if of.unit in (AUC, SHARE) else Estimate.of(values)


@dataclass(frozen=True, slots=True)
class Difference:
    """By how much a figure of one arm is larger than that of another, seed by seed.

    Attributes:
        estimate: its mean over the seeds that both were run with.
        p: two-sided, of the paired t test, after Holm's correction for all differences that were looked at; None where
            there is one seed alone.
    """

    estimate: Estimate
    p: float | None

    @property
    def shown(self) -> bool:
        """Whether the seeds tell the two apart."""
        return self.p is not None and self.p <= _CERTAIN

    @property
    def size(self) -> str:
        """How large it is, whichever way: ``0.037 (0.022 to 0.051)``."""
        ends = sorted(map(abs, self.estimate.ends or ()))
        between = f" ({' to '.join(map(decimal, ends))})" if ends else ""
        return f"{decimal(abs(self.estimate.mean))}{between}"

    @property
    def words(self) -> str:
        """``+0.031 (+0.010 to +0.052), p = 0.021``."""
        between = f" ({' to '.join(map(signed, self.estimate.ends))})" if self.estimate.ends else ""
        p = "" if self.p is None else ", p < 0.001" if self.p < 0.001 else f", p = {decimal(self.p)}"
        return f"{signed(self.estimate.mean)}{between}{p}"


def differences(
    arms: Mapping[str, Mapping[int, float]], reference: Mapping[int, float], *, picked: bool = False
) -> dict[str, Difference]:
    """How arms differ from a reference, on the seeds that both have.

    Args:
        arms: a figure of each arm by seed; those that share no seed with the reference are left out.
        reference: the same of the arm that they are compared with.
        picked: it was picked for such figures, as the best: then every two arms count as compared that could be, with
            more than one seed in common.
    """
    paired = {name: [own[seed] - reference[seed] for seed in own if seed in reference] for name, own in arms.items()}
    paired = {name: values for name, values in paired.items() if values}
    tested = {name: _p(values) for name, values in paired.items() if len(values) > 1}
    others = combinations(arms.values(), 2) if picked else ()
    corrected = holm(tested, sum(len(one.keys() & other.keys()) > 1 for one, other in others))
    return {name: Difference(Estimate.of(values), corrected.get(name)) for name, values in paired.items()}


def _p(values: Sequence[float]) -> float:
    """Two-sided, that the mean of such differences is 0: Student's t, or where all are alike, as of few texts they may
    be by chance, the sign test, since without spread t would be certain of anything."""
    from scipy.stats import ttest_1samp

    if max(values) - min(values) <= _ALIKE:
        return 1.0 if abs(values[0]) <= _ALIKE else 2.0 * 0.5 ** len(values)
    return float(ttest_1samp(values, 0.0).pvalue)


def holm(tested: Mapping[str, float], besides: int = 0) -> dict[str, float]:
    """p values of several tests such that all of them together are wrong no more often than one alone (Holm 1979).

    Args:
        besides: tests that were made too, whose p values may be anything: they count as if they came after these, which
            makes no corrected value smaller.
    """
    found: dict[str, float] = {}
    highest = 0.0
    for place, name in enumerate(sorted(tested, key=lambda one: tested[one])):
        highest = max(highest, min(1.0, (len(tested) + besides - place) * tested[name]))
        found[name] = highest
    return found

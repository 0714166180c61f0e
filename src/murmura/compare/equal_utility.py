"""What arms leak where they are equally good, so that none seems to leak less for having learnt less."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from murmura.compare.outcome import LEAKAGE, ArmResult, better
from murmura.measure.catalogue import figure
from murmura.measure.statistics import Difference, Estimate, differences, estimate
from murmura.runs.record import RunRecord

_FEWEST = 3  # points of a run, that before training among them: with two, all would be a straight line

Course = Sequence[tuple[float, float]]
"""Utility and leakage round by round."""


@dataclass(frozen=True)
class EqualUtility:
    """An arm and the reference, each where it first was as good as both became.

    Attributes:
        utility: that level, the mean over seeds.
        leakage: of the arm there.
        reference: of the reference there.
        difference: by how much the arm leaks more, paired by seed.
    """

    utility: Estimate
    leakage: Estimate
    reference: Estimate
    difference: Difference


def at_equal_utility(results: Sequence[ArmResult], reference: str) -> dict[str, EqualUtility]:
    """What each arm leaks beside the reference at the best utility that both of them reach, seed by seed.

    Between two rounds that were measured both figures are taken to go in a straight line. The level is chosen by the
    figures that it is a level of, so differences are to be read with those of the last round beside them.

    Args:
        results: arms; those about another kind of record than the reference are left out, and so are those of which
            fewer than three rounds were measured, the one before training among them, in utility and leakage.
        reference: the arm that others are compared with.
    """
    known = {one.arm: one for one in results}
    first = known[reference]
    sign, key = better(first.utility_figure), first.utility_figure.key
    own = _courses(first, key)
    found: dict[str, dict[int, tuple[float, float, float]]] = {}
    for arm, one in known.items():
        if arm == reference or one.kind != first.kind:
            continue
        for seed, course in _courses(one, key).items():
            if seed in own:
                level = min(max(sign * useful for useful, _ in each) for each in (course, own[seed]))
                leaks, other = (_leakage_at(level, sign, each) for each in (course, own[seed]))
                found.setdefault(arm, {})[seed] = (sign * level, leaks, other)
    # One call for all, since p values are corrected for how many there are.
    apart = differences(
        {arm: {seed: leaks - other for seed, (_, leaks, other) in seeds.items()} for arm, seeds in found.items()},
        dict.fromkeys(own, 0.0),
    )
    figures = (first.utility_figure, figure(LEAKAGE), figure(LEAKAGE))
    levels = {}
    for arm, seeds in found.items():
        useful, leaking, beside = map(estimate, figures, zip(*seeds.values(), strict=True))
        levels[arm] = EqualUtility(useful, leaking, beside, apart[arm])
    return levels


def _courses(one: ArmResult, key: str) -> dict[int, Course]:
    """By seed, of runs that measured often enough."""
    every = {seed: _course(one, run, key) for seed, run in one.runs.items()}
    return {seed: course for seed, course in every.items() if len(course) >= _FEWEST}


def _course(one: ArmResult, run: RunRecord, key: str) -> Course:
    pairs = [(one.figure_of(row, key), one.figure_of(row, LEAKAGE)) for row in run.rounds]
    return [(x, y) for x, y in pairs if x is not None and y is not None and isfinite(x) and isfinite(y)]


def _leakage_at(level: float, sign: float, course: Course) -> float:
    """Where the course first is as good as the level, which it reaches; ``sign`` makes more better."""
    before = course[0]
    for useful, leaks in course:
        if sign * useful >= level:
            rise = sign * (useful - before[0])
            share = (level - sign * before[0]) / rise if rise > 0 else 1.0
            return before[1] + share * (leaks - before[1])
        before = (useful, leaks)
    raise ValueError("the course does not reach the level")

"""What a guarantee for one unit is worth for a group of them: all the records of one person, or several sites."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from murmura.privacy import accounting, events
from murmura.privacy.accounting import Epsilon
from murmura.privacy.curve import Curve
from murmura.privacy.plan import PrivacyPlan
from murmura.privacy.samplers import PoissonSampling

if TYPE_CHECKING:
    from dp_accounting import DpEvent


def least(one: DpEvent, all_of_them: DpEvent, size: int, delta: float, adjacency: str) -> Epsilon:
    """The least valid ε for a group of ``size`` units.

    Args:
        one: the release as it looks to one unit.
        all_of_them: the same as it looks to the group (``event``), or several of these composed.
    """
    mixed, found = events.has_mixtures(all_of_them), list[Epsilon]()
    if not (mixed and events.has_integer_noise(all_of_them)):  # which no accountant knows both
        found.append(accounting.epsilon(all_of_them, delta, adjacency, "pld" if mixed else "best"))
    return min([*found, generic(one, size, delta, adjacency)], key=lambda one: one.value)


def event(plan: PrivacyPlan, size: int, steps: int | None = None, repeated: Sequence[int] = ()) -> DpEvent:
    """The release as it looks to a group: how far its members move a step's sum together, and how often.

    Without sampling they move it ``size`` times as far at most. Of a Poisson sample the number of members in it is
    binomial, so that a step is a mixture of Gaussians (Ganesh 2024, Theorem 3.1). A clipped batch gradient turns around
    once at most, whoever turns it. For other samples no sampling is counted.
    """
    import dp_accounting as dp
    from scipy.stats import binom

    coin, at_once = plan.sampler.coin, plan.clipping.can_reverse
    # How sampling protects a group is known from being blanked, where members are drawn one by one.
    if coin is None or plan.adjacency == "replace-one" or plan.noise_multiplier == 0:
        return _further(events.unsampled(plan.event(steps, repeated)), 1 if at_once else size)
    if at_once:
        any_of_them = -math.expm1(size * math.log1p(-coin))
        return replace(plan, sampler=PoissonSampling(any_of_them)).event(steps, repeated)
    chances = [float(chance) for chance in binom.pmf(range(size + 1), size, coin)]
    step = dp.dp_event.MixtureOfGaussiansDpEvent(plan.noise_multiplier, list(range(size + 1)), chances)
    return dp.SelfComposedDpEvent(step, (plan.steps if steps is None else steps) + len(repeated))


def _further(one: DpEvent, size: int) -> DpEvent:
    """The same releases without sampling, where neighbours are so many times as far apart."""
    import dp_accounting as dp

    from murmura.privacy.renyi import IntegerNoiseDpEvent

    if isinstance(one, dp.GaussianDpEvent):
        return dp.GaussianDpEvent(one.noise_multiplier / size)
    if isinstance(one, IntegerNoiseDpEvent):
        return one.further(size)
    if isinstance(one, dp.SelfComposedDpEvent):
        return dp.SelfComposedDpEvent(_further(one.event, size), one.count)
    return one


def generic(one: DpEvent, size: int, delta: float, adjacency: str) -> Epsilon:
    """Any (ε, δ) for one is (kε, δ (e^(kε) − 1) / (e^ε − 1)) for k (Dwork and Roth 2014, Theorem 2.2, with its δ)."""
    found = math.inf
    for epsilon, own in Curve.of(one, adjacency, ()).points[1:]:
        far = size * epsilon
        if far < min(found, 700) and own * math.expm1(far) / math.expm1(epsilon) <= delta:
            found = far
    return Epsilon(found, "group", delta, adjacency, f"k times the ε of one, at a δ so much smaller, k = {size}")

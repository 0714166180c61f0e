"""ε by Rényi divergences (Mironov 2017; Mironov et al. 2019; Wang et al. 2019)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import dp_accounting as dp
import numpy as np
from dp_accounting import rdp
from scipy.special import gammaln

from murmura.privacy.events import changed, compose, has_integer_noise, quiet, without
from murmura.privacy.mechanisms.integers import IntegerNoise

ORDERS = [*(1 + tenth / 10 for tenth in range(1, 1000)), *range(101, 257), 512, 1024, 2048]
FEW_ORDERS = [*(1 + tenth / 10 for tenth in range(1, 21)), *range(4, 65), *range(72, 257, 8), 512, 1024, 2048]
"""For the curve of samples of a fixed size, where each order takes long: it is hardly looser with these."""
_ROUNDING = 1e-14


@dataclass(frozen=True)
class IntegerNoiseDpEvent(dp.DpEvent):
    """Integer noise on a sum of whole numbers, where neighbours' sums are ``sensitivity`` apart by L1 norm.

    Args:
        norm: votes a site, in which the noise is measured.
    """

    noise: IntegerNoise
    norm: float
    sensitivity: int

    def renyi(self, order: float) -> float:
        """An upper bound of the Rényi divergence of two neighbours' noisy sums; infinite unless the order is whole,
        since only those are bounded."""
        return self.noise.renyi(int(order), self.sensitivity, self.norm) if order == int(order) else math.inf

    def further(self, times: int) -> IntegerNoiseDpEvent:
        """The same noise where neighbours are so many times as far apart."""
        return replace(self, sensitivity=times * self.sensitivity)


class RenyiAccountant(rdp.RdpAccountant):
    """``dp_accounting``'s, which here knows integer noise too, and of samples rounds nothing away.

    A sampled step's moment is summed up from terms of which the first is nearly 1. Where noise is large and samples are
    small, floats may leave less of it than there is; below 0 it would count as ε = 0.
    """

    def _maybe_compose(self, event: Any, count: int, do_compose: bool) -> Any:
        if isinstance(event, IntegerNoiseDpEvent):
            if do_compose:
                self._rdp += count * np.array([event.renyi(order) for order in self._orders])
            return None
        if not isinstance(event, dp.PoissonSampledDpEvent | dp.SampledWithoutReplacementDpEvent):
            return super()._maybe_compose(event, count, do_compose)
        try:
            error = super()._maybe_compose(event, count, do_compose)
        except ValueError:  # the logarithm of what was rounded to 0: then no sampling is counted
            return self._maybe_compose(event.event, count, do_compose)
        if do_compose and error is None:
            self._rdp += count * _ROUNDING * (1 + gammaln(self._orders + 1)) / (self._orders - 1)
        return error


def accountant(event: dp.DpEvent, orders: Sequence[float] = ()) -> RenyiAccountant:
    """The one that has composed an event, at these orders, or at all of its kind.

    Raises:
        PrivacyError: the event is none that Rényi divergences are known of.
    """
    fixed = event != without((dp.SampledWithoutReplacementDpEvent,), event)
    relation = dp.NeighboringRelation.REPLACE_ONE if fixed else dp.NeighboringRelation.ADD_OR_REMOVE_ONE
    orders = orders or (FEW_ORDERS if fixed else ORDERS)
    if has_integer_noise(event):  # which is bounded at whole orders alone
        orders = [order for order in orders if order == int(order)]
    found: RenyiAccountant = compose(RenyiAccountant(orders, relation), event)
    return found


def epsilon(event: dp.DpEvent, delta: float) -> float:
    """ε at δ.

    Raises:
        PrivacyError: as ``accountant``.
    """
    if has_integer_noise(event):
        return float(accountant(event).get_epsilon(delta))
    return _least_over_orders(event, delta)


def _least_over_orders(event: dp.DpEvent, delta: float) -> float:
    """The least bound that any of the orders gives, without asking all of them: as the order grows, the bound falls and
    then rises. Each is valid, so one that is missed would cost tightness and nothing else. Large ones take longest."""

    def least_of(orders: Sequence[float]) -> tuple[float, float]:
        bound, order = accountant(event, orders).get_epsilon_and_optimal_order(delta)
        return float(bound), float(order)

    far, found = ORDERS[::32], list[tuple[float, float]]()
    for place in range(0, len(far), 4):
        found.append(least_of(far[place : place + 4]))
        if found[-1][0] > min(found)[0]:
            break
    for stride, within in ((4, 32), (1, 4)):
        best = ORDERS.index(min(found)[1])
        found.append(least_of(ORDERS[max(0, best - within) : best + within + 1 : stride]))
    return min(found)[0]


def rough_epsilon(event: dp.DpEvent, delta: float, by: Callable[[dp.DpEvent, float], float] = epsilon) -> float:
    """About what ε is by Rényi divergences (a caller may remember those), quickly, under any adjacency. No bound."""

    def as_poisson(part: Any) -> dp.DpEvent:
        if isinstance(part, dp.SampledWithoutReplacementDpEvent):
            return dp.PoissonSampledDpEvent(part.sample_size / part.source_dataset_size, part.event)
        if isinstance(part, dp.dp_event.MixtureOfGaussiansDpEvent):
            rate = 1 - part.sampling_probs[0]
            mean = sum(far * often for far, often in zip(part.sensitivities, part.sampling_probs, strict=True)) / rate
            return dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(part.standard_deviation / mean))
        return part

    try:
        with quiet():
            return float(by(changed(event, as_poisson), delta))
    except (OverflowError, ZeroDivisionError):
        return math.inf

"""Privacy loss distributions, with what their arithmetic may lose of δ (Koskela et al. 2020).

``dp_accounting`` composes steps by a Fourier transform in floats. It rounds losses and tails up, but what the transform
itself loses is absolute and grows with the steps: where δ is as small as that, the ε read off would be too small.
"""

from __future__ import annotations

import math
from typing import Any

import dp_accounting as dp
import numpy as np
from dp_accounting import pld
from dp_accounting.pld import common
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution, identity
from scipy import fft

_UNIT = 2.0**-53  # of a float, that one rounding may take
_STAGE = 8.0  # roundings in one stage of a transform: 1 + 4·√2 and a little (Higham 2002, Theorem 24.2)
_TAILS = 1e-15  # that are cut off and counted as an infinite loss, as ``dp_accounting`` does


class LossAccountant(pld.PLDAccountant):
    """``dp_accounting``'s, which here takes off δ what may have been lost of it: if nothing is left, ε is infinite.

    With u for a rounding, one step's distribution of n cells, and F its transform of length m:

    * each place of F is wrong by 8u·log₂(m) at most, so that of F^N by N·|F|^(N−1) times that, and the way back adds no
      more than another such error. By Parseval, and Cauchy and Schwarz, any part of the result is wrong by the L2 norm
      of these errors at most. That much is taken off δ (``lost``).
    * each cell of one step lacks a few u of the tail above it. As a measure that is no more than a share 8u·n of the
      distribution, moved down; so δ of N steps lacks a share 8u·n·N at most, and one u·m when it is summed up
      (``share``).
    """

    def __init__(self, relation: Any, grid: float) -> None:
        super().__init__(relation, grid)
        self._pld: PrivacyLossDistribution
        self.lost, self.share = 0.0, 0.0

    def _maybe_compose(self, event: Any, count: int, do_compose: bool) -> Any:
        if not do_compose or isinstance(event, dp.ComposedDpEvent | dp.SelfComposedDpEvent):
            return super()._maybe_compose(event, count, do_compose)
        if isinstance(event, dp.GaussianDpEvent):  # many are one
            event, count = dp.GaussianDpEvent(event.noise_multiplier / math.sqrt(count)), 1
        before, self._pld = self._pld, identity(self._value_discretization_interval)
        error = super()._maybe_compose(event, 1, do_compose)
        steps = self._self_composed(self._pld, count)
        self.lost += max(_lost_in_product(*both) for both in zip(_cells(before), _cells(steps), strict=True))
        self._pld = before.compose(steps, _TAILS)
        self.share += _UNIT * max(map(len, _cells(self._pld)))
        return error

    def _self_composed(self, one: PrivacyLossDistribution, count: int) -> PrivacyLossDistribution:
        if count == 1 or max(map(len, _cells(one))) == 1:
            return one.self_compose(count, _TAILS)
        self.lost += max(_lost_in_power(cells, count) for cells in _cells(one))
        self.share += _STAGE * _UNIT * count * max(map(len, _cells(one)))
        return one.self_compose(count, _TAILS)

    def get_epsilon(self, target_delta: float) -> float:
        left, step = target_delta * (1 - self.share) - self.lost, 1e-9 * self._value_discretization_interval
        found = float(super().get_epsilon(left)) if left > 0 else math.inf
        while found < math.inf and super().get_delta(found) > left:  # it was summed up less exactly than δ is
            found, step = found + step, 2 * step
        return found

    def get_delta(self, target_epsilon: float) -> float:
        found = float(super().get_delta(target_epsilon)) + self.lost
        return min(1.0, found / (1 - self.share)) if self.share < 1 else 1.0


def _cells(losses: PrivacyLossDistribution) -> list[np.ndarray]:
    """The probabilities of finite losses, for a unit that is removed and one that is added."""
    return [np.asarray(pmf.to_dense_pmf()._probs) for pmf in (losses._pmf_remove, losses._pmf_add)]


def _lost_in_power(cells: np.ndarray, count: int) -> float:
    low, high = common.compute_self_convolve_bounds(cells, count, _TAILS)
    length = fft.next_fast_len(max(high - low + 1, len(cells)))
    size = np.abs(fft.rfft(cells, length)) ** (count - 1)
    return _STAGE * _UNIT * math.log2(length) * (count + 1) * math.sqrt(2 * float(np.square(size).sum()))


def _lost_in_product(first: np.ndarray, second: np.ndarray) -> float:
    """Of a product of transforms; of a distribution in a single cell there is none."""
    if 1 in (len(first), len(second)):
        return 0.0
    length = fft.next_fast_len(len(first) + len(second) - 1)
    sizes = [float(np.linalg.norm(one)) for one in (first, second)]
    return _STAGE * _UNIT * math.log2(length) * math.sqrt(length) * (sum(sizes) + min(sizes))

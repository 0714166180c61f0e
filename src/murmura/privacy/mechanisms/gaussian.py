"""Gaussian noise, added to the sum of each step by itself.

Noise is added to *sums*; whoever averages divides afterwards, by a number that does not depend on the data.

A noisy sum leaves rounded to a grid that does not depend on the data either. A normal as a float takes few values, and
a float sum keeps its last digits: unrounded, the difference between what is released and a guess of the exact sum is
one of those values if the guess is right, and mostly is not if it is wrong (Mironov 2012). So many normals lie in each
cell of the grid that this tells next to nothing; docs/privacy.md, "Rounding", says how little.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from murmura.privacy.mechanisms.noise import Noise, Tensors
from murmura.privacy.parts import check

if TYPE_CHECKING:
    import torch
    from dp_accounting import DpEvent

    from murmura.privacy.entropy import Entropy
    from murmura.privacy.plan import PrivacyPlan

_FINENESS = 1024
"""Steps of the grid to a standard deviation, at least. Rounding adds a 12 millionth of the noise's variance."""


@dataclass(frozen=True)
class GaussianNoise(Noise):
    """N(0, (``std``·norm)²) is added to every coordinate of each sum (McMahan et al. 2018, Algorithm 1). 0: none."""

    kind: ClassVar[str] = "gaussian"
    samplers: ClassVar[tuple[str, ...]] = ("poisson", "fixed-size", "full")
    clippings: ClassVar[tuple[str, ...]] = ("example", "batch", "cluster", "site", "adaptive-site", "votes")

    def event(self, plan: PrivacyPlan, steps: int, repeated: Sequence[int]) -> DpEvent:
        import dp_accounting as dp

        # Known bounds for a Poisson sample with a record replaced assume a sum: the sample's other records cancel.
        of_sum = plan.adjacency == "zero-out" or not plan.clipping.can_reverse
        step = plan.sampler.amplified(dp.GaussianDpEvent(plan.noise_multiplier), of_sum)
        return dp.SelfComposedDpEvent(step, steps + len(repeated))

    def add(self, total: Tensors, norm: float, entropy: Entropy, shares: int = 1) -> dict[str, torch.Tensor]:
        check(shares == 1, "Gaussian noise in shares, whose rounding is not accounted for", "Use Skellam noise.")
        return gaussian(total, self.std * norm, entropy)

    def words(self, amount: str) -> str:
        return f"Gaussian noise{amount}"


def gaussian(total: Tensors, std: float, entropy: Entropy) -> dict[str, torch.Tensor]:
    """Every coordinate with N(0, ``std``²) added, as it may leave: see ``released``.

    Args:
        total: a sum of clipped contributions.
        std: in the units of ``total``: the noise of a plan times its norm. 0 adds nothing.
    """
    return released(total, noise_like(total, std, entropy), std)


def noise_like(total: Tensors, std: float, entropy: Entropy) -> dict[str, torch.Tensor]:
    """N(0, ``std``²) in the names and shapes of a sum, float64 on the CPU: never to leave but by ``released``."""
    import torch

    if not std:
        return {name: torch.zeros(tensor.shape, dtype=torch.float64) for name, tensor in total.items()}
    return {name: entropy.normal(tensor.numel()).view(tensor.shape).double() * std for name, tensor in total.items()}


def released(total: Tensors, noise: Tensors, std: float) -> dict[str, torch.Tensor]:
    """A sum with its noise as it may leave: added in float64, the result rounded to a multiple of a power of two, then
    made float32 on the sum's device (which is exact up to 2²⁴ steps, and else one more rounding of what may leave).

    The sum of both is rounded, and not each: a rounded sum differs from that without a unit by up to √d/2 steps more
    than the norm allows.

    Args:
        total: the exact sum; in float64 unless it is one of float32 by nature.
        noise: float64, of any combination of draws.
        std: of one draw; a step is a 1,024th of it at most. 0, where there is no noise: nothing is rounded.
    """
    step = math.ldexp(1.0, math.frexp(std / _FINENESS)[1] - 1) if std else 0.0
    return {name: _rounded(tensor, noise[name], step).to(tensor.device) for name, tensor in total.items()}


def _rounded(exact: torch.Tensor, noise: torch.Tensor, step: float) -> torch.Tensor:
    exact = exact.detach().cpu().double()
    if not step:
        return (exact + noise).float()
    # Whole steps of the sum are set aside, exactly, so that however large it is no digit of the noise is lost.
    whole = (exact / step).round_()
    part = noise.add(exact - whole * step).div_(step).round_()
    return whole.add_(part).mul_(step).float()

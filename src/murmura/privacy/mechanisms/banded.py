"""Noise that is correlated over a few steps, by a banded square root of all prefix sums, for DP-FTRL.

All prefix sums of x are A·x, with A the lower triangle of ones. Where C·x is released under fresh Gaussian noise z, the
sums follow as A·C⁻¹(C·x + z) = A(x + C⁻¹z). A itself has the square root whose first column is 1, 1/2, 3/8, … (the
series of (1 − x)^(−1/2): Fichtenberger, Henzinger and Upadhyay 2023). Here C is that one with the first ``bands``
diagonals alone (Choquette-Choo et al. 2023, "(Amplified) Banded Matrix Factorization"): two steps that are at least
``bands`` apart then have no row of C in common.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Self

from murmura.privacy.mechanisms.gaussian import noise_like, released
from murmura.privacy.mechanisms.noise import Noise, PrefixSums, Tensors
from murmura.privacy.observation import noised
from murmura.privacy.parts import check
from murmura.units import several

if TYPE_CHECKING:
    import torch
    from dp_accounting import DpEvent

    from murmura.privacy.clipping import Clipping
    from murmura.privacy.entropy import Entropy
    from murmura.privacy.plan import PrivacyPlan
    from murmura.privacy.samplers import Sampler


@dataclass(frozen=True)
class BandedNoise(Noise):
    """Noise C⁻¹z on each step's sum, for C a square root of all prefix sums with so many ``bands``.

    Args:
        std: standard deviation of z, in units of the norm.
        bands: diagonals of C. One is fresh noise in each step.
    """

    bands: int
    kind: ClassVar[str] = "banded"
    samplers: ClassVar[tuple[str, ...]] = ("min-separation",)

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self.bands >= 1, f"bands = {self.bands}", "A banded matrix has at least 1 band.")

    def check_fits(self, sampler: Sampler, clipping: Clipping) -> None:
        super().check_fits(sampler, clipping)
        what = f"noise with {self.bands} bands, and a unit may be back after {sampler.apart} steps"
        check(
            self.bands <= sampler.apart,
            what,
            f"Take {sampler.apart} bands at most: then no two steps of a unit share noise.",
        )

    def event(self, plan: PrivacyPlan, steps: int, repeated: Sequence[int]) -> DpEvent:
        """A step that is done again is one more row of C·x + z, and at most one step of a unit is in it, by f₀ = 1."""
        import dp_accounting as dp

        squared = squared_sensitivity(steps, self.bands, plan.sampler.apart) + len(repeated)
        return dp.GaussianDpEvent(plan.noise_multiplier / math.sqrt(squared))

    def prefix_sums(self, norm: float, entropy: Entropy) -> BandedSums:
        return BandedSums(self, norm, entropy)

    def parameters(self) -> dict[str, Any]:
        return {"bands": self.bands}

    def words(self, amount: str) -> str:
        return f"banded noise{amount}, {several(self.bands, 'band')}"


@lru_cache(maxsize=64)
def coefficients(bands: int) -> tuple[float, ...]:
    """The first column of C down to its last band: f₀ = 1, f_k = f_{k−1}·(2k − 1)/(2k)."""
    found = [1.0]
    for k in range(1, bands):
        found.append(found[-1] * (2 * k - 1) / (2 * k))
    return tuple(found)


def squared_sensitivity(steps: int, bands: int, separation: int) -> float:
    """Most of ‖C·u‖², in squared sensitivities of one step, for a unit whose steps are at least ``separation`` apart,
    with contributions u of norm 1 at most.

    Its columns of C have no row in common, so their squared lengths add up, whichever way its contributions point. The
    earlier a unit begins and the sooner it comes back, the more columns there are, and the less of them is cut off at
    the end: the worst is to take part at steps 1, 1 + separation, 1 + 2·separation and so on.

    Args:
        separation: at least ``bands``.
    """
    squares = [f * f for f in coefficients(bands)]
    return sum(sum(squares[: steps - start]) for start in range(0, steps, separation))


class BandedSums(PrefixSums):
    """The noisy sum of all steps so far.

    Step t's sum gets the noise w_t = (C⁻¹z)_t, with z_t ~ N(0, (std·norm)²) drawn afresh. C is banded and has ones on
    its diagonal, so C·w = z says w_t = z_t − Σ_{0<k<bands} f_k·w_{t−k}: each step takes back some of the noise before.

    What is kept is the exact sum, the noise in it, and that of the last ``bands`` − 1 steps.
    """

    noise: BandedNoise
    _noise: Tensors | None = None  # in the sum of all steps: Σ w
    _before: Sequence[Tensors] = ()  # w of the last steps, the latest first

    def add(self, total: Tensors) -> dict[str, torch.Tensor]:
        std = self.noise.std * self.norm
        none = noise_like(total, 0.0, self.entropy)
        old, noise = self.total or none, self._noise or none
        self.total = {name: old[name] + tensor for name, tensor in total.items()}
        taken = {name: tensor.clone() for name, tensor in none.items()}
        for share, before in zip(coefficients(self.noise.bands)[1:], self._before, strict=False):
            for name, tensor in taken.items():
                tensor.sub_(before[name], alpha=share)
        fresh = noise_like(total, std, self.entropy)
        made = {name: tensor + fresh[name] for name, tensor in taken.items()}
        self._before = [made, *self._before][: self.noise.bands - 1]
        self._noise = {name: tensor + made[name] for name, tensor in noise.items()}
        sums = released(self.total, self._noise, std)
        without = [tensor + noise[name] + taken[name] for name, tensor in self.total.items()]
        self.seen = noised(without, sums.values(), self.norm)
        return sums

    def state(self) -> dict[str, Any]:
        kept = {f"banded.noise.{back}": noise for back, noise in enumerate(self._before)}
        sums = {"banded.total": self.total, "banded.noise": self._noise}
        return {"banded.steps": len(self._before), **sums, **kept}

    def restore(self, state: Mapping[str, Any]) -> Self:
        self.total, self._noise = state["banded.total"], state["banded.noise"]
        self._before = [state[f"banded.noise.{back}"] for back in range(state["banded.steps"])]
        return self

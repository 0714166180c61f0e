"""Private prefix sums by noise that is correlated over a few steps, for DP-FTRL (Choquette-Choo et al. 2023)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from murmura.privacy.mechanisms import Tensors, gaussian
from murmura.privacy.observation import Observation, noised
from murmura.privacy.toeplitz import coefficients

if TYPE_CHECKING:
    import torch

    from murmura.privacy.entropy import Entropy
    from murmura.privacy.parts import BandedNoise


class BandedAggregator:
    """Takes each step's sum and gives the noisy sum of all steps so far.

    Step t's sum gets the noise w_t = (C⁻¹z)_t, with z_t ~ N(0, (std·norm)²) drawn afresh. C is banded and has ones on
    its diagonal, so C·w = z says w_t = z_t − Σ_{0<k<bands} f_k·w_{t−k}: each step takes back some of the noise before.

    Only released sums and the noise of the last ``bands`` − 1 steps are kept. The noise is as secret as the data.

    Args:
        noise: the plan's.
        norm: the clipping norm C.
        entropy: where z comes from.
    """

    def __init__(self, noise: BandedNoise, norm: float, entropy: Entropy) -> None:
        self.noise, self.norm = noise, norm
        self._entropy = entropy
        self.seen = Observation()
        """The fresh noise that the last step really added to what earlier noise made of its sum."""
        self._prefix: dict[str, torch.Tensor] = {}
        self._before: list[dict[str, torch.Tensor]] = []  # w of the last steps, the latest first

    def add(self, total: Tensors) -> dict[str, torch.Tensor]:
        """The private sum of all steps, this one's ``total`` included, float32."""
        corrected = {name: tensor.clone() for name, tensor in total.items()}
        for share, before in zip(coefficients(self.noise.bands)[1:], self._before, strict=False):
            for name, tensor in corrected.items():
                tensor.sub_(before[name], alpha=share)
        noisy = gaussian(corrected, self.noise.std * self.norm, self._entropy)
        self.seen = noised(corrected.values(), noisy.values(), self.norm)
        made = {name: tensor - total[name] for name, tensor in noisy.items()}
        self._before = [made, *self._before][: self.noise.bands - 1]
        old = self._prefix
        self._prefix = {name: old[name] + tensor if old else tensor for name, tensor in noisy.items()}
        return dict(self._prefix)

    def state(self) -> dict[str, Any]:
        """What a checkpoint needs, as fields of a payload: the released sum, and the noise of the last steps."""
        kept = {f"banded.noise.{back}": noise for back, noise in enumerate(self._before)}
        return {"banded.steps": len(self._before), "banded.prefix": self._prefix, **kept}

    def restore(self, state: Mapping[str, Any]) -> Self:
        """Go on from what ``state`` gave."""
        self._prefix = state["banded.prefix"]
        self._before = [state[f"banded.noise.{back}"] for back in range(state["banded.steps"])]
        return self

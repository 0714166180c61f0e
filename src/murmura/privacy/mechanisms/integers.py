"""What Skellam and discrete Gaussian noise have in common: both are for sums of whole numbers, such as votes.

What a unit adds has an L1 norm of at most its votes. Since its numbers are whole, its L2 norm is at most as large, and
so is the count of those that are not 0. A number that a unit does not change costs nothing, so it does not matter how
many there are.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from murmura.errors import PrivacyError
from murmura.privacy.mechanisms.noise import Noise, Tensors
from murmura.privacy.observation import noise_fits, noised

if TYPE_CHECKING:
    import torch
    from dp_accounting import DpEvent

    from murmura.privacy.entropy import Entropy
    from murmura.privacy.plan import PrivacyPlan


@dataclass(frozen=True)
class IntegerNoise(Noise):
    """Noise of whole numbers, of which each of several sites may add a share."""

    clippings: ClassVar[tuple[str, ...]] = ("votes",)
    has_shares: ClassVar[bool] = True

    @abstractmethod
    def renyi(self, order: int, sensitivity: int, norm: float) -> float:
        """An upper bound of the Rényi divergence of two neighbours' noisy sums.

        Args:
            sensitivity: how far apart the sums are, in votes.
            norm: votes a site.
        """

    @abstractmethod
    def draw(self, norm: float, count: int, entropy: Entropy, shares: int = 1) -> torch.Tensor:
        """Noise for ``count`` numbers of a sum, or one of so many ``shares`` of it, int64 [count].

        Args:
            norm: of the plan's clipping.
            shares: among how many sites it is divided, each of which adds its own. Where some of them are missing in
                the end, so is their share: take the fewest with which a sum may be made.

        Raises:
            PrivacyError: the noise is too wide to be drawn, or of a discrete Gaussian the plan names another number of
                shares.
        """

    def event(self, plan: PrivacyPlan, steps: int, repeated: Sequence[int]) -> DpEvent:
        import dp_accounting as dp

        from murmura.privacy.renyi import IntegerNoiseDpEvent

        votes = round(plan.sensitivity * plan.clipping.norm)
        return dp.SelfComposedDpEvent(IntegerNoiseDpEvent(self, plan.clipping.norm, votes), steps + len(repeated))

    def add(self, total: Tensors, norm: float, entropy: Entropy) -> dict[str, torch.Tensor]:
        """A step's sum with its noise, in float64."""
        return {
            name: tensor.double() + self.draw(norm, tensor.numel(), entropy).view(tensor.shape)
            for name, tensor in total.items()
        }

    def share_added(self, votes: torch.Tensor, norm: float, shares: int, entropy: Entropy, where: str) -> torch.Tensor:
        noisy = (votes + self.draw(norm, votes.numel(), entropy, shares)).to(votes.dtype)
        self.require_share(norm, shares, votes, noisy, where)
        return noisy

    def require_share(self, norm: float, shares: int, before: torch.Tensor, after: torch.Tensor, where: str) -> None:
        """
        Raises:
            PrivacyError: the difference of both cannot be a share, beyond chance.
        """
        seen, share = noised([before], [after], norm), self.std / math.sqrt(shares)
        if share and not noise_fits(self, norm, [(share, seen)]):
            times = math.sqrt(seen.squares / max(seen.numbers, 1)) / share
            what = f"votes were about to leave with noise of {times:.4g} times the standard deviation that was planned"
            fix = "Use a release of murmura as it was published: this one does not protect."
            raise PrivacyError(what, where=where, fix=fix)

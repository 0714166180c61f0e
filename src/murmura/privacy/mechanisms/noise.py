"""What every noise mechanism brings: how it is added, what it costs, and whether what was seen can be such noise."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from murmura.errors import PrivacyError
from murmura.privacy.observation import Observation
from murmura.privacy.parts import PlanPart, at_least, check
from murmura.units import told_apart

if TYPE_CHECKING:
    import torch
    from dp_accounting import DpEvent

    from murmura.privacy.clipping import Clipping
    from murmura.privacy.entropy import Entropy
    from murmura.privacy.ledger import Spent
    from murmura.privacy.plan import PrivacyPlan
    from murmura.privacy.samplers import Sampler

Tensors = Mapping[str, "torch.Tensor"]
"""An update or a sum of updates, name -> tensor: what federation calls a state."""


class PrefixSums(ABC):
    """Takes each step's sum and gives the noisy sum of all steps so far, or since the last restart.

    Exact sums and noise are kept, in float64, and are as secret as the data. Noise is never rounded by itself, and each
    sum that leaves once.

    Args:
        noise: the plan's.
        norm: the clipping norm C.
        entropy: where the noise comes from.

    Attributes:
        seen: the fresh noise that the last step really added.
    """

    noise: Any

    def __init__(self, noise: Noise, norm: float, entropy: Entropy) -> None:
        self.noise, self.norm, self.entropy = noise, norm, entropy
        self.seen = Observation()
        self.total: dict[str, torch.Tensor] = {}

    @abstractmethod
    def add(self, total: Tensors) -> dict[str, torch.Tensor]:
        """The private sum, this step's ``total`` included, float32."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """What a checkpoint needs, as fields of a payload."""

    @abstractmethod
    def restore(self, state: Mapping[str, Any]) -> Self:
        """Go on from what ``state`` gave; other fields do not matter."""


@dataclass(frozen=True)
class Noise(PlanPart):
    """Noise on the sums of clipped contributions.

    Args:
        std: its standard deviation, in clipping norms. 0 means none.

    Attributes:
        samplers, clippings: kinds with which its ε is known.
        has_shares: whether sites may add a share of it each, which a sum of shares that are rounded is not always.
    """

    std: float
    samplers: ClassVar[tuple[str, ...]] = ("full",)
    clippings: ClassVar[tuple[str, ...]] = ("example", "batch", "cluster", "site")
    has_shares: ClassVar[bool] = False

    def __post_init__(self) -> None:
        fix = "Give a finite number of clipping norms, 0 for none."
        check(0 <= self.std < math.inf, f"the noise multiplier is {self.std}", fix)

    @abstractmethod
    def event(self, plan: PrivacyPlan, steps: int, repeated: Sequence[int]) -> DpEvent:
        """What ``dp_accounting`` has to know of so many steps of a plan, with noise; see ``PrivacyPlan.event``."""

    @abstractmethod
    def words(self, amount: str) -> str:
        """It in words, with how much it is: "" or such as " 2 norms"."""

    def add(self, total: Tensors, norm: float, entropy: Entropy, shares: int = 1) -> dict[str, torch.Tensor]:
        """A step's sum with its noise, as it may leave; or with one of so many ``shares`` of it.

        Args:
            norm: the clipping norm C.
            shares: among how many sites the noise is divided, each of which adds its own. Where some of them are
                missing in the end, so is their share: take the fewest with which a sum may be made.

        Raises:
            PrivacyError: the noise is not one for single steps, or not one in so many shares.
        """
        raise PrivacyError(f"{self.kind} noise is for sums of all steps", fix="Use Gaussian noise.")

    def prefix_sums(self, norm: float, entropy: Entropy) -> PrefixSums:
        """What adds it to sums of all steps so far.

        Raises:
            PrivacyError: the noise is one for single steps.
        """
        raise PrivacyError(f"{self.kind} noise is for single steps", fix="Use tree or banded noise.")

    def divided(self, sites: int) -> Noise:
        """It, where so many sites add a share each."""
        return self

    def check_fits(self, sampler: Sampler, clipping: Clipping) -> None:
        """
        Raises:
            PrivacyError: its ε is not known with these.
        """
        for role, kind, known in (
            ("sampler", sampler.kind, self.samplers),
            ("clipping", clipping.kind, self.clippings),
        ):
            what = f"ε of {self.kind} noise is not known with the {role} '{kind}'"
            check(kind in known, what, f"Choose one of these: {', '.join(known)}.")

    def least(self, norm: float) -> float:
        """The least standard deviation above 0, in norms, that a bound is known of."""
        return 0.0

    def moments(self, sigma: float) -> tuple[float, float]:
        """Its second and fourth moment, in units of σ: the standard deviation that it is said to have."""
        return 1.0, 3.0

    def parameters(self) -> dict[str, Any]:
        """What else a ledger holds of a step with it, which must be as planned."""
        return {}

    def departures(self, entry: Spent) -> list[str]:
        """In words, where steps had other noise by what the ledger says."""
        found = []
        if not at_least(entry.noise_std, self.std):
            shares = f" in {entry.shares} shares" if entry.shares is not None else ""
            used, planned = told_apart(entry.noise_std, self.std)
            found.append(f"its noise was {used} norms{shares} where {planned} was planned")
        if entry.shares is not None and not self.has_shares:
            # Shares are rounded before they are summed, and a sum of rounded Gaussians is not accounted for.
            found.append(f"its {self.kind} noise was in shares, where only integer noise may be")
        for name, planned in self.parameters().items():
            if (done := entry.parameters.get(name)) != planned:
                found.append(f"it had {name} = {done} where {planned} was planned")
        return found

    def describe(self) -> str:
        return self.words(f" {self.std:.4g} norms") if self.std else "no noise"

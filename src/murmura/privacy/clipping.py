"""What bounds a unit's influence on the sum of a step: each kind of clipping, and how whole updates are clipped."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from murmura.privacy.observation import SLACK, Observation, chi_square, length
from murmura.privacy.parts import PlanPart, Unit, at_least, check, same
from murmura.units import several, told_apart

if TYPE_CHECKING:
    import torch

    from murmura.privacy.entropy import Entropy
    from murmura.privacy.ledger import Spent
    from murmura.privacy.mechanisms.noise import Tensors

_MARGIN = 1 - 1e-6  # float32 rounding must not carry a clipped update beyond its norm
_SMALLEST = 2.0**-126  # factor that float32 holds with all its digits


@dataclass(frozen=True)
class Clipping(PlanPart):
    """A bound on each unit's contribution.

    Args:
        norm: C, of the contribution or of each group of its tensors.

    Attributes:
        groups: how many groups of tensors are clipped by themselves.
        unit: whose contribution is bounded.
        can_reverse: one unit can turn all of a step's sum around, which is no sum of contributions then.
    """

    norm: float
    unit: ClassVar[Unit] = "record"
    can_reverse: ClassVar[bool] = False

    def __post_init__(self) -> None:
        fix = "Give a positive number: what is not clipped has no bounded influence."
        check(0 < self.norm < math.inf, f"clipping norm = {self.norm}", fix)

    @property
    def groups(self) -> int:
        return 1

    def sensitivity(self, replaced: bool) -> float:
        """How far one unit can move the sum of a step (L2; of votes L1 too), in norms.

        Args:
            replaced: neighbours differ by a unit replaced, and not by one that contributes nothing.
        """
        return (2.0 if replaced or self.can_reverse else 1.0) * math.sqrt(self.groups)

    def multiplier(self, std: float) -> float:
        """Noise of ``std`` norms on the sum, together with whatever else is released of a step, as one Gaussian."""
        return std

    @property
    def observed(self) -> tuple[str, int]:
        """How ``Observation.clipped`` calls it: kind and groups."""
        return self.kind, self.groups

    def parameters(self) -> dict[str, Any]:
        """What else a ledger holds of a step that was clipped so."""
        return {}

    def departures(self, entry: Spent) -> list[str]:
        """In words, where steps were not clipped so by what the ledger says."""
        if same(entry.clip_norm, self.norm):
            return []
        done, planned = told_apart(entry.clip_norm, self.norm)
        return [f"it clipped to {done} where {planned} was planned"]

    def contradictions(self, entries: Sequence[Spent], seen: Observation) -> list[str]:
        """In words, where what was ``seen`` of all steps together cannot be so clipped."""
        found = [
            f"it was seen to clip by {kind} in {several(groups, 'group')} of tensors, where "
            f"{self.observed[0]} in {self.observed[1]} was planned"
            for kind, groups in seen.clipped
            if (kind, groups) != self.observed
        ]
        if not seen.after <= 1 + SLACK:
            found.append(f"a clipped contribution of {seen.after:.8g} norms was seen, where 1 is the most")
        return found

    def next_norm(self, norm: float, balance: float, expected: float, entropy: Entropy) -> tuple[float, Observation]:
        """C of the next round, and what was seen of the noise that it was made with: here, the same C."""
        return norm, Observation()


@dataclass(frozen=True)
class _Gradient(Clipping):
    groups: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self.groups >= 1, f"groups = {self.groups}", "There is at least 1 group of tensors.")

    def describe(self) -> str:
        groups = "" if self.groups == 1 else f" in each of {self.groups} groups of tensors"
        return f"each {self.kind}'s gradient clipped to {self.norm:g}{groups}"


@dataclass(frozen=True)
class ExampleClipping(_Gradient):
    """Each example's gradient, in each of ``groups`` groups of tensors, is scaled down to L2 norm ``norm``."""

    kind: ClassVar[str] = "example"


@dataclass(frozen=True)
class BatchClipping(_Gradient):
    """The gradient of a batch's mean loss is clipped, as in DP-LoRA's letter: one example can turn all of it around."""

    kind: ClassVar[str] = "batch"
    can_reverse: ClassVar[bool] = True


@dataclass(frozen=True)
class ClusterClipping(Clipping):
    """Each vector is scaled to length ``norm`` and added to the sum of one cluster, whose count it raises by ``norm``
    (SuLQ k-means: Blum et al. 2005). So a record moves the sums and the counts, of all clusters together, by √2 norms.
    """

    norm: float = 1.0
    kind: ClassVar[str] = "cluster"

    @property
    def groups(self) -> int:
        return 2

    def describe(self) -> str:
        return f"each vector scaled to length {self.norm:g} and counted, in one cluster"


@dataclass(frozen=True)
class SiteClipping(Clipping):
    """A site's whole update is scaled down to L2 norm ``norm`` (DP-FedAvg: McMahan et al. 2018; DP-FTRL)."""

    kind: ClassVar[str] = "site"
    unit: ClassVar[Unit] = "site"

    def describe(self) -> str:
        return f"each site's update clipped to {self.norm:g}"


@dataclass(frozen=True)
class AdaptiveSiteClipping(SiteClipping):
    """A site's update is clipped to a norm that follows a quantile of all norms (Andrew et al. 2021, Algorithm 1).

    Args:
        norm: C₀, the first norm.
        quantile: γ, the fraction of updates that should stay unclipped, in [0, 1].
        learning_rate: η_C of the geometric step.
        count_noise: σ_b, standard deviation of the noise on the *count* of unclipped updates; the paper takes a
            twentieth of the sites in a round.
    """

    quantile: float
    learning_rate: float
    count_noise: float
    kind: ClassVar[str] = "adaptive-site"

    def __post_init__(self) -> None:
        super().__post_init__()
        check(0 <= self.quantile <= 1, f"quantile = {self.quantile}", "A quantile lies in [0, 1].")
        check(self.learning_rate > 0, f"learning_rate = {self.learning_rate}", "Give a positive number, such as 0.2.")
        fix = "Give a positive number, such as a twentieth of the sites in a round."
        check(self.count_noise > 0, f"count_noise = {self.count_noise}", fix)

    def multiplier(self, std: float) -> float:
        """z of the sum (noise ``std``·C) and of the count (noise σ_b, sensitivity ½) as one release (Andrew et al.
        2021, Theorem 1)."""
        return (std**-2 + (2 * self.count_noise) ** -2) ** -0.5 if std else 0.0

    def split(self, multiplier: float) -> float:
        """z_Δ: the noise on the sum, in norms, with which sum and count together have ``multiplier``.

        Raises:
            PrivacyError: the count alone spends more than that.
        """
        fix = f"Make count_noise larger than {multiplier / 2:g}."
        check(multiplier < 2 * self.count_noise, "the count of unclipped sites spends the whole budget", fix)
        return (multiplier**-2 - (2 * self.count_noise) ** -2) ** -0.5 if multiplier else 0.0

    @property
    def observed(self) -> tuple[str, int]:
        return SiteClipping.kind, self.groups

    def parameters(self) -> dict[str, Any]:
        return {"count_noise": self.count_noise}

    def departures(self, entry: Spent) -> list[str]:
        """The norm may vary, since it follows from accounted releases; the noise on the count may not."""
        found = entry.parameters.get("count_noise")
        if at_least(found, self.count_noise):
            return []
        return [f"its count noise was {found} where {self.count_noise:g} was planned"]

    def contradictions(self, entries: Sequence[Spent], seen: Observation) -> list[str]:
        found = super().contradictions(entries, seen)
        noisy = [(entry, entry.observed or Observation()) for entry in entries if entry.noise_std > 0]
        squares = sum(
            one.count_squares / (entry.parameters.get("count_noise") or math.inf) ** 2 for entry, one in noisy
        )
        if noisy and not chi_square(squares, seen.counts):
            found.append("the noise on the count was seen to be another than planned")
        return found

    def next_norm(self, norm: float, balance: float, expected: float, entropy: Entropy) -> tuple[float, Observation]:
        """C of the next round, from a noisy count of updates that were within this one's.

        ``b̃ = ½ + (Σᵢ (bᵢ − ½) + N(0, σ_b²)) / m`` and ``C ← C · exp(−η_C (b̃ − γ))``: norms shrink while too few are
        clipped, and grow while too many are. This round's noise was made with this round's C. What was seen of it is
        what must have been added for the norm to have moved so.

        Args:
            norm: C of this round.
            balance: Σ(bᵢ − ½) of the sites that replied.
            expected: m, the sites a round is planned for, however many replied.
        """
        import torch

        from murmura.privacy.mechanisms.gaussian import gaussian

        total = {"count": torch.tensor(balance, dtype=torch.float64)}
        fraction = 0.5 + float(gaussian(total, self.count_noise, entropy)["count"]) / expected
        moved = norm * math.exp(-self.learning_rate * (fraction - self.quantile))
        shown = self.quantile - math.log(moved / norm) / self.learning_rate
        return moved, Observation(counts=1, count_squares=((shown - 0.5) * expected - balance) ** 2)

    def describe(self) -> str:
        return (
            f"each site's update clipped to the {self.quantile:g}-quantile of norms "
            f"(from {self.norm:g}, count noise {self.count_noise:g})"
        )


@dataclass(frozen=True)
class VoteLimit(Clipping):
    """A site casts at most ``norm`` votes, and only whole ones (PrE-Text: Hou et al. 2024, Algorithm 2).

    So the L1 norm of its vector is at most ``norm``, and with it the L2 norm and how many of its numbers are not zero.
    """

    norm: int
    kind: ClassVar[str] = "votes"
    unit: ClassVar[Unit] = "site"

    def __post_init__(self) -> None:
        whole = isinstance(self.norm, int) and self.norm >= 1
        check(whole, f"at most {self.norm!r} votes a site", "Give a whole number, at least 1.")

    def describe(self) -> str:
        return f"at most {self.norm} vote{'s' * (self.norm != 1)} a site"


CLIPPINGS: dict[str, type[Clipping]] = {
    one.kind: one
    for one in (ExampleClipping, BatchClipping, ClusterClipping, SiteClipping, AdaptiveSiteClipping, VoteLimit)
}


def clip(update: Tensors, norm: float) -> tuple[dict[str, torch.Tensor], bool]:
    """Scale all tensors together down to L2 norm ``norm`` (McMahan et al. 2018, Algorithm 1).

    Returns:
        The float32 update; whether it was within the norm already. An update with a NaN or an infinity, or so long
        that no float32 factor brings it to its norm, counts as zero, and as one that was too long.
    """
    size = length(update.values())
    if not math.isfinite(size) or norm / max(size, norm) * _MARGIN < _SMALLEST:
        return {name: tensor.new_zeros(tensor.shape).float() for name, tensor in update.items()}, False
    if size <= norm:
        return {name: tensor.float() for name, tensor in update.items()}, True
    factor = norm / size * _MARGIN
    return {name: tensor.float() * factor for name, tensor in update.items()}, False

"""What a privacy plan is made of: samplers, clippings and noises. Small frozen values, all of them public."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, get_args

from murmura.errors import PrivacyError, nearest


def check(holds: bool, what: str, fix: str) -> None:
    """Refuse what makes no sense.

    Raises:
        PrivacyError: unless it ``holds``.
    """
    if not holds:
        raise PrivacyError(what, fix=fix)


@dataclass(frozen=True)
class PoissonSampling:
    """Every unit takes part in a step with probability ``rate``, independently of all others."""

    rate: float
    kind: ClassVar[str] = "poisson"

    def __post_init__(self) -> None:
        fix = "A sampling rate is a probability: above 0, at most 1 (expected batch size / number of units)."
        check(0 < self.rate <= 1, f"sampling rate = {self.rate}", fix)

    def expected(self, population: int) -> float:
        """The expected batch size, by which the noisy sum is divided."""
        return self.rate * population

    def describe(self) -> str:
        return f"Poisson sampling at rate {self.rate:.6g}"


@dataclass(frozen=True)
class FixedSizeSampling:
    """``batch`` different units a step, drawn afresh from all ``population`` of them with equal chances."""

    batch: int
    population: int
    kind: ClassVar[str] = "fixed-size"

    def __post_init__(self) -> None:
        check(self.batch >= 1, f"batch = {self.batch}", "A batch holds at least 1 unit.")
        what = f"the data set is smaller than the batch: {self.population} units, batch {self.batch}"
        check(self.population >= self.batch, what, f"Make the batch at most {self.population}, or add data.")

    def expected(self, population: int) -> float:
        """The batch size, by which the noisy sum is divided."""
        return float(self.batch)

    def describe(self) -> str:
        return f"{self.batch} of {self.population} without replacement"


@dataclass(frozen=True)
class FullParticipation:
    """Every unit takes part in every step. Sound for fewer steps too, if whose turn it is depends on nobody else."""

    kind: ClassVar[str] = "full"

    def expected(self, population: int) -> float:
        """All of them: the noisy sum is divided by this."""
        return float(population)

    def describe(self) -> str:
        return "every unit in every step"


@dataclass(frozen=True)
class OncePerTree:
    """With tree noise: a unit takes part in at most one step between two restarts, among ``batch`` units a step.

    Whose turn is when must not depend on who else is there, so that a missing unit leaves a gap and moves nobody,
    as the zero-out adjacency has it (Kairouz et al. 2021, Definition 1.1).
    """

    batch: int
    kind: ClassVar[str] = "once-per-tree"

    def __post_init__(self) -> None:
        check(self.batch >= 1, f"batch = {self.batch}", "A batch holds at least 1 unit.")

    def expected(self, population: int) -> float:
        """The batch size, by which the noisy sum is divided."""
        return float(self.batch)

    def describe(self) -> str:
        return f"{self.batch} a step, each at most once a tree"


@dataclass(frozen=True)
class MinSeparation:
    """With banded noise: two steps of one unit are at least ``separation`` apart, ``batch`` units a step.

    Whose turn is when must not depend on who else is there, as with ``OncePerTree`` (Choquette-Choo et al. 2023 call it
    b-min-separated participation).
    """

    batch: int
    separation: int
    kind: ClassVar[str] = "min-separation"

    def __post_init__(self) -> None:
        check(self.batch >= 1, f"batch = {self.batch}", "A batch holds at least 1 unit.")
        check(self.separation >= 1, f"separation = {self.separation}", "Steps are at least 1 apart.")

    def expected(self, population: int) -> float:
        """The batch size, by which the noisy sum is divided."""
        return float(self.batch)

    def describe(self) -> str:
        return f"{self.batch} a step, each again after {self.separation} steps at the soonest"


@dataclass(frozen=True)
class _Grouped:
    norm: float
    groups: int = 1
    kind: ClassVar[str] = ""

    def __post_init__(self) -> None:
        _check_norm(self.norm)
        check(self.groups >= 1, f"groups = {self.groups}", "There is at least 1 group of tensors.")

    def _apart(self) -> str:
        return f"{self.norm:g}" if self.groups == 1 else f"{self.norm:g} in each of {self.groups} groups of tensors"


@dataclass(frozen=True)
class ExampleClipping(_Grouped):
    """Each example's gradient, in each of ``groups`` groups of tensors, is scaled down to L2 norm ``norm``."""

    kind: ClassVar[str] = "example"

    def describe(self) -> str:
        return f"each example's gradient clipped to {self._apart()}"


@dataclass(frozen=True)
class BatchClipping(_Grouped):
    """The gradient of a batch's mean loss is clipped, as in DP-LoRA's letter: one example can turn all of it around."""

    kind: ClassVar[str] = "batch"

    def describe(self) -> str:
        return f"each batch's gradient clipped to {self._apart()}"


@dataclass(frozen=True)
class ClusterClipping:
    """Each vector is scaled to length ``norm`` and added to the sum of one cluster, whose count it raises by ``norm``
    (SuLQ k-means: Blum et al. 2005). So a record moves the sums and the counts, of all clusters together, by √2 norms.
    """

    norm: float = 1.0
    kind: ClassVar[str] = "cluster"
    groups: ClassVar[int] = 2

    def __post_init__(self) -> None:
        _check_norm(self.norm)

    def describe(self) -> str:
        return f"each vector scaled to length {self.norm:g} and counted, in one cluster"


@dataclass(frozen=True)
class SiteClipping:
    """A site's whole update is scaled down to L2 norm ``norm`` (DP-FedAvg: McMahan et al. 2018; DP-FTRL)."""

    norm: float
    kind: ClassVar[str] = "site"
    groups: ClassVar[int] = 1

    def __post_init__(self) -> None:
        _check_norm(self.norm)

    def describe(self) -> str:
        return f"each site's update clipped to {self.norm:g}"


@dataclass(frozen=True)
class AdaptiveSiteClipping:
    """A site's update is clipped to a norm that follows a quantile of all norms (Andrew et al. 2021, Algorithm 1).

    Args:
        norm: C₀, the first norm.
        quantile: γ, the fraction of updates that should stay unclipped, in [0, 1].
        learning_rate: η_C of the geometric step.
        count_noise: σ_b, standard deviation of the noise on the *count* of unclipped updates; the paper takes a
            twentieth of the sites in a round.
    """

    norm: float
    quantile: float
    learning_rate: float
    count_noise: float
    kind: ClassVar[str] = "adaptive-site"
    groups: ClassVar[int] = 1

    def __post_init__(self) -> None:
        _check_norm(self.norm)
        check(0 <= self.quantile <= 1, f"quantile = {self.quantile}", "A quantile lies in [0, 1].")
        check(self.learning_rate > 0, f"learning_rate = {self.learning_rate}", "Give a positive number, such as 0.2.")
        fix = "Give a positive number, such as a twentieth of the sites in a round."
        check(self.count_noise > 0, f"count_noise = {self.count_noise}", fix)

    def combined(self, std: float) -> float:
        """z of the sum (noise ``std``·C) and of the count (noise σ_b, sensitivity ½) as one release."""
        return (std**-2 + (2 * self.count_noise) ** -2) ** -0.5 if std else 0.0

    def split(self, multiplier: float) -> float:
        """z_Δ: the noise on the sum, in norms, with which sum and count together have ``multiplier``.

        Raises:
            PrivacyError: the count alone spends more than that.
        """
        fix = f"Make count_noise larger than {multiplier / 2:g}."
        check(multiplier < 2 * self.count_noise, "the count of unclipped sites spends the whole budget", fix)
        return (multiplier**-2 - (2 * self.count_noise) ** -2) ** -0.5 if multiplier else 0.0

    def describe(self) -> str:
        return (
            f"each site's update clipped to the {self.quantile:g}-quantile of norms "
            f"(from {self.norm:g}, count noise {self.count_noise:g})"
        )


@dataclass(frozen=True)
class VoteLimit:
    """A site casts at most ``norm`` votes, and only whole ones (PrE-Text: Hou et al. 2024, Algorithm 2).

    So the L1 norm of its vector is at most ``norm``, and with it the L2 norm and how many of its numbers are not zero.
    """

    norm: int
    kind: ClassVar[str] = "votes"
    groups: ClassVar[int] = 1

    def __post_init__(self) -> None:
        whole = isinstance(self.norm, int) and self.norm >= 1
        check(whole, f"at most {self.norm!r} votes a site", "Give a whole number, at least 1.")

    def describe(self) -> str:
        return f"at most {self.norm} vote{'s' * (self.norm != 1)} a site"


@dataclass(frozen=True)
class GaussianNoise:
    """N(0, (``std``·norm)²) is added to every coordinate of each step's sum. 0 means none."""

    std: float
    kind: ClassVar[str] = "gaussian"

    def __post_init__(self) -> None:
        _check_std(self.std)

    def describe(self) -> str:
        return f"Gaussian noise {self.std:.4g} norms" if self.std else "no noise"


@dataclass(frozen=True)
class TreeNoise:
    """Tree aggregation of DP-FTRL (Kairouz et al. 2021): every node of a binary tree over the steps is noisy.

    Args:
        std: standard deviation of a node's noise, in units of the norm.
        restart_every: steps a tree spans.
        honaker: estimate prefix sums from all nodes, not from the fewest (Honaker 2015). Costs no privacy.
    """

    std: float
    restart_every: int
    honaker: bool = True
    kind: ClassVar[str] = "tree"

    def __post_init__(self) -> None:
        _check_std(self.std)
        check(self.restart_every >= 1, f"restart_every = {self.restart_every}", "A tree spans at least 1 step.")

    def describe(self) -> str:
        every = "every step" if self.restart_every == 1 else f"every {self.restart_every} steps"
        return f"tree noise {self.std:.4g} norms a node, restarted {every}" if self.std else "no noise"


@dataclass(frozen=True)
class BandedNoise:
    """Noise C⁻¹z on each step's sum, for C a square root of all prefix sums with so many ``bands``
    (``privacy.toeplitz``).

    Args:
        std: standard deviation of z, in units of the norm.
        bands: diagonals of C. One is fresh noise in each step.
    """

    std: float
    bands: int
    kind: ClassVar[str] = "banded"

    def __post_init__(self) -> None:
        _check_std(self.std)
        check(self.bands >= 1, f"bands = {self.bands}", "A banded matrix has at least 1 band.")

    def describe(self) -> str:
        return (
            f"banded noise {self.std:.4g} norms, {self.bands} band{'s' * (self.bands != 1)}" if self.std else "no noise"
        )


@dataclass(frozen=True)
class SkellamNoise:
    """The difference of two Poisson variables, of variance (``std``·norm)², is added to every number of a sum of whole
    numbers (Agarwal, Kairouz and Liu 2021). 0 means none.

    A sum of shares by several sites, each of a part of this variance, has the same distribution.
    """

    std: float
    kind: ClassVar[str] = "skellam"

    def __post_init__(self) -> None:
        _check_std(self.std)

    def describe(self) -> str:
        return f"Skellam noise {self.std:.4g} norms" if self.std else "no noise"


@dataclass(frozen=True)
class DiscreteGaussianNoise:
    """A discrete Gaussian of parameter σ = ``std``·norm is added to every number of a sum of whole numbers (Canonne,
    Kamath and Steinke 2020), or by each of so many sites one of σ/√``sites`` (Kairouz, Liu and Steinke 2021).

    A sum of such shares is nearly a discrete Gaussian, but not one: how nearly is accounted for, and depends on the
    number of sites.

    Args:
        std: σ in units of the norm. 0 means none.
        sites: that add a share each; 1 where one party adds all of it.
    """

    std: float
    sites: int = 1
    kind: ClassVar[str] = "discrete-gaussian"

    def __post_init__(self) -> None:
        _check_std(self.std)
        whole = isinstance(self.sites, int) and self.sites >= 1
        check(whole, f"discrete Gaussian noise of {self.sites!r} sites", "Give a whole number of sites, at least 1.")

    def describe(self) -> str:
        shares = f" in {self.sites} shares" if self.sites > 1 else ""
        return f"discrete Gaussian noise {self.std:.4g} norms{shares}" if self.std else "no noise"


Sampler = PoissonSampling | FixedSizeSampling | FullParticipation | OncePerTree | MinSeparation
Clipping = ExampleClipping | BatchClipping | ClusterClipping | SiteClipping | AdaptiveSiteClipping | VoteLimit
IntegerNoise = SkellamNoise | DiscreteGaussianNoise
Noise = GaussianNoise | TreeNoise | BandedNoise | IntegerNoise

_KINDS: dict[str, dict[str, Any]] = {
    role: {one.kind: one for one in get_args(kinds)}
    for role, kinds in (("sampler", Sampler), ("clipping", Clipping), ("noise", Noise))
}


def table(value: Sampler | Clipping | Noise) -> dict[str, Any]:
    """A part as what JSON can hold: its kind and its fields."""
    return {"kind": value.kind, **asdict(value)}


def part(role: str, data: Mapping[str, Any]) -> Any:
    """The ``sampler``, ``clipping`` or ``noise`` that ``table`` wrote.

    Raises:
        PrivacyError: unknown kind.
    """
    kinds = _KINDS[role]
    check(data["kind"] in kinds, f"{role} '{data['kind']}' is unknown", nearest(data["kind"], kinds))
    return kinds[data["kind"]](**{name: value for name, value in data.items() if name != "kind"})


def _check_norm(norm: float) -> None:
    fix = "Give a positive number: what is not clipped has no bounded influence."
    check(0 < norm < math.inf, f"clipping norm = {norm}", fix)


def _check_std(std: float) -> None:
    check(0 <= std < math.inf, f"noise = {std}", "Give a finite number of clipping norms, 0 for none.")

"""Who takes part in each step: how it is drawn, what it saves of ε, and whether what was seen can be so drawn.

The sample is as secret as the noise: amplification by sampling rests on it.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from murmura.privacy.observation import CHANCE, Observation
from murmura.privacy.parts import PlanPart, check
from murmura.units import several

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from murmura.privacy.entropy import Entropy


@dataclass(frozen=True)
class Sampler(PlanPart):
    """Which units take part in a step.

    Attributes:
        replaces: a batch holds another unit in the place of a missing one, so neighbours count as replaced.
    """

    replaces: ClassVar[bool] = False

    @abstractmethod
    def expected(self, population: int) -> float:
        """The expected batch size, by which the noisy sum is divided."""

    @abstractmethod
    def batches(self, population: int, steps: int, entropy: Entropy) -> list[list[int]]:
        """For each step the indices of those who take part, in order.

        Raises:
            PrivacyError: it cannot be done with so many units.
        """

    @property
    def is_secret(self) -> bool:
        """Whether ε counts on nobody knowing who took part in a step."""
        return False

    def amplified(self, event: DpEvent, of_sum: bool) -> DpEvent:
        """A Gaussian release of one step, for somebody who does not know the sample.

        Args:
            of_sum: two neighbours' steps differ by one unit's contribution; the rest of the sample cancels.
        """
        return event

    @property
    def apart(self) -> int:
        """The fewest steps between two in which a unit takes part."""
        return 1

    @property
    def coin(self) -> float | None:
        """The probability with which each unit takes part in a step, if that depends on no other unit. The larger it
        is, all else equal, the larger is ε at every δ."""
        return None

    def contradiction(self, seen: Observation, unit: str) -> str | None:
        """In words, where what was seen of all steps cannot be so drawn; None where it can."""
        if self._fits(seen):
            return None
        expected = self._expected(seen)
        return (
            f"{seen.drawn} {unit}s of {seen.chances} were seen to take part, over all steps, where {expected:.6g} "
            f"{'are' if expected != 1 else 'is'} to be expected"
        )

    def _expected(self, seen: Observation) -> float:
        return self.expected(seen.chances)

    def _fits(self, seen: Observation) -> bool:
        return seen.drawn == self._expected(seen)


@dataclass(frozen=True)
class PoissonSampling(Sampler):
    """Every unit takes part in a step with probability ``rate``, independently of all others.

    A batch may be empty, and must still be released, as noise alone: that it was empty is a secret too.
    """

    rate: float
    kind: ClassVar[str] = "poisson"

    def __post_init__(self) -> None:
        fix = "A sampling rate is a probability: above 0, at most 1 (expected batch size / number of units)."
        check(0 < self.rate <= 1, f"sampling rate = {self.rate}", fix)

    def expected(self, population: int) -> float:
        return self.rate * population

    def batches(self, population: int, steps: int, entropy: Entropy) -> list[list[int]]:
        return [(entropy.uniform(population) < self.rate).nonzero()[0].tolist() for _ in range(steps)]

    @property
    def is_secret(self) -> bool:
        return self.rate < 1

    def amplified(self, event: DpEvent, of_sum: bool) -> DpEvent:
        import dp_accounting as dp

        return dp.PoissonSampledDpEvent(self.rate, event) if self.is_secret and of_sum else event

    @property
    def coin(self) -> float | None:
        return self.rate if self.is_secret else None

    def _fits(self, seen: Observation) -> bool:
        return binomial(seen.drawn, seen.chances, self.rate)

    def describe(self) -> str:
        return f"Poisson sampling at rate {self.rate:.6g}"


@dataclass(frozen=True)
class FullParticipation(Sampler):
    """Every unit takes part in every step. Sound for fewer steps too, if whose turn it is depends on nobody else."""

    kind: ClassVar[str] = "full"

    def expected(self, population: int) -> float:
        return float(population)

    def batches(self, population: int, steps: int, entropy: Entropy) -> list[list[int]]:
        return [list(range(population)) for _ in range(steps)]

    def describe(self) -> str:
        return "every unit in every step"


@dataclass(frozen=True)
class _Batches(Sampler):
    batch: int

    def __post_init__(self) -> None:
        check(self.batch >= 1, f"batch = {self.batch}", "A batch holds at least 1 unit.")

    def expected(self, population: int) -> float:
        return float(self.batch)

    def _expected(self, seen: Observation) -> float:
        return float(self.batch * seen.steps)


@dataclass(frozen=True)
class FixedSizeSampling(_Batches):
    """``batch`` different units a step, drawn afresh from all ``population`` of them with equal chances."""

    population: int
    kind: ClassVar[str] = "fixed-size"
    replaces: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        what = f"the data set is smaller than the batch: {self.population} units, batch {self.batch}"
        check(self.population >= self.batch, what, f"Make the batch at most {self.population}, or add data.")

    def batches(self, population: int, steps: int, entropy: Entropy) -> list[list[int]]:
        what = f"the plan is for {self.population} units, and there are {population}"
        check(population == self.population, what, "Plan for what there is.")
        return [sorted(_shuffled(population, entropy)[: self.batch]) for _ in range(steps)]

    @property
    def is_secret(self) -> bool:
        return self.batch < self.population

    def amplified(self, event: DpEvent, of_sum: bool) -> DpEvent:
        import dp_accounting as dp

        sampled = dp.SampledWithoutReplacementDpEvent(self.population, self.batch, event)
        return sampled if self.is_secret else event

    def _fits(self, seen: Observation) -> bool:
        return super()._fits(seen) and seen.chances == self.population * seen.steps

    def describe(self) -> str:
        return f"{self.batch} of {self.population} without replacement"


@dataclass(frozen=True)
class OncePerTree(_Batches):
    """With tree noise: a unit takes part in at most one step between two restarts, among ``batch`` units a step.

    Whose turn is when must not depend on who else is there, so that a missing unit leaves a gap and moves nobody,
    as the zero-out adjacency has it (Kairouz et al. 2021, Definition 1.1).
    """

    kind: ClassVar[str] = "once-per-tree"

    def batches(self, population: int, steps: int, entropy: Entropy) -> list[list[int]]:
        """For each step of one tree."""
        what = f"{population} units cannot take part once each in {steps} steps of {self.batch}"
        check(population >= self.batch * steps, what, "Restart the tree sooner, or take fewer units a step.")
        order = _shuffled(population, entropy)
        return [sorted(order[step * self.batch : (step + 1) * self.batch]) for step in range(steps)]

    def contradiction(self, seen: Observation, unit: str) -> str | None:
        if seen.apart is None:
            return super().contradiction(seen, unit)
        return f"{_back(seen.apart, unit)}, in a tree that it may be in once"

    def describe(self) -> str:
        return f"{self.batch} a step, each at most once a tree"


@dataclass(frozen=True)
class MinSeparation(_Batches):
    """With banded noise: two steps of one unit are at least ``separation`` apart, ``batch`` units a step.

    Whose turn is when must not depend on who else is there, as with ``OncePerTree`` (Choquette-Choo et al. 2023 call it
    b-min-separated participation).
    """

    separation: int
    kind: ClassVar[str] = "min-separation"

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self.separation >= 1, f"separation = {self.separation}", "Steps are at least 1 apart.")

    @property
    def apart(self) -> int:
        return self.separation

    def batches(self, population: int, steps: int, entropy: Entropy) -> list[list[int]]:
        """In one order of all n, m of them a step: each is back after ⌊n/m⌋ steps or one more."""
        what = f"{population} units, {self.batch} a step, cannot keep away for {self.separation} steps"
        check(population >= self.batch * self.separation, what, "Take fewer units a step.")
        order, places = _shuffled(population, entropy), range(self.batch)
        return [sorted(order[(step * self.batch + place) % population] for place in places) for step in range(steps)]

    def contradiction(self, seen: Observation, unit: str) -> str | None:
        if seen.apart is None or seen.apart >= self.separation:
            return super().contradiction(seen, unit)
        return f"{_back(seen.apart, unit)}, where {self.separation} are the fewest"

    def describe(self) -> str:
        return f"{self.batch} a step, each again after {self.separation} steps at the soonest"


SAMPLERS: dict[str, type[Sampler]] = {
    one.kind: one for one in (PoissonSampling, FixedSizeSampling, FullParticipation, OncePerTree, MinSeparation)
}


def binomial(drawn: int, chances: int, rate: float) -> bool:
    """Whether so many of ``chances`` can have been drawn, each with probability ``rate``."""
    from scipy.stats import binom

    return bool(min(binom.cdf(drawn, chances, rate), binom.sf(drawn - 1, chances, rate)) >= CHANCE / 2)


def _back(apart: int, unit: str) -> str:
    return f"a {unit} was seen to be back after {several(apart, 'step')}"


def _shuffled(population: int, entropy: Entropy) -> list[int]:
    # Two keys of 63 bits coincide too rarely to matter.
    order: list[int] = entropy.integers(2**63, population).argsort().tolist()
    return order

"""What the code that samples, clips and noises saw itself do, and whether that can be what a plan says.

Batch sizes and norms follow from the records, so an observation is as secret as they are. It stays in the ledger of the
party that made it; all that leaves is the verdict.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from murmura.privacy.parts import FixedSizeSampling, FullParticipation, MinSeparation, OncePerTree, PoissonSampling

if TYPE_CHECKING:
    import torch

    from murmura.privacy.ledger import Spent
    from murmura.privacy.plan import PrivacyPlan

CHANCE = 1e-9
"""Two-sided: what is less probable than this under a plan contradicts it. So chance makes one verdict in 10⁹ wrong."""
SLACK = 1e-6
"""How much longer than C a clipped contribution may be measured, and how far, by share, the noise's standard deviation
may lie off: what float32 rounds away."""


@dataclass(frozen=True)
class Observation:
    """What was seen of one step, or of several. Parts seen in different places, and of different steps, add up.

    Args:
        steps: steps that these are.
        drawn: units that took part, over all steps.
        chances: units that might have, over all steps.
        before: length of the longest contribution that was finite, before clipping, in clipping norms.
        after: the same after clipping. A sum of k contributions is seen as one of a k-th of its length.
        numbers: numbers that noise was added to.
        squares: Σ of this noise squared, in squared clipping norms: of the difference that adding it made.
        counts: noisy counts of unclipped updates.
        count_squares: Σ of their noise squared.
        not_finite: contributions that were not finite, and counted as zero.
        is_secret: samples and noise came from sources that nobody else knows.
        clipped: what was clipped: kind and groups of tensors.
        apart: fewest steps between two in which one unit took part, with tree noise two of one tree; None where none
            was seen to come back, or nobody looked.
    """

    steps: int = 0
    drawn: int = 0
    chances: int = 0
    before: float = 0.0
    after: float = 0.0
    numbers: int = 0
    squares: float = 0.0
    counts: int = 0
    count_squares: float = 0.0
    not_finite: int = 0
    is_secret: bool = True
    clipped: tuple[tuple[str, int], ...] = ()
    apart: int | None = None

    def __add__(self, other: Observation) -> Observation:
        return Observation(
            self.steps + other.steps,
            self.drawn + other.drawn,
            self.chances + other.chances,
            _longest(self.before, other.before),
            _longest(self.after, other.after),
            self.numbers + other.numbers,
            self.squares + other.squares,
            self.counts + other.counts,
            self.count_squares + other.count_squares,
            self.not_finite + other.not_finite,
            self.is_secret and other.is_secret,
            tuple(sorted({*self.clipped, *other.clipped})),
            min((one for one in (self.apart, other.apart) if one is not None), default=None),
        )

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Observation:
        return cls(**{**data, "clipped": tuple((kind, groups) for kind, groups in data["clipped"])})


def noised(before: Iterable[torch.Tensor], after: Iterable[torch.Tensor], norm: float) -> Observation:
    """The noise that was really added to tensors: the difference that adding it made.

    Args:
        norm: C.
    """
    pairs = list(zip(before, after, strict=True))
    squares = sum(float((new.double() - old.double()).square().sum()) for old, new in pairs)
    return Observation(numbers=sum(new.numel() for _, new in pairs), squares=squares / norm**2)


def length(tensors: Iterable[torch.Tensor]) -> float:
    """L2 norm of all tensors together, in double precision."""
    return math.sqrt(sum(float(tensor.double().square().sum()) for tensor in tensors))


def _longest(first: float, second: float) -> float:
    """A NaN is longer than anything, where ``max`` might pass over it."""
    return math.inf if math.isnan(first) or math.isnan(second) else max(first, second)


def contradictions(plan: PrivacyPlan, entries: Sequence[Spent]) -> list[str]:
    """Where what was seen cannot be what is planned, or what is said to have been done, in words.

    Each verdict is about all steps together: the more there are, the less chance explains.
    """
    if not entries:
        return []
    seen = Observation()
    for entry in entries:
        seen += entry.observed or Observation()
    missing = sum(entry.steps != (entry.observed.steps if entry.observed else 0) for entry in entries)
    found = [f"{missing} of its {len(entries)} entries in the ledger do not say what was seen"] if missing else []
    found += _of_clipping(plan, seen)
    if not missing:
        found += _of_draws(plan, seen)
        if plan.noise.std:
            found += _of_noise(plan, entries, seen)
    return found


def _of_draws(plan: PrivacyPlan, seen: Observation) -> list[str]:
    sampler = plan.sampler
    if isinstance(sampler, PoissonSampling):
        expected, fits = sampler.rate * seen.chances, _binomial(seen.drawn, seen.chances, sampler.rate)
    elif isinstance(sampler, FixedSizeSampling):
        expected = float(sampler.batch * seen.steps)
        fits = seen.drawn == expected and seen.chances == sampler.population * seen.steps
    else:
        expected = float(seen.chances if isinstance(sampler, FullParticipation) else sampler.batch * seen.steps)
        fits = seen.drawn == expected
    if seen.apart is not None:
        back = f"a {plan.unit} was seen to be back after {seen.apart} step{'s' * (seen.apart != 1)}"
        if isinstance(sampler, MinSeparation) and seen.apart < sampler.separation:
            return [f"{back}, where {sampler.separation} are the fewest"]
        if isinstance(sampler, OncePerTree):
            return [f"{back}, in a tree that it may be in once"]
    if fits:
        return []
    what = f"{plan.unit}s of {seen.chances} were seen to take part, over all steps"
    return [f"{seen.drawn} {what}, where {expected:.6g} {'are' if expected != 1 else 'is'} to be expected"]


def _of_clipping(plan: PrivacyPlan, seen: Observation) -> list[str]:
    planned = (plan.clipping.kind.removeprefix("adaptive-"), plan.clipping.groups)
    found = [
        f"it was seen to clip by {kind} in {groups} group{'s' * (groups != 1)} of tensors, where {planned[0]} in "
        f"{planned[1]} was planned"
        for kind, groups in seen.clipped
        if (kind, groups) != planned
    ]
    if not seen.after <= 1 + SLACK:
        found.append(f"a clipped contribution of {seen.after:.4g} norms was seen, where 1 is the most")
    return found


def _of_noise(plan: PrivacyPlan, entries: Sequence[Spent], seen: Observation) -> list[str]:
    found = [] if seen.is_secret else ["its samples and noise were seen to come from a source that is no secret"]
    # In units of what each entry says, so that entries with different noise are one sum of squares.
    pairs = [(entry, entry.observed or Observation()) for entry in entries if entry.noise_std > 0]
    squares = sum(one.squares / entry.noise_std**2 for entry, one in pairs)
    if not _chi_square(squares, seen.numbers):
        share = math.sqrt(squares / seen.numbers) if seen.numbers else 0.0
        found.append(f"noise of {share:.4g} times the standard deviation that was planned was seen")
    if any(entry.count_noise for entry in entries):
        counted = sum(one.count_squares / (entry.count_noise or math.inf) ** 2 for entry, one in pairs)
        if not _chi_square(counted, seen.counts):
            found.append("the noise on the count was seen to be another than planned")
    return found


def _binomial(drawn: int, chances: int, rate: float) -> bool:
    """Whether so many of ``chances`` can have been drawn, each with probability ``rate``."""
    from scipy.stats import binom

    return bool(min(binom.cdf(drawn, chances, rate), binom.sf(drawn - 1, chances, rate)) >= CHANCE / 2)


def _chi_square(squares: float, numbers: int) -> bool:
    """Whether the squares of so many standard normals can have this sum, but for the slack."""
    if not numbers:
        return False
    fewer, _ = _chi_square_tails(squares * (1 + SLACK) ** 2, numbers)
    _, more = _chi_square_tails(squares * (1 - SLACK) ** 2, numbers)
    return min(fewer, more) >= CHANCE / 2


def _chi_square_tails(squares: float, numbers: int) -> tuple[float, float]:
    from scipy.stats import chi2, norm

    if numbers <= 1e6:
        return float(chi2.cdf(squares, numbers)), float(chi2.sf(squares, numbers))
    # Beyond that scipy loses the tails; the cube root is as good as normal (Wilson and Hilferty 1931).
    variance = 2 / (9 * numbers)
    place = ((squares / numbers) ** (1 / 3) - 1 + variance) / math.sqrt(variance)
    return float(norm.cdf(place)), float(norm.sf(place))

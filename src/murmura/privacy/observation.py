"""What the code that samples, clips and noises saw itself do, and whether that can be what a plan says.

Batch sizes and norms follow from the records, so an observation is as secret as they are. It stays in the ledger of the
party that made it; all that leaves is the verdict.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from murmura.errors import PrivacyError
from murmura.units import told_apart

if TYPE_CHECKING:
    import torch

    from murmura.privacy.ledger import Spent
    from murmura.privacy.mechanisms.noise import Noise
    from murmura.privacy.plan import PrivacyPlan

CHANCE = 1e-9
"""Two-sided: what is less probable than this under a plan contradicts it. So chance makes one verdict in 10⁹ wrong."""
SLACK = 1e-6
"""How much longer than C a clipped contribution may be measured, and how far, by share, the noise's standard deviation
may lie off: what float32 rounds away."""
_ROUGH, _FEWEST = 0.95, 200
"""Integer noise of a few votes is far from normal: its sum of squares is judged only where it is like χ² of so many
degrees of freedom. Then chance makes one verdict in 10⁷ wrong."""
_CACHED = 2**13  # numbers that a processor reads at once: in double precision they stay in its cache


@dataclass(frozen=True)
class Observation:
    """What was seen of one step, or of several. Parts seen in different places, and of different steps, add up.

    Args:
        steps: steps that these are.
        drawn: units that took part, over all steps.
        chances: units that might have, over all steps.
        before: length of the longest contribution that was finite, before clipping, in clipping norms; of votes their
            number.
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
        shares: of noise that were in the sums, over all steps, where sites add the noise.
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
    shares: int = 0

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
            self.shares + other.shares,
        )

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Observation:
        return cls(**{**data, "clipped": tuple((kind, groups) for kind, groups in data["clipped"])})


def noised(before: Iterable[torch.Tensor], after: Iterable[torch.Tensor], norm: float) -> Observation:
    """The noise that was really added to tensors: the difference that adding it made.

    Args:
        norm: C.
    """
    numbers, squares = 0, 0.0
    for old, new in zip(before, after, strict=True):
        numbers += new.numel()
        squares += float((_double(new) - _double(old)).square().sum())
    return Observation(numbers=numbers, squares=squares / norm**2)


def require_share(
    noise: Noise, norm: float, shares: int, before: torch.Tensor, after: torch.Tensor, where: str
) -> None:
    """A site looks at the share of noise that it has added before it leaves: under a secure sum nobody else can.

    Args:
        noise: the plan's, and so ``norm``.
        shares: among how many sites it is divided.
        before, after: whole numbers.
        where: for the message, such as ``site a, round 3``.

    Raises:
        PrivacyError: what was added cannot be such a share, beyond chance.
    """
    seen, share = noised([before], [after], norm), noise.std / math.sqrt(shares)
    if share and not noise_fits(noise, norm, [(share, seen)]):
        times = _times(noise, norm, [(share, seen)])
        what = f"votes were about to leave with noise of {times} times the standard deviation that was planned"
        fix = "Use a release of murmura as it was published: this one does not protect."
        raise PrivacyError(what, where=where, fix=fix)


def length(tensors: Iterable[torch.Tensor]) -> float:
    """L2 norm of all tensors together, in double precision."""
    pieces = (piece for tensor in tensors for piece in (tensor.flatten().split(_CACHED) if tensor.is_cpu else [tensor]))
    return math.sqrt(sum(float(_double(piece).square().sum()) for piece in pieces))


def _double(tensor: torch.Tensor) -> torch.Tensor:
    """In double precision: on the CPU where the device has none."""
    return (tensor.cpu() if tensor.device.type == "mps" else tensor).double()


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
    found += plan.clipping.contradictions([] if missing or not plan.noise.std else entries, seen)
    if missing:
        return found
    drawn = plan.sampler.contradiction(seen, plan.unit)
    found += [drawn] if drawn else []
    return found + _of_noise(plan, entries, seen) if plan.noise.std else found


def _of_noise(plan: PrivacyPlan, entries: Sequence[Spent], seen: Observation) -> list[str]:
    found = [] if seen.is_secret else ["its samples and noise were seen to come from a source that is no secret"]
    said = sum(entry.steps * (entry.shares or 0) for entry in entries)
    if seen.shares != said:
        found.append(f"{seen.shares} shares of noise were seen to be in its sums, where {said} are said to be")
    # Of shares each site sees its own, and under a secure sum nobody sees more.
    whole = [entry for entry in entries if entry.shares is None]
    own = [(entry.noise_std, entry.observed or Observation()) for entry in whole if entry.noise_std > 0]
    if whole and not noise_fits(plan.noise, plan.clipping.norm, own):
        times = _times(plan.noise, plan.clipping.norm, own)
        found.append(f"noise of {times} times the standard deviation that was planned was seen")
    return found


def _times(noise: Noise, norm: float, seen: Iterable[tuple[float, Observation]]) -> str:
    """How large noise that does not fit is beside what it is said to be, in words; arguments as of ``noise_fits``."""
    squares = numbers = 0.0
    for std, one in seen:
        second, _ = noise.moments(std * norm)
        squares, numbers = squares + one.squares / (std**2 * second), numbers + one.numbers
    return told_apart(math.sqrt(squares / numbers) if numbers else 0.0, 1.0, digits=4)[0]


def noise_fits(noise: Noise, norm: float, seen: Iterable[tuple[float, Observation]]) -> bool:
    """Whether the noise that was seen can be what it is said to be.

    Squares count in units of what is said, so that steps with different noise are one sum. Of integer noise this sum
    varies as the fourth moment says, like χ² with other degrees of freedom. Where noise is small and they are few, it
    tells nothing.

    Args:
        seen: standard deviation that is said, in norms, and what was seen of it.
    """
    squares = numbers = variance = 0.0
    for std, one in seen:
        second, fourth = noise.moments(std * norm)
        squares += one.squares / (std**2 * second)
        numbers += one.numbers
        variance += one.numbers * (fourth / second**2 - 1)  # of a squared normal it is 2
    if not numbers:
        return False
    factor = 2 * numbers / variance
    return (factor < _ROUGH and numbers * factor < _FEWEST) or chi_square(squares * factor, numbers * factor)


def chi_square(squares: float, numbers: float) -> bool:
    """Whether the squares of so many standard normals can have this sum, but for the slack."""
    if not numbers:
        return False
    fewer, _ = _chi_square_tails(squares * (1 + SLACK) ** 2, numbers)
    _, more = _chi_square_tails(squares * (1 - SLACK) ** 2, numbers)
    return min(fewer, more) >= CHANCE / 2


def _chi_square_tails(squares: float, numbers: float) -> tuple[float, float]:
    from scipy.stats import chi2, norm

    if numbers <= 1e6:
        return float(chi2.cdf(squares, numbers)), float(chi2.sf(squares, numbers))
    # Beyond that scipy loses the tails; the cube root is as good as normal (Wilson and Hilferty 1931).
    variance = 2 / (9 * numbers)
    place = ((squares / numbers) ** (1 / 3) - 1 + variance) / math.sqrt(variance)
    return float(norm.cdf(place)), float(norm.sf(place))

"""One frozen object that says what protects whom: sampler, clipping, noise and the accounting event they imply.

Whoever trains takes sampler, clipping and noise from the plan, and the accountant takes its event from the same plan,
so that the two cannot disagree. Every field is public; what may be private (records, sizes) is an argument elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from murmura.errors import PrivacyError
from murmura.privacy.clipping import CLIPPINGS, Clipping
from murmura.privacy.mechanisms import NOISES
from murmura.privacy.mechanisms.noise import Noise
from murmura.privacy.parts import Adjacency, Unit, check, from_json
from murmura.privacy.samplers import SAMPLERS, Sampler
from murmura.units import several

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from murmura.privacy.accounting import Epsilon


USELESS = "is of no use"
"""What a caveat says of δ that takes the guarantee away."""


@dataclass(frozen=True)
class PrivacyPlan:
    """What a run promises to do, and with that the (ε, δ) it may claim.

    Args:
        unit: what is protected: one record, or a site with all its records.
        adjacency: ``zero-out`` (one unit's contribution is blanked, and its place remains: Kairouz et al. 2021,
            Definition 1.1; how many units there are is public) or ``replace-one`` (a unit replaced by any other).
        sampler: which units take part in a step.
        clipping: what bounds a unit's influence on a step's sum.
        noise: what is added to that sum, in units of the clipping norm.
        steps: noisy releases in the whole run.
        delta: δ, in (0, 1); below 1/number of units it means something.

    Raises:
        PrivacyError: for a combination that protects nobody or that no accountant supports.
    """

    unit: Unit
    adjacency: Adjacency
    sampler: Sampler
    clipping: Clipping
    noise: Noise
    steps: int
    delta: float

    def __post_init__(self) -> None:
        check(self.unit in ("record", "site"), f"unit = {self.unit!r} is unknown", "Use 'record' or 'site'.")
        known = self.adjacency in ("zero-out", "replace-one")
        fix = "Use 'zero-out', which was called add-remove before, or 'replace-one'."
        check(known, f"adjacency = {self.adjacency!r} is unknown", fix)
        whole = isinstance(self.steps, int) and self.steps >= 1
        check(whole, f"steps = {self.steps!r}", "Give a whole number of steps, at least 1.")
        check(0 < self.delta < 1, f"δ = {self.delta}", "δ lies between 0 and 1; less than 1/number of units is usual.")
        if self.clipping.unit != self.unit:
            fix = "Clip whole sites' updates." if self.unit == "site" else "Clip examples, or make the unit a site."
            raise PrivacyError(f"{self.clipping.kind} clipping does not bound the influence of a {self.unit}", fix=fix)
        self.noise.check_fits(self.sampler, self.clipping)

    @property
    def has_secret_cohort(self) -> bool:
        """Whether ε counts on nobody knowing which sites took part in a step, nor how many: the sites are sampled."""
        return self.unit == "site" and self.noise.std > 0 and self.sampler.is_secret

    @property
    def sensitivity(self) -> float:
        """How far one unit can move one step's sum (L2; votes L1 too), in units of the clipping norm.

        A batch of fixed size holds another unit in the place of a missing one, so it counts as replacement under
        either adjacency. So does a clipped batch gradient: one example can turn it around.
        """
        return self.clipping.sensitivity(self.adjacency == "replace-one" or self.sampler.replaces)

    @property
    def noise_multiplier(self) -> float:
        """z: the standard deviation of the noise over the sensitivity, of one step (of one node of a tree; of banded
        noise before it is correlated).

        With adaptive clipping, of the sum and the count of unclipped sites taken together as one Gaussian release.
        """
        return self.clipping.multiplier(self.noise.std) / self.sensitivity

    def parameters(self) -> dict[str, Any]:
        """What a ledger has to hold of each step, besides its norm and its noise."""
        return self.clipping.parameters() | self.noise.parameters()

    def event(self, steps: int | None = None, repeated: Sequence[int] = ()) -> DpEvent:
        """What ``dp_accounting`` has to know of ``steps`` steps (default: all that are planned).

        A Gaussian's multiplier in it is relative to the plan's own sensitivity, whatever the adjacency.

        Args:
            repeated: steps, counted from 1, that were done again after their results may have left, once for every
                time: each is one more release, and of a tree all nodes that the step completes.
        """
        import dp_accounting as dp

        steps = self.steps if steps is None else steps
        if steps + len(repeated) == 0:
            return dp.NoOpDpEvent()
        if self.noise_multiplier == 0:
            return dp.NonPrivateDpEvent()
        return self.noise.event(self, steps, repeated)

    def epsilon(self, steps: int | None = None, accountant: str = "best", repeated: Sequence[int] = ()) -> Epsilon:
        """ε of the plan after ``steps`` steps, some of them ``repeated``. Of a run, ask its ``PrivacyLedger`` instead.

        Raises:
            PrivacyError: the accountant does not support this kind of plan.
        """
        from murmura.privacy import accounting

        return accounting.epsilon(self.event(steps, repeated), self.delta, self.adjacency, accountant)

    def calibrated(self, epsilon: float, accountant: str = "best") -> Self:
        """This plan with as little noise as (``epsilon``, δ) needs over all its steps.

        Raises:
            PrivacyError: ε ≤ 0, or the clipping is one for which no target is accepted.
        """
        from murmura.privacy import calibration

        if self.clipping.can_reverse:
            fix = "Clip each example, or give the noise and read off its actual ε."
            what = "a target ε with clipped batch gradients would promise what clipping does not give"
            raise PrivacyError(what, fix=fix)
        lowest = max(self.noise.least(self.clipping.norm), calibration.LOWEST)
        std = calibration.calibrate(
            lambda std: self.with_noise(std).event(), epsilon, self.delta, self.adjacency, accountant, lowest
        )
        return self.with_noise(std)

    def with_noise(self, std: float) -> Self:
        """The same plan with another standard deviation of the noise (in units of the norm)."""
        return replace(self, noise=replace(self.noise, std=std))

    def to_json(self) -> str:
        fields = {"unit": self.unit, "adjacency": self.adjacency, "steps": self.steps, "delta": float(self.delta)}
        parts = {"sampler": self.sampler, "clipping": self.clipping, "noise": self.noise}
        return json.dumps(fields | {name: part.to_json() for name, part in parts.items()}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> PrivacyPlan:
        """
        Raises:
            PrivacyError: the text is no plan.
        """
        try:
            data: Mapping[str, Any] = json.loads(text)
            parts = (
                from_json(SAMPLERS, data["sampler"]),
                from_json(CLIPPINGS, data["clipping"]),
                from_json(NOISES, data["noise"]),
            )
            return cls(data["unit"], data["adjacency"], *parts, data["steps"], data["delta"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise PrivacyError("this is not a privacy plan", fix="Write it with PrivacyPlan.to_json().") from error

    def caveat(self, records: Sequence[int]) -> str | None:
        """What to say of a δ that is of no use: whoever publishes one unit, picked at random from n, has ε = 0 at
        δ = 1/n. None where δ is below that.

        Args:
            records: how many each site has.
        """
        site = self.unit == "site"
        if self.delta * (len(records) if site else max(records)) < 1:
            return None
        whom, how_many = ("one site", "sites there are") if site else ("one record of a site", "records a site has")
        return (
            f"δ = {self.delta:g} {USELESS}: to publish {whom}, picked at random, would keep within it whatever ε "
            f"is, since δ is at least 1 divided by how many {how_many}. Set method.delta well below that."
        )

    def describe(self) -> str:
        """One line for people."""
        return (
            f"{self.unit}-level, {self.adjacency}; {self.sampler.describe()}; {self.clipping.describe()}; "
            f"{self.noise.describe()}; {several(self.steps, 'step')}; δ = {self.delta:g}"
        )

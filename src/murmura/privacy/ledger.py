"""What a run really did, step by step, and the ε that follows from it: or none, with the reason."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from murmura.errors import PrivacyError
from murmura.privacy.parts import AdaptiveSiteClipping, Sampler, TreeNoise, part, table
from murmura.privacy.plan import PrivacyPlan

if TYPE_CHECKING:
    from murmura.privacy.accounting import Epsilon

_SAME = 1e-6  # numbers that went through float32 still count as equal


@dataclass(frozen=True)
class Spent:
    """Steps that were done alike.

    Args:
        steps: how many.
        sampler: how units were drawn.
        clip_norm: what was clipped to.
        noise_std: standard deviation of the noise on the sum (on a node of the tree), in units of ``clip_norm``.
        count_noise: with adaptive clipping, σ_b.
        restart_every: with tree noise, steps a tree spanned.
    """

    steps: int
    sampler: Sampler
    clip_norm: float
    noise_std: float
    count_noise: float | None = None
    restart_every: int | None = None


class PrivacyLedger:
    """The account of one protected party: of a site for its records, or of the server for all sites.

    Sites that train on their own records keep a ledger each; a record's ε is that of its site.
    """

    def __init__(self, plan: PrivacyPlan) -> None:
        self.plan = plan
        self.entries: list[Spent] = []

    @property
    def steps(self) -> int:
        return sum(entry.steps for entry in self.entries)

    def record(
        self,
        steps: int,
        sampler: Sampler | Mapping[str, Any],
        clip_norm: float,
        noise_std: float,
        count_noise: float | None = None,
        restart_every: int | None = None,
    ) -> None:
        """Enter steps that were done. To be called by what did them, with what it did; see ``Spent``.

        What departs from the plan is entered too: it happened.

        Raises:
            PrivacyError: ``steps`` is negative or no whole number.
        """
        if not isinstance(steps, int) or steps < 0:
            raise PrivacyError(
                f"{steps!r} steps cannot be entered in a ledger", fix="Enter whole steps that were done."
            )
        drawn = part("sampler", sampler) if isinstance(sampler, Mapping) else sampler
        self._enter(Spent(steps, drawn, clip_norm, noise_std, count_noise, restart_every))

    def _enter(self, entry: Spent) -> None:
        if self.entries and replace(self.entries[-1], steps=entry.steps) == entry:
            entry = replace(entry, steps=self.entries.pop().steps + entry.steps)
        if entry.steps:
            self.entries.append(entry)

    @property
    def departures(self) -> list[str]:
        """Where the run did not follow its plan, in words; empty where it did."""
        found = [reason for entry in self.entries for reason in _departures(self.plan, entry)]
        if self.steps > self.plan.steps:
            found.append(f"it took {self.steps} steps where {self.plan.steps} were planned")
        return list(dict.fromkeys(found))

    def epsilon(self, accountant: str = "best") -> Epsilon:
        """ε of the steps that were really done.

        Raises:
            PrivacyError: the run departed from its plan, so that nothing is known.
        """
        if departures := self.departures:
            raise PrivacyError(
                f"no ε: the run did not follow its plan ({'; '.join(departures)})",
                fix="Plan what the run does, and start it anew.",
            )
        return self.plan.epsilon(self.steps, accountant)

    def to_json(self) -> str:
        entries = [asdict(entry) | {"sampler": table(entry.sampler)} for entry in self.entries]
        return json.dumps({"plan": json.loads(self.plan.to_json()), "entries": entries})

    @classmethod
    def from_json(cls, text: str) -> PrivacyLedger:
        """
        Raises:
            PrivacyError: the text is no ledger.
        """
        try:
            data = json.loads(text)
            ledger = cls(PrivacyPlan.from_json(json.dumps(data["plan"])))
            for entry in data["entries"]:
                ledger.record(**entry)
        except (ValueError, KeyError, TypeError) as error:
            fix = "Write it with PrivacyLedger.to_json()."
            raise PrivacyError("this is not a privacy ledger", fix=fix) from error
        return ledger


def _departures(plan: PrivacyPlan, entry: Spent) -> list[str]:
    found = []
    if entry.sampler != plan.sampler:
        found.append(f"it drew {entry.sampler.describe()} where {plan.sampler.describe()} was planned")
    if isinstance(plan.clipping, AdaptiveSiteClipping):
        # The norm may wander, for it follows from releases that are accounted; the count's noise may not.
        if not _at_least(entry.count_noise, plan.clipping.count_noise):
            found.append(f"its count noise was {entry.count_noise} where {plan.clipping.count_noise:g} was planned")
    elif not math.isclose(entry.clip_norm, plan.clipping.norm, rel_tol=_SAME):
        found.append(f"it clipped to {entry.clip_norm:g} where {plan.clipping.norm:g} was planned")
    if not _at_least(entry.noise_std, plan.noise.std):
        found.append(f"its noise was {entry.noise_std:.6g} norms where {plan.noise.std:.6g} was planned")
    every = plan.noise.restart_every if isinstance(plan.noise, TreeNoise) else None
    if entry.restart_every != every:
        found.append(f"its trees spanned {entry.restart_every} steps where {every} were planned")
    return found


def _at_least(value: float | None, planned: float) -> bool:
    return value is not None and value >= planned * (1 - _SAME)

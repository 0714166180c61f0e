"""What a run really did, step by step, and the ε that follows from it: or none, with the reason."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from murmura.errors import PrivacyError
from murmura.privacy.journal import Journal
from murmura.privacy.observation import Observation, contradictions
from murmura.privacy.parts import from_json
from murmura.privacy.plan import PrivacyPlan
from murmura.privacy.samplers import SAMPLERS, Sampler

if TYPE_CHECKING:
    from murmura.privacy.accounting import Epsilon


@dataclass(frozen=True)
class Spent:
    """Steps that were done alike.

    Args:
        steps: how many.
        sampler: how units were drawn.
        clip_norm: what was clipped to.
        noise_std: standard deviation of the noise on the sum (on a node of the tree), in units of ``clip_norm``; where
            it is in shares, of all that were in the sum together.
        parameters: what else the mechanism did: ``Noise.parameters`` and ``Clipping.parameters``.
        shares: where each site adds a share of the noise, how many shares were in the sum of each step.
        observed: what the code that did it saw; a secret. Entries are alike whatever was seen.

    Raises:
        PrivacyError: ``steps`` is negative or no whole number.
    """

    steps: int
    sampler: Sampler
    clip_norm: float
    noise_std: float
    parameters: Mapping[str, Any] = field(default_factory=dict)
    shares: int | None = None
    observed: Observation | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.steps, int) or self.steps < 0:
            fix = "Enter whole steps that were done."
            raise PrivacyError(f"{self.steps!r} steps cannot be entered in a ledger", fix=fix)

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"sampler": self.sampler.to_json()}

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> Spent:
        seen = entry["observed"]
        sampler = from_json(SAMPLERS, entry["sampler"])
        observed = None if seen is None else Observation.from_json(seen)
        return cls(**{**entry, "sampler": sampler, "observed": observed})

    def joined(self, more: Spent) -> Spent | None:
        """This and more steps that were done alike, as one entry; None where they were not."""
        if replace(self, steps=more.steps) != more:
            return None
        seen = None if self.observed is None or more.observed is None else self.observed + more.observed
        return replace(self, steps=self.steps + more.steps, observed=seen)


class PrivacyLedger:
    """The account of one protected party: of a site for its records, or of the server for all sites.

    Sites that train on their own records keep a ledger each; a record's ε is that of its site.

    A ledger is never rewound. Where a run resumes from a checkpoint, the rounds after it are repeated, though their
    results may have left. Both attempts stay in the ledger, and both count.

    Args:
        plan: what is promised.
        journal: where it is written; the plan comes first, then a line for each round.

    Raises:
        PrivacyError: the journal is one of another plan, or none of a ledger.
    """

    def __init__(self, plan: PrivacyPlan, journal: Journal | None = None) -> None:
        self.plan, self.journal = plan, journal or Journal()
        begun, *rounds = self.journal.lines or [{}]
        try:
            before = PrivacyPlan.from_json(json.dumps(begun["plan"])) if begun else plan
            self._rounds = [(line["round"], [Spent.from_json(entry) for entry in line["spent"]]) for line in rounds]
        except (KeyError, TypeError, RecursionError) as error:
            raise PrivacyError("this is not a privacy ledger", where=str(self.journal.path)) from error
        if before != plan:
            raise PrivacyError(
                f"the run was begun under another privacy plan ({before.describe()}) and would go on under "
                f"{plan.describe()}",
                fix="Resume with the same sites, rounds, [training] and options of the method, or start another run.",
            )

    @classmethod
    def of(cls, journal: Journal) -> PrivacyLedger:
        """The ledger in a journal, under the plan that it was begun with.

        Raises:
            PrivacyError: it is none of a ledger.
        """
        try:
            plan = PrivacyPlan.from_json(json.dumps(journal.lines[0]["plan"]))
        except (IndexError, KeyError, RecursionError) as error:
            raise PrivacyError("this is not a privacy ledger", where=str(journal.path)) from error
        return cls(plan, journal)

    def record(self, round: int, spent: Sequence[Spent]) -> None:
        """Enter what was done in a round, all at once and before anything of it leaves. To be called by what did it.

        What departs from the plan is entered too: it happened.

        Raises:
            CheckpointError: it could not be written, so that nothing may leave.
        """
        if not self.journal.lines:
            self.journal.append({"plan": json.loads(self.plan.to_json())})
        # The mark tells rounds apart that did the same: where one stands in two ledgers, one is a copy of the other.
        self.journal.append({"round": round, "spent": [entry.to_json() for entry in spent], "mark": token_hex(8)})
        self._rounds.append((round, list(spent)))

    @property
    def rounds(self) -> list[int]:
        """The rounds that were entered, in order; one that was repeated stands here again."""
        return [round for round, _ in self._rounds]

    @property
    def entries(self) -> list[Spent]:
        """All that was done, in order, repeated rounds too; equal steps in a row are one entry."""
        found: list[Spent] = []
        for entry in (entry for _, spent in self._rounds for entry in spent if entry.steps):
            joined = found[-1].joined(entry) if found else None
            found[-1:] = [joined] if joined else [*found[-1:], entry]
        return found

    @property
    def steps(self) -> int:
        """Steps that were done, repeated ones too."""
        return sum(entry.steps for entry in self.entries)

    @property
    def repeated(self) -> tuple[int, ...]:
        """The steps of the plan, counted from 1, that were repeated, each as often as it was.

        A round that is entered again replaces its first attempt and all later rounds.
        """
        kept: list[tuple[int, int]] = []
        again: list[int] = []
        for round, spent in self._rounds:
            while kept and kept[-1][0] >= round:
                _, steps = kept.pop()
                done = sum(count for _, count in kept)
                again += range(done + 1, done + steps + 1)
            kept.append((round, sum(entry.steps for entry in spent)))
        return tuple(again)

    @property
    def departures(self) -> list[str]:
        """Where the run did not follow its plan, by what it says and by what was seen, in words; empty where it did."""
        found = [reason for entry in self.entries for reason in _departures(self.plan, entry)]
        found += contradictions(self.plan, self.entries)
        if (steps := self.steps - len(self.repeated)) > self.plan.steps:
            found.append(f"it took {steps} steps where {self.plan.steps} were planned")
        return list(dict.fromkeys(found))

    def require_followed(self) -> None:
        """
        Raises:
            PrivacyError: the run departed from its plan, so that nothing is known.
        """
        if departures := self.departures:
            fix = "Make the plan match what the run does, and start a new run."
            raise PrivacyError(f"no ε: the run did not follow its plan ({'; '.join(departures)})", fix=fix)

    def epsilon(self, accountant: str = "best") -> Epsilon:
        """ε of the steps that were really done.

        Raises:
            PrivacyError: the run departed from its plan, so that nothing is known.
        """
        self.require_followed()
        return self.plan.epsilon(self.steps - len(self.repeated), accountant, self.repeated)


def _departures(plan: PrivacyPlan, entry: Spent) -> list[str]:
    found = []
    if entry.sampler != plan.sampler:
        found.append(f"it drew {entry.sampler.describe()} where {plan.sampler.describe()} was planned")
    found += plan.clipping.departures(entry) + plan.noise.departures(entry)
    for name in sorted(entry.parameters.keys() - plan.parameters().keys()):
        found.append(f"it had {name} = {entry.parameters[name]}, which is not in its plan")
    return found

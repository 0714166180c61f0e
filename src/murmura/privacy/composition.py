"""What several releases cost together: of one run or of several, about one unit or about a group."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from murmura.errors import PrivacyError
from murmura.privacy import accounting, groups
from murmura.privacy.accounting import Epsilon
from murmura.privacy.ledger import PrivacyLedger
from murmura.privacy.parts import Adjacency, Unit, check
from murmura.privacy.plan import PrivacyPlan
from murmura.privacy.samplers import FullParticipation, PoissonSampling

if TYPE_CHECKING:
    from dp_accounting import DpEvent

_MOST_COMBINATIONS = 200


@dataclass(frozen=True)
class ReleasedSteps:
    """What one ledger says was released: so many steps of a plan, some of them again.

    Args:
        plan: as it was followed.
        steps: of the plan, as far as the run came.
        repeated: steps that were repeated (``PrivacyLedger.repeated``).
        by_record: whether it is looked at as what protects a record, though the plan may protect whole sites. A record
            that changes may change its site's update into any other within the norm: that is a site replaced. No
            sampling is counted then, so that the bound holds under either adjacency of records.
        copies: at how many sites the same records were, where the plan protects whole sites: in one sum they move it so
            many times as far. No sampling is counted then either.
    """

    plan: PrivacyPlan
    steps: int
    repeated: tuple[int, ...] = ()
    by_record: bool = False
    copies: int = 1

    @classmethod
    def of(cls, ledger: PrivacyLedger, unit: Unit, copies: int = 1) -> ReleasedSteps:
        """
        Raises:
            PrivacyError: the run departed from its plan, so that nothing is known of what it released.
        """
        ledger.require_followed()
        return cls(ledger.plan, ledger.steps - len(ledger.repeated), ledger.repeated, unit == "record", copies)

    def event(self, adjacency: Adjacency, size: int = 1) -> DpEvent:
        """The same release, looked at under an adjacency of records or of sites, which need not be the plan's own.

        Args:
            size: as it looks to so many units together; to records of one site, if it protects whole sites, as to one,
                and as to all that had the same.
        """
        plan = replace(self.plan, adjacency=adjacency)
        if plan.unit == "site" and (self.by_record or self.copies > 1):
            sampler = FullParticipation() if plan.sampler.is_secret else plan.sampler
            plan = replace(plan, adjacency="replace-one", sampler=sampler)
            size = self.copies if self.by_record else self.copies * size
        if size == 1:
            return plan.event(self.steps, self.repeated)
        return groups.event(plan, size, self.steps, self.repeated)


def undominated(releases: Iterable[ReleasedSteps]) -> list[ReleasedSteps]:
    """Of releases that differ in their sampling rates alone those with the largest, whose ε is the largest at every δ;
    each once."""
    found: dict[object, tuple[float, ReleasedSteps]] = {}
    for release in releases:
        plan, coin = release.plan, release.plan.sampler.coin
        rate = 1.0 if coin is None else coin
        key = replace(release, plan=plan if coin is None else replace(plan, sampler=PoissonSampling(1.0)))
        if key not in found or rate > found[key][0]:
            found[key] = rate, release
    return [release for _, release in found.values()]


@dataclass(frozen=True)
class PrivateSelection:
    """One result was chosen among several runs, of which only it was released.

    The number of runs must have been drawn at random, and not be known: then the chosen one has little more ε than each
    of them (Papernot and Steinke 2022, Theorems 2 and 6). For a number that was fixed beforehand this is not true; the
    ledgers of all those runs compose then like any other.

    Args:
        mean: of the number of runs, at least 1.
        shape: of its distribution: 1 geometric, 0 logarithmic, inf Poisson, others truncated negative binomial.
    """

    mean: float
    shape: float = 1.0

    def __post_init__(self) -> None:
        if not self.mean >= 1 or not self.shape >= 0:
            fix = "The mean number of runs is at least 1, the shape at least 0 (1 for a geometric distribution)."
            raise PrivacyError(f"a result chosen among {self.mean:g} runs, shape {self.shape:g}", fix=fix)

    def event(self, event: DpEvent) -> DpEvent:
        import dp_accounting as dp

        return dp.dp_event.RepeatAndSelectDpEvent(event, self.mean, self.shape)


def composed(
    releases: Iterable[ReleasedSteps],
    delta: float,
    adjacency: Adjacency,
    chosen: PrivateSelection | None = None,
    size: int = 1,
) -> Epsilon:
    """ε of all these releases together, about the same units; each may have been made in the light of those before.

    Args:
        chosen: how they, as one, were chosen among others like them.
        size: of so many units together (``privacy.groups``).

    Raises:
        PrivacyError: δ is not in (0, 1), or a group has no member.
    """
    check(size >= 1, f"a group of {size}", "A group has at least 1 member.")
    import dp_accounting as dp

    releases = sorted(releases, key=repr)  # the same composition in whatever order

    def event(size: int) -> DpEvent:
        events = [release.event(adjacency, size) for release in releases]
        return events[0] if len(events) == 1 else dp.ComposedDpEvent(events)

    if chosen is not None:
        one = chosen.event(event(1))
        return (
            accounting.epsilon(one, delta, adjacency, "rdp")
            if size == 1
            else groups.generic(one, size, delta, adjacency)
        )
    if size > 1:
        return groups.least(event(1), event(size), size, delta, adjacency)
    return accounting.epsilon(event(1), delta, adjacency)


def at_most(
    runs: Sequence[Sequence[ReleasedSteps]],
    delta: float,
    adjacency: Adjacency,
    size: int = 1,
    chosen: PrivateSelection | None = None,
    combinations: int = _MOST_COMBINATIONS,
) -> Epsilon:
    """ε of whoever is in one release of each run, and it is unknown in which: the largest of all combinations.

    Where there are too many combinations, the largest ε of each run at its share of δ are added up; of runs that were
    chosen, as one, whoever is in one release counts as if in all of them.

    Args:
        size, chosen: as of ``composed``.
        combinations: more than so many are too many.
    """
    kinds = [undominated(run) for run in runs if run]
    if math.prod(len(kind) for kind in kinds) <= combinations:
        found = (composed(one, delta, adjacency, chosen, size) for one in itertools.product(*kinds))
        return max(found, key=lambda one: one.value)
    if chosen is not None:
        return composed([release for kind in kinds for release in kind], delta, adjacency, chosen, size)
    share = delta / len(kinds)
    parts = [max(composed([one], share, adjacency, size=size).value for one in kind) for kind in kinds]
    note = "the ε of the runs are added up: there are too many combinations of sites"
    return Epsilon(sum(parts), "sum", delta, adjacency, note)


def adjacency(plans: Sequence[PrivacyPlan]) -> Adjacency:
    """The one of all of them; replacing where they differ, which is never the weaker promise."""
    kinds = {plan.adjacency for plan in plans}
    return kinds.pop() if len(kinds) == 1 else "replace-one"

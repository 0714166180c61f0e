"""What a site's owner allows over all runs: a budget of ε, and the account that it is held against.

The account lies outside of any run's folder, and is only ever added to. What a round may spend is entered before it
begins, so that no crash, no resumed run and no run at the same time can spend it unseen.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from pydantic import Field, model_validator

from murmura import atomic
from murmura.config import Section
from murmura.errors import BudgetError, CheckpointError
from murmura.privacy import composition
from murmura.privacy.accounting import Epsilon
from murmura.privacy.composition import ReleasedSteps
from murmura.privacy.guarantee import Cost
from murmura.privacy.journal import Journal
from murmura.privacy.plan import PrivacyPlan
from murmura.runs.names import site_folder, site_of
from murmura.units import bound, several

ACCOUNT = "account.journal"
_PATIENCE = 600  # seconds to wait while others read and write accounts of the same folder
_COMBINATIONS = 8  # of releases of earlier runs, each of which is composed


class BudgetConfig(Section):
    """What the owner of each site allows of its records over all runs, whatever a server asks. In a simulation all
    owners decide alike."""

    folder: str | None = None
    """Where sites keep the accounts of all their runs: a folder outside of the runs' folders, relative to the
    current one (in site.toml to the site's), for the records of one owner, or of one simulation. All that is in it
    counts together, whatever sites are called. Whoever begins another one forgets what was spent."""
    epsilon: float | None = Field(None, gt=0)
    """The ε of a record over all runs in the account. A site does not answer what would exceed it, nor what no ε
    covers, such as attacks on its records."""
    delta: float = Field(1e-5, gt=0, lt=1)
    """δ that belongs to it, over all runs too."""

    @model_validator(mode="after")
    def _has_an_account(self) -> BudgetConfig:
        if self.epsilon is not None and self.folder is None:
            raise ValueError("a budget counts over all runs, so budget.epsilon needs budget.folder to keep them")
        if self.epsilon is None:
            self.refuse_idle(["delta"], "without budget.epsilon")
        return self


class Budget:
    """One site's account, and how much may be on it.

    What runs are in the folder count together, whatever the sites were called, and on whichever records: sites add
    records and take some away, and those that stay have seen all of the runs. Of each earlier run that counts which the
    site with the same records has spent, and where there was none with just these, whichever site has spent most, since
    a record may have been at any of them.

    Args:
        accounts: the folder with one for each site; made if need be.
        site: its name, for messages.
        records: their digest.
        epsilon: the most that may be spent; None for an account without a limit.
        delta: that belongs to it.
        opening: what tells this time that the site was opened from all others. Of sites of one run and opening each has
            records of its own. By a run's id alone that cannot be told: the server gives it, and may give it twice.
            Sites of a simulation all have the same, none.

    Raises:
        PrivacyError: an account in the folder is damaged or was edited.
    """

    def __init__(
        self, accounts: Path, site: str, records: str, epsilon: float | None, delta: float, opening: str = ""
    ) -> None:
        self.accounts, self.site, self.records, self.epsilon, self.delta = accounts, site, records, epsilon, delta
        self.opening = opening
        with self._open():
            pass

    @property
    def folder(self) -> Path:
        """Where this site's own account is."""
        return self.accounts / site_folder(self.site)

    def reserve(self, run: str, cost: Cost) -> None:
        """Enter what a run is about to spend of each record, before it does.

        Args:
            run: its id.

        Raises:
            BudgetError: it would exceed the budget; nothing was entered.
            CheckpointError: it cannot be entered.
        """
        with self._open() as account:
            if self.epsilon is not None:
                self._require(run, cost)
            if cost.plan is None:
                self._enter(account, run, epsilon=cost.epsilon)
            else:
                self._enter(account, run, plan=json.loads(cost.plan.to_json()), steps=cost.steps)

    def lose(self, run: str, reason: str) -> None:
        """Enter that a run does, or did, what no ε covers. From then on no budget holds.

        Raises:
            BudgetError: there is one; what was not done yet may not be done.
            CheckpointError: it cannot be entered.
        """
        with self._open() as account:
            if self.epsilon is None:
                self._enter(account, run, lost=reason)
                return
        what = f"{reason}, and the owner's budget is ε = {self.epsilon:g} over all runs"
        fix = "Choose a method that protects records at the site, and evaluate without attacks."
        raise BudgetError(what, where=f"site {self.site}", fix=fix)

    def departed(self, run: str, reason: str) -> None:
        """Enter that a run was seen not to follow its plan, so that nothing is known of what it released.

        Raises:
            CheckpointError: it cannot be entered.
        """
        with self._open() as account:
            entry = self._line(run, lost=reason)
            if entry not in account.lines:
                self._enter(account, run, lost=reason)

    def answered(self, line: Mapping[str, Any], require: Callable[[Sequence[Mapping[str, Any]]], None]) -> None:
        """Enter that the site answers a run, as its own journal of runs notes it (``federation.site.joined``).

        Args:
            require: raises an error if it may not, by what ``runs`` has; no other run is entered until this one is.

        Raises:
            CheckpointError: it cannot be entered.
        """
        with self._open() as account:
            require(self._runs())
            self._enter(account, line["run"], answered=line)

    def runs(self) -> list[dict[str, Any]]:
        """What was so entered of these records, or by the site of this name, from whichever folder of it.

        Raises:
            PrivacyError: an account in the folder is damaged or was edited.
            CheckpointError: they cannot be read.
        """
        with self._open():
            return self._runs()

    def _runs(self) -> list[dict[str, Any]]:
        every = [(path, line) for path in sorted(self.accounts.glob(f"*/{ACCOUNT}")) for line in _lines(path)]
        own = (line for path, line in every if self.records == line.get("records") or path.parent == self.folder)
        return [line["answered"] for line in own if "answered" in line]

    def _enter(self, account: Journal, run: str, **what: object) -> None:
        account.append(self._line(run, **what))

    def _line(self, run: str, **what: object) -> dict[str, object]:
        opening = {"opening": self.opening} if self.opening else {}
        return {"run": run, "records": self.records, **opening, **what}

    def _require(self, run: str, cost: Cost) -> None:
        before = self._known()
        entry = AccountEntry(run, self.records, self.folder.name, cost, opening=self.opening)
        after = self._epsilon(before.with_(entry))
        if self.epsilon is not None and after.value > self.epsilon:
            told = bound(self._epsilon(before).value) if before.runs else "0"
            more = f"another {several(cost.steps, 'step')}" if cost.plan else "another answer"
            raise BudgetError(
                f"{more} would exceed the owner's budget: {told} of ε = {self.epsilon:g} is spent, over "
                f"{len(before.runs)} runs at δ = {self.delta:g}, and it would be {bound(after.value)}",
                where=f"site {self.site}",
                fix="That is for the site's owner to decide: nothing was trained, and nothing was sent.",
            )

    def _known(self) -> Spending:
        found = read(self.accounts)
        lost = found.lost_of(self.records)
        if lost is not None:
            what = f"no ε covers what run {lost.run} did ({lost.lost}), so that no budget holds for these records"
            raise BudgetError(what, where=f"site {self.site}", fix=f"Look at {self.accounts}/*/{ACCOUNT}.")
        return found

    def _epsilon(self, spending: Spending) -> Epsilon:
        return spending.epsilon(self.records, self.delta)

    @contextmanager
    def _open(self) -> Iterator[Journal]:
        """This site's account as it is now; nobody else writes in the folder meanwhile."""
        try:
            self.accounts.mkdir(parents=True, exist_ok=True)
            with FileLock(self.accounts / ".lock", _PATIENCE, mode=0o600):
                atomic.make_private(self.folder)
                yield Journal(self.folder / ACCOUNT, f"account of site {self.site}")
        except Timeout as error:
            raise CheckpointError("another run holds the accounts", where=str(self.accounts)) from error
        except OSError as error:
            what = f"the account of site {self.site} cannot be written ({error.strerror})"
            fix = "Mend the rights, or give another budget.folder."
            raise CheckpointError(what, where=str(self.folder), fix=fix) from error


@dataclass(frozen=True)
class AccountEntry:
    """What a run has done to the records of one site.

    Args:
        run: its id.
        records: their digest; None where an earlier release did not note it.
        place: the folder of that site's account.
        cost: of what it was asked; a repeated round was entered again, and counts again.
        lost: why nothing is known of what it released, in place of a cost.
        opening: as ``Budget`` has it.
    """

    run: str
    records: str | None
    place: str
    cost: Cost = field(default_factory=Cost)
    lost: str = ""
    opening: str = ""

    @property
    def asked(self) -> tuple[str, str]:
        """Entries are grouped by run and opening, and the groups are composed."""
        return self.run, self.opening


@dataclass(frozen=True)
class Spending:
    """All entries of all accounts in a folder."""

    entries: Sequence[AccountEntry]

    @property
    def runs(self) -> set[str]:
        return {entry.run for entry in self.entries}

    def with_(self, entry: AccountEntry) -> Spending:
        """The same with one more."""
        return Spending([*self.entries, entry])

    def of(self, asked: tuple[str, str], records: str) -> list[list[AccountEntry]]:
        """Those of one opening for a run that may be about a record among these: of the site that had just these, or of
        each site in turn. What is on the same site's account counts, whatever records it had then."""
        own = [entry for entry in self.entries if entry.asked == asked]
        if places := {entry.place for entry in own if entry.records == records}:
            return [[entry for entry in own if entry.place in places]]
        holders: dict[str, list[AccountEntry]] = {}
        for entry in own:
            holders.setdefault(entry.place, []).append(entry)
        return list(holders.values())

    def lost_of(self, records: str) -> AccountEntry | None:
        """An entry of a run that did what no ε covers, to these records or to what may have been these."""
        every = {entry.asked for entry in self.entries}
        found = (entry for asked in every for own in self.of(asked, records) for entry in own if entry.lost)
        return next(found, None)

    def epsilon(self, records: str, delta: float) -> Epsilon:
        """Of a record among these, by all runs together. An ε with δ = 0 is added to that of the plans, with whichever
        of their adjacencies: a mechanism by itself is for any record in place of another, an empty one too.

        Raises:
            PrivacyError: δ is not in (0, 1).
        """
        runs, pure = list[list[ReleasedSteps]](), 0.0
        # Steps of which it is known that a record among these was in them, by run, plan and place.
        certain: dict[tuple[str, PrivacyPlan], Counter[str]] = {}
        for asked in sorted({entry.asked for entry in self.entries}):
            choices = self.of(asked, records)
            parts = [_by_plan(own) for own in choices]
            pure += max(sum(entry.cost.epsilon for entry in own) for own in choices)
            if len(parts) == 1:
                for plan, steps in parts[0].items():
                    certain.setdefault((asked[0], plan), Counter()).update(steps)
            elif all(len(part) == 1 for part in parts):
                runs.append([_release(plan, steps) for part in parts for plan, steps in part.items()])
            else:  # a site that followed several plans in a run: all that any site did counts
                runs += [[_release(plan, steps)] for part in parts for plan, steps in part.items()]
        counts: Counter[tuple[PrivacyPlan, int]] = Counter()
        for (_, plan), steps in certain.items():
            one = _release(plan, steps)
            counts[plan, one.copies] += one.steps
        runs += [
            [ReleasedSteps(plan, count, by_record=True, copies=copies)] for (plan, copies), count in counts.items()
        ]
        plans = [release.plan for run in runs for release in run]
        if not plans:
            return Epsilon(pure, "sum", delta, "replace-one")
        found = composition.at_most(runs, delta, composition.adjacency(plans), combinations=_COMBINATIONS)
        return replace(found, value=found.value + pure)


def _by_plan(entries: Sequence[AccountEntry]) -> dict[PrivacyPlan, Counter[str]]:
    """Steps by plan and place."""
    found: dict[PrivacyPlan, Counter[str]] = {}
    for entry in entries:
        if entry.cost.plan is not None:
            found.setdefault(entry.cost.plan, Counter())[entry.place] += entry.cost.steps
    return found


def _release(plan: PrivacyPlan, steps: Counter[str]) -> ReleasedSteps:
    """What a run released of records that are at all of these places. Each place has noise of its own; but where whole
    sites are protected, noise in shares is that of one sum, which all places may have moved in the same steps."""
    if plan.unit == "site":
        return ReleasedSteps(plan, max(steps.values()), by_record=True, copies=len(steps))
    return ReleasedSteps(plan, steps.total(), by_record=True)


def read(accounts: Path) -> Spending:
    """All that is on the accounts in a folder, which are left as they are; there may be none yet.

    Raises:
        PrivacyError: one is damaged or was edited.
        OSError: one cannot be read.
    """
    found: list[AccountEntry] = []
    for path in sorted(accounts.glob(f"*/{ACCOUNT}")):
        known = path.stat()
        found += _entries(path, known.st_mtime_ns, known.st_size)
    return Spending(found)


@lru_cache(maxsize=1 << 12)  # each site looks at the accounts of all, which change once a round
def _entries(path: Path, changed: int, size: int) -> Sequence[AccountEntry]:
    """Of one account; equal steps of a run are one entry."""
    steps: dict[tuple[str, str | None, str, PrivacyPlan], int] = {}
    found: list[AccountEntry] = []
    place = path.parent.name
    for line in _lines(path):
        if "answered" in line:
            continue  # what that spends has lines of its own
        run, records, opening = line["run"], line.get("records"), line.get("opening", "")
        if "lost" in line:
            found.append(AccountEntry(run, records, place, lost=line["lost"], opening=opening))
            continue
        if "epsilon" in line:
            found.append(AccountEntry(run, records, place, Cost(epsilon=line["epsilon"]), opening=opening))
            continue
        key = run, records, opening, _plan(json.dumps(line["plan"]))
        steps[key] = steps.get(key, 0) + line["steps"]
    for (run, records, opening, plan), count in steps.items():
        found.append(AccountEntry(run, records, place, Cost(plan, count), opening=opening))
    return found


def _lines(path: Path) -> list[dict[str, Any]]:
    return Journal.peek(path, f"account of site {site_of(path.parent.name)}").lines


@lru_cache(maxsize=1 << 10)
def _plan(text: str) -> PrivacyPlan:
    return PrivacyPlan.from_json(text)

"""What a site's owner allows over all runs: a budget of ε, and the account that it is held against.

The account lies outside of any run's folder, and is only ever added to. What a round may spend is entered before it
begins, so that no crash, no resumed run and no run at the same time can spend it unseen.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from pydantic import Field, model_validator

from murmura import atomic
from murmura.config import Section
from murmura.errors import BudgetError, CheckpointError
from murmura.privacy import composition
from murmura.privacy.accounting import Epsilon
from murmura.privacy.composition import Release
from murmura.privacy.journal import Journal
from murmura.privacy.plan import PrivacyPlan
from murmura.runs.schema import site_folder
from murmura.units import bound

ACCOUNT = "account.journal"
_PATIENCE = 60  # seconds to wait while another run reads or writes the account


class BudgetConfig(Section):
    """What the owner of each site allows of its records over all runs, whatever a server asks. In a simulation all
    owners decide alike."""

    folder: str | None = None
    """Where each site keeps the account of all its runs: a folder of its own outside of the runs' folders, relative to
    the current one. Whoever begins another one forgets what was spent."""
    epsilon: float | None = Field(None, gt=0, allow_inf_nan=False)
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

    Whatever runs are in the account count together, on whichever records: sites add records and take some away, and
    those that stay have seen all of the runs.

    Args:
        folder: of this site alone; made if need be.
        site: its name, for messages.
        epsilon: the most that may be spent; None for an account without a limit.
        delta: that belongs to it.

    Raises:
        PrivacyError: the account is damaged or was edited.
    """

    def __init__(self, folder: Path, site: str, epsilon: float | None, delta: float) -> None:
        self.folder, self.site, self.epsilon, self.delta = folder, site, epsilon, delta
        with self._open():
            pass

    def reserve(self, run: str, plan: PrivacyPlan, steps: int) -> None:
        """Enter what a run is about to spend of each record, before it does.

        Args:
            run: its id.
            plan: that it follows at this site.
            steps: of the plan.

        Raises:
            BudgetError: it would exceed the budget; nothing was entered.
            CheckpointError: it cannot be entered.
        """
        with self._open() as account:
            if self.epsilon is not None:
                self._require(account, run, plan, steps)
            account.append({"run": run, "plan": json.loads(plan.to_json()), "steps": steps})

    def lose(self, run: str, reason: str) -> None:
        """Enter that a run does, or did, what no ε covers. From then on no budget holds.

        Raises:
            BudgetError: there is one; what was not done yet may not be done.
            CheckpointError: it cannot be entered.
        """
        with self._open() as account:
            if self.epsilon is None:
                account.append({"run": run, "lost": reason})
                return
        raise BudgetError(
            f"{reason}, and the owner's budget is ε = {self.epsilon:g} over all runs", where=f"site {self.site}",
            fix="Take a method that protects records at the site, and evaluate without attacks.",
        )  # fmt: skip

    def departed(self, run: str, reason: str) -> None:
        """Enter that a run was seen not to follow its plan, so that nothing is known of what it released.

        Raises:
            CheckpointError: it cannot be entered.
        """
        with self._open() as account:
            if {"run": run, "lost": reason} not in account.lines:
                account.append({"run": run, "lost": reason})

    def spent(self) -> Epsilon:
        """ε of all runs in the account, at the budget's δ.

        Raises:
            BudgetError: one of them did what no ε covers.
        """
        with self._open() as account:
            self._require_known(account)
            return _epsilon(_releases(account), self.delta)

    def _require(self, account: Journal, run: str, plan: PrivacyPlan, steps: int) -> None:
        self._require_known(account)
        before = _releases(account)
        after = _epsilon(_with(before, run, plan, steps), self.delta)
        if self.epsilon is not None and after.value > self.epsilon:
            told = bound(_epsilon(before, self.delta).value) if before else "0"
            more = f"another {steps} step{'s' * (steps != 1)}"
            raise BudgetError(
                f"{more} would exceed the owner's budget: {told} of ε = {self.epsilon:g} is spent, over "
                f"{len({name for name, _ in before})} runs at δ = {self.delta:g}, and it would be {bound(after.value)}",
                where=f"site {self.site}",
                fix="That is for the site's owner to decide: nothing was trained, and nothing was sent.",
            )

    def _require_known(self, account: Journal) -> None:
        lost = _lost(account)
        if lost is not None:
            raise BudgetError(
                f"no ε covers what run {lost['run']} did ({lost['lost']}), so that no budget holds for these records",
                where=f"site {self.site}", fix=f"Look at {self.folder / ACCOUNT}.",
            )  # fmt: skip

    @contextmanager
    def _open(self) -> Iterator[Journal]:
        """The account as it is now; nobody else writes it meanwhile."""
        try:
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            atomic.make_private(self.folder)
            with FileLock(self.folder / ".lock", _PATIENCE, mode=0o600):
                yield Journal(self.folder / ACCOUNT, f"account of site {self.site}")
        except Timeout as error:
            raise CheckpointError("another run holds the account", where=str(self.folder)) from error
        except OSError as error:
            raise CheckpointError(
                f"the account of site {self.site} cannot be written ({error.strerror})", where=str(self.folder),
                fix="Mend the rights, or give another budget.folder.",
            ) from error  # fmt: skip


@dataclass(frozen=True)
class Foreseen:
    """What a run would do to a site's account.

    Attributes:
        before: ε that is on it; infinite where an earlier run did what no ε covers.
        after: ε that would be on it, were all rounds answered.
        answered: how many of them the site would answer.
    """

    before: float
    after: float
    answered: int


def foresee(chosen: BudgetConfig, site: str, plan: PrivacyPlan, steps: int, rounds: int) -> Foreseen:
    """What a new run would do to a site's account, which is left as it is; there may be none yet.

    Args:
        chosen: with a folder.
        plan: that the run follows at this site.
        steps: of the plan in a round.

    Raises:
        PrivacyError: the account is damaged or was edited.
        OSError: it cannot be read.
    """
    assert chosen.folder is not None, "without a folder there is no account"
    path = Path(chosen.folder) / site_folder(site) / ACCOUNT
    what = f"account of site {site}"
    account = Journal.peek(path, what) if path.exists() else Journal(None, what)
    if _lost(account) is not None:
        return Foreseen(math.inf, math.inf, 0 if chosen.epsilon is not None else rounds)
    before = _releases(account)

    def after(count: int) -> float:
        found = _with(before, "", plan, count * steps) if count else before
        return _epsilon(found, chosen.delta).value if found else 0.0

    limit = math.inf if chosen.epsilon is None else chosen.epsilon
    answered = bisect_right(range(1, rounds + 1), limit, key=after)
    return Foreseen(after(0), after(rounds), answered)


def _epsilon(releases: dict[tuple[str, PrivacyPlan], int], delta: float) -> Epsilon:
    plans = [plan for _, plan in releases]
    found = [Release(plan, steps, by_record=True) for (_, plan), steps in releases.items()]
    return composition.composed(found, delta, composition.adjacency(plans))


def _lost(account: Journal) -> dict[str, Any] | None:
    """The line that tells of a run that did what no ε covers."""
    return next((line for line in account.lines if "lost" in line), None)


def _releases(account: Journal) -> dict[tuple[str, PrivacyPlan], int]:
    """Steps by run and plan. A repeated round was entered again, and counts again."""
    found: dict[tuple[str, PrivacyPlan], int] = {}
    for line in account.lines:
        if "plan" in line:
            found = _with(found, line["run"], PrivacyPlan.from_json(json.dumps(line["plan"])), line["steps"])
    return found


def _with(
    releases: dict[tuple[str, PrivacyPlan], int], run: str, plan: PrivacyPlan, steps: int
) -> dict[tuple[str, PrivacyPlan], int]:
    return {**releases, (run, plan): releases.get((run, plan), 0) + steps}

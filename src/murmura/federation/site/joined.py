"""Which runs have had answers about a site's records.

A server gives a run its id, and a process of the site that was started again has joined none. What a run promises is
for that run alone; so a site writes down by itself which ones it has answered, and answers another by its owner's word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from murmura.errors import RefusedError
from murmura.privacy.budget import Budget
from murmura.privacy.journal import Journal

OWNERS = "That is for the site's owner to decide: see site.toml."
"""What is told besides of what the owner does not allow."""
WHAT = "journal of runs that the site has answered"


class Owner(Protocol):
    """Who decides on further runs."""

    @property
    def experiment(self) -> str:
        """Digest of what the present run is of. A run that goes on with other options is another one to them."""

    def objection(self, before: Sequence[Mapping[str, Any]]) -> str | None:
        """Why a run that was not answered before may not be; None where it may.

        Args:
            before: what was noted of each run before it.
        """

    def exceeded(self, before: Sequence[Mapping[str, Any]]) -> str | None:
        """Why one answer more than the present run was planned to ask for may not be given, though it was allowed; None
        where it may.

        Args:
            before: as of ``objection``; the run itself is among them.
        """

    def noted(self) -> Mapping[str, Any]:
        """What is noted of it."""


class Joined:
    """The runs that one site has answered.

    Args:
        path: of the journal; None counts in memory.
        owner: None where nobody is asked, and nothing is noted.
        account: outside of the site's folder, which has the runs too that the site has answered from other folders.

    Raises:
        PrivacyError: the journal is damaged or was edited.
    """

    def __init__(self, path: Path | None = None, owner: Owner | None = None, account: Budget | None = None) -> None:
        self._journal, self._owner, self._account = Journal(path, WHAT), owner, account

    def require(self, run: str, *, more: bool = False) -> None:
        """
        Args:
            more: as of ``enter``.

        Raises:
            RefusedError: the owner does not allow that this run is answered besides those before it; or there is no
                room for one answer more.
        """
        if self._owner is not None:
            self._require(run, self._owner, more, [] if self._account is None else self._account.runs())

    def enter(self, run: str, *, more: bool = False) -> str:
        """Note a run before the first answer that depends on what records say.

        Args:
            more: the answer is one more than the run was planned to ask for, which counts as if it were another run.

        Returns:
            What to tell the site's owner; empty for nothing.

        Raises:
            RefusedError: as ``require``.
            CheckpointError: it cannot be entered, so that nothing may leave.
        """
        if self._owner is None:
            return ""
        noted = self._noted(run, self._owner)
        if noted and not more:
            return ""
        line = noted or {"run": run, "experiment": self._owner.experiment, **self._owner.noted()}
        require = partial(self._require, run, self._owner, more)
        if self._account is None:
            require([])
        else:
            self._account.answered(line, require)  # first, so that no run is known here alone
        self._journal.append(line)
        if noted or (number := len({line["run"] for line in self._journal.lines})) == 1:
            return ""
        return (
            f"run '{run}' is number {number} of the runs that this site has answered with its records: what each "
            "promises is for that run alone, and together they tell more."
        )

    def _noted(self, run: str, owner: Owner) -> Mapping[str, Any] | None:
        lines = (line for line in self._journal.lines if (line["run"], line["experiment"]) == (run, owner.experiment))
        return next(lines, None)

    def _require(self, run: str, owner: Owner, more: bool, known: Sequence[Mapping[str, Any]]) -> None:
        """As ``require``.

        Args:
            known: what the account has. Of other folders it counts without the consents, which are given here.
        """
        own = self._journal.lines
        before = [*own, *({**line, "consents": 0} for line in known if line not in own)]
        if self._noted(run, owner) is None:
            objection = owner.objection(before)
        else:
            objection = owner.exceeded(before) if more else None
        if objection:
            raise RefusedError(objection, fix=OWNERS)

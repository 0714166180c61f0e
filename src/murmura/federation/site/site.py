"""The site's side: private records and private memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any, Literal

from murmura.data.records import Instruction
from murmura.errors import RefusedError, RunError, SecureSumError
from murmura.federation.site.answered import Answered
from murmura.federation.site.joined import Joined
from murmura.federation.site.masking import Masking
from murmura.federation.site.released import ReleaseJournal
from murmura.federation.site.store import SiteStore
from murmura.federation.wire.messages import Payload
from murmura.privacy.budget import Budget
from murmura.privacy.journal import Journal
from murmura.runs.schema import ShownDraft

_PUBLIC, WRITTEN, _COUNTED = "public", "written", "counted"  # in its store


@dataclass
class Site:
    """One data owner.

    Args:
        name: unique in the federation.
        records: its private records, of one kind, all of which fit the model.
        apart: more of them, which nobody trains on or counts (``[personal]``): its own models are measured with them.
        run: the id of the run that it has joined; None: none yet.
        left: whether it takes part in that run no more, until it joins it again. It joins no other.
        rejection: why its owner does not allow the run; None if it is allowed.
        runs: those that it has answered, in earlier processes too.
        store: what it keeps to itself between rounds; a payload.
        kept: where that rests; None: nowhere but here.
        journal: its privacy ledger, which does not go back with the store.
        centres: the ledger of noisy centres of its records, which covers these alone (``retrieval.noisy``).
        budget: what its owner allows over all runs, and the account of them; None: no account is kept.
        results: a folder for what sites have of their own when the run is finished.
        masking: its part in secure sums; None in a run without.
        answered: how often it has answered what a promise is for, which does not go back either.
        measured: how often it has answered what measures each run, in earlier processes too.
        released: the journal of what has left it; None: nobody keeps one.
        unkept: rounds that it could not keep since then, and the class of what went wrong.
        agreed: digests of the records and questions that its federation has agreed to measure on, to which its owner
            has consented; None: whatever the server brings, as in a simulation.
    """

    name: str
    records: Sequence[Any]
    run: str | None = ""
    rejection: str | None = None
    store: Payload = field(default_factory=dict)
    kept: SiteStore | None = None
    journal: Journal = field(default_factory=Journal)
    centres: Journal = field(default_factory=Journal)
    results: Path | None = None
    budget: Budget | None = None
    masking: Masking | None = None
    answered: Answered = field(default_factory=Answered)
    measured: Answered = field(default_factory=Answered)
    released: ReleaseJournal | None = None
    runs: Joined = field(default_factory=Joined)
    unkept: dict[int, str] = field(default_factory=dict)
    apart: Sequence[Any] = ()
    agreed: frozenset[str] | None = None
    left: bool = False

    @property
    def size(self) -> int:
        return len(self.records)

    @property
    def public(self) -> list[Instruction]:
        """The public records that it keeps to train on beside its own; none unless the run augments sites."""
        return [Instruction(*fields) for fields in self.store.get(_PUBLIC, [])]

    @property
    def written(self) -> list[Instruction]:
        """The records that a model has written here after its own, which it keeps to train on beside these; they are as
        private. None unless the run augments sites so."""
        return [Instruction(*fields) for fields in self.store.get(WRITTEN, [])]

    def keep(self, kind: Literal["public", "written"], records: Sequence[Instruction], counted: int) -> None:
        """Keep public or written records in place of those that it has.

        Args:
            records: those that it will use.
            counted: how many it was sent, or there were to be.
        """
        self.store[_PUBLIC if kind == "public" else WRITTEN] = [list(astuple(record)) for record in records]
        self.store[_COUNTED] = counted

    @property
    def examples(self) -> int:
        """How many records it counts for in a mean: its own, and as many others as it was sent, or as were to be
        written. How many of them it trains on follows from its own, so the number does not tell the server."""
        return self.size + int(self.store.get(_COUNTED, 0))

    def require_agreed(self, verb: str, digests: Iterable[str]) -> None:
        """Hold what a verb is to measure the site's own adapter on to what was agreed: of a text that the server may
        choose, how well that adapter knows it would tell whether it is among the site's records, and what it says.

        Args:
            digests: of those records and questions (``measure.evaluation_set.digests``).

        Raises:
            RefusedError: one of them was not agreed on.
        """
        if self.agreed is not None and not self.agreed.issuperset(digests):
            reason = "it brings records or questions that are not on the list that the federation hands round"
            raise RefusedError(f"'{verb}' is asked for in another way than in this run: {reason}")

    def tell(self, what: str) -> None:
        """Tell the site's owner, and nobody else; nothing of it leaves.

        Raises:
            CheckpointError: it cannot be written.
        """
        if self.kept is not None:
            self.kept.tell(what)

    def show(self, drafts: Sequence[ShownDraft]) -> None:
        """Keep some of what was written after its records for the site's owner; nothing of it leaves.

        Raises:
            CheckpointError: it cannot be written.
        """
        if self.kept is not None:
            self.kept.show(drafts)

    def join(self, run: str) -> None:
        """Take part in a run from now on, and in no other."""
        self.run, self.left = run, False
        if self.masking is not None:
            self.masking.run = run

    def leave(self) -> None:
        """Take no further part in its run until it joins that one again."""
        self.left = True

    def commit(self, round: int) -> None:
        """Keep the store as it is after a round.

        Raises:
            CheckpointError: it could not be written; the generations before are intact.
        """
        try:
            if self.kept is not None:
                self.kept.commit(round, self.store)
        except Exception as error:
            self.unkept[round] = type(error).__name__
            raise

    def rewind(self, round: int) -> None:
        """Take the store back to how it was after a round.

        Raises:
            CheckpointError: it is damaged or gone.
        """
        self.store = self.kept.rewind(round) if self.kept is not None else {}

    @contextmanager
    def in_secure_sum(self, round: int) -> Iterator[Masking]:
        """The site's part in secure sums; of what it refuses its owner is told.

        Raises:
            RunError: it has none.
        """
        if self.masking is None:
            raise RunError("the site takes part in no secure sums", where=f"site {self.name}, round {round}")
        try:
            yield self.masking
        except SecureSumError as error:
            self.tell(f"Round {round}: {error}")
            error.where = f"site {self.name}, round {round}"
            raise

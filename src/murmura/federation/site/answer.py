"""The one place where sites answer: it runs verbs, and checks what they release, whatever engine brought the ask."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from murmura.errors import (
    CheckpointError,
    MurmuraError,
    PrivacyError,
    RefusedError,
    RunError,
    SecureSumError,
    UndeclaredReleaseError,
    nearest,
)
from murmura.federation.site.cohort import Cohort
from murmura.federation.site.joined import OWNERS
from murmura.federation.site.site import Site
from murmura.federation.wire.layout import MASKED, as_tensor, entries_of
from murmura.federation.wire.masks import SIGNATURE_BYTES, STEPS, packed
from murmura.federation.wire.messages import JOIN, LATE, Ask, Failure, Payload, Reply, digest
from murmura.federation.wire.releases import VOUCHED, Declaration, Verbs, owner
from murmura.privacy.ledger import PrivacyLedger

if TYPE_CHECKING:
    from murmura.aggregation.rules import Rule
    from murmura.model_runtime import ModelRuntime
    from murmura.streams import Stream

_TOGETHER = 256
"""Most sites in a cohort that needs no slots: what is held while they work, and their replies, grows with it."""
_DISTRUST = "do not trust this server"
_FIX = f"Server and sites need the same experiment; if they have it, {_DISTRUST}."
_RUN, _VERB = re.compile(r"[\w-]{0,64}", re.ASCII), re.compile(r"[\w -]{0,64}", re.ASCII)
"""What a run's id and a verb can be: a site's owner reads them in its notes, and its journals hold them."""
_NOTED = 100
"""Most refusals that are noted for a site's owner while its process lives: a server could fill the disk with them."""


class Host:
    """Sites in one process that share a resident model: one in a deployment, many in a simulation.

    Args:
        sites: the ones that live here.
        verbs: what they can be asked for in this run (``Verbs.verbs``), by the sites' own copy of the experiment; the
            method's first. They answer nothing else.
        runtime: the resident model, with everything that verbs do with it.
        stream: the run's randomness.
        rule: how adapters are aggregated, and so what of them trains and travels.
        run: the run that the sites have joined; None: they have joined none yet. They answer no other.
        rounds: of the run; None: any number.

    A site whose ``Site.kept`` is given keeps its store there with every round.
    """

    def __init__(
        self,
        sites: Sequence[Site],
        verbs: Sequence[Verbs],
        runtime: ModelRuntime,
        stream: Stream,
        rule: Rule | None = None,
        *,
        run: str | None,
        rounds: int | None = None,
    ) -> None:
        self.sites = {site.name: site for site in sites}
        self.verbs, self.runtime, self.stream, self.rule, self.rounds = list(verbs), runtime, stream, rule, rounds
        for site in sites:
            site.run = run
        self._said: dict[str, set[str]] = {}

    @property
    def tells_progress(self) -> bool:
        """Whether whoever asks may learn how far the sites are with an answer, and how long each phase of it took: from
        that follows roughly how many records they have, so only where these are told (``Membership``)."""
        return any("records" in one.releases(JOIN) for one in self.verbs if JOIN in one.verbs())

    def close(self) -> None:
        """Let other processes work with what the sites keep."""
        for site in self.sites.values():
            if site.kept is not None:
                site.kept.release()

    def answer(self, ask: Ask, sites: Sequence[str], since: float | None = None) -> Iterator[Reply | Failure]:
        """Replies in the order of ``sites``, as they come. What this run does not ask is refused, and sites' owners are
        told. Sites work in cohorts that the bank has slots for. Sites that have answered as often as they may, or whose
        budget does not allow the answer, fail alone, and before their cohort. When ``ask.seconds`` are over, no cohort
        begins to work, and what one has done too late does not leave, but for verbs that are done however late. Each
        answer is in its site's journal before it leaves (``Site.released``); what cannot be entered does not leave.

        Args:
            since: when the ask arrived, as ``time.monotonic`` says; now, if not given.
        """
        return (self._entered(ask, answer) for answer in self._answers(ask, list(dict.fromkeys(sites)), since))

    def _answers(self, ask: Ask, sites: Sequence[str], since: float | None) -> Iterator[Reply | Failure]:
        try:
            declared = self._asked(ask)
        except (RefusedError, SecureSumError) as outside:
            yield from (self._failed(ask, self.sites[name], outside) for name in sites)
            return
        until = None
        if ask.seconds is not None and not declared.late:
            until = ask.seconds + (time.monotonic() if since is None else since)
        for cohort in self._cohorts(ask.verb, sites):
            if _is_over(until):
                yield from (Failure(name, LATE) for name in cohort)
                continue
            refused = {name: error for name in cohort if (error := self._refusal(ask, self.sites[name]))}
            yield from (self._failed(ask, self.sites[name], error) for name, error in refused.items())
            names = [name for name in cohort if name not in refused]
            if not names:
                continue
            replies = self._left(ask, self._tried(ask, names))
            yield from (Failure(name, LATE) for name in names) if _is_over(until) else replies

    def _entered(self, ask: Ask, answer: Reply | Failure) -> Reply | Failure:
        """An answer that its site's journal has, so that it may leave; or why it may not."""
        journal = self.sites[answer.site].released
        if journal is None:
            return answer
        try:
            if isinstance(answer, Failure):
                journal.enter_failure(ask, answer)
            else:
                verbs = owner(self.verbs, ask.verb)
                journal.enter(ask, answer, verbs.releases(ask.verb), verbs.secure(ask.verb))
        except CheckpointError as error:
            return Failure(answer.site, type(error).__name__, error)
        return answer

    def _left(self, ask: Ask, answers: list[Reply | Failure]) -> list[Reply | Failure]:
        """Answers as they leave: in a secure sum as masked vectors."""
        if ask.masked is None:
            return answers
        shared = digest(ask.shared)
        return [one if isinstance(one, Failure) else self._masked(ask, ask.masked, shared, one) for one in answers]

    def _tried(self, ask: Ask, names: Sequence[str]) -> list[Reply | Failure]:
        """One cohort's replies. Where it fails, each of its sites works alone, from the store that it had, so that what
        goes wrong at one costs no other its answer: an ε for whole sites counts on that."""
        before = {name: _copied(self.sites[name].store) for name in names} if len(names) > 1 else {}
        try:
            return list(self._work(ask.narrowed(names), names))
        except Exception as error:
            if len(names) == 1 and isinstance(error, RefusedError | PrivacyError):
                return [self._failed(ask, self.sites[names[0]], error)]
            if len(names) == 1 or isinstance(error, SecureSumError):  # which is about the server
                return [Failure(name, type(error).__name__, error) for name in names]
        for name, store in before.items():
            self.sites[name].store = store
        return [one for name in names for one in self._tried(ask, [name])]

    def _cohorts(self, verb: str, sites: Sequence[str]) -> Iterator[Sequence[str]]:
        needs_slots = owner(self.verbs, verb).declaration(verb).slots
        size = self.runtime.slots if needs_slots else _TOGETHER
        if verb in STEPS:  # none of which a site takes twice, as it would have to where another one of its cohort fails
            size = 1
        return (sites[start : start + size] for start in range(0, len(sites), size))

    def _asked(self, ask: Ask) -> Declaration:
        """What the verb that is asked for says of itself."""
        if not (_fits(_VERB, ask.verb) and _fits(_RUN, ask.run) and type(ask.round) is int):
            raise RefusedError("this request has no valid run id, verb or round")  # it could be any text
        verbs = owner(self.verbs, ask.verb)
        of_method = verbs is self.verbs[0]
        if self.rounds is not None and not (int(of_method) <= ask.round <= self.rounds and verbs.asks(ask.round)):
            raise RefusedError(f"'{ask.verb}' is asked for in round {ask.round}, in which this run does not")
        self._require_masked(ask, verbs)
        return verbs.declaration(ask.verb)

    def _require_masked(self, ask: Ask, verbs: Verbs) -> None:
        """Hold a server to asking in a secure sum for what leaves in one alone, and in clear for the rest; and to a
        layout, as far as that can be said before the verb runs, and before anything is counted: the rest is held
        against the reply (``Layout.vector``)."""
        if (ask.masked is None) != (verbs.secure(ask.verb) is None):
            how = "in clear, and its replies leave in a secure sum alone" if ask.masked is None else "in a secure sum"
            raise SecureSumError(f"verb {ask.verb} is asked for {how}", fix=_FIX)
        if ask.masked is None:
            return
        declared = verbs.releases(ask.verb)
        for entry in entries_of(ask.masked):
            if entry.field not in declared:
                raise SecureSumError(f"'{entry.field}' is to be summed, which verb {ask.verb} does not send", fix=_FIX)
            if declared[entry.field].kind == "count" and not entry.is_whole:
                raise SecureSumError(f"{entry.named} is to be summed as if it were not whole", fix=_FIX)
        for name in verbs.weights(ask.verb).values():
            if name not in declared or declared[name].kind != "count":
                raise SecureSumError(f"'{name}' is no number of examples, and is to weigh what is summed")

    def _failed(self, ask: Ask, site: Site, error: MurmuraError) -> Failure:
        """A refusal as it leaves; the site's owner is told all of it."""
        told = str(error)
        if isinstance(error, RefusedError) and error.fix != OWNERS and not (error.fix and _DISTRUST in error.fix):
            told = f"{told.rstrip('.')}. {_FIX}"
        self._note(ask, site, told)
        return Failure(site.name, type(error).__name__, error)

    def _note(self, ask: Ask, site: Site, told: str) -> None:
        """Tell a site's owner of something that was refused, of the same thing once."""
        said = self._said.setdefault(site.name, set())
        if told in said or len(said) >= _NOTED:
            return
        said.add(told)
        with suppress(CheckpointError):
            site.tell(f"Round {ask.round}: {told}" if type(ask.round) is int else told)

    def _refusal(self, ask: Ask, site: Site) -> MurmuraError | None:
        """Why a site may not answer: its owner does not allow the run, or not after others; it has joined another, has
        answered as often as it may, or its budget does not allow it. Where it may, all that counts has the answer."""
        if site.rejection is not None:
            return RefusedError(site.rejection, where=f"site {site.name}", fix=OWNERS)
        may_join = ask.verb == JOIN and site.run in (None, ask.run)
        if not may_join and (site.left or site.run != ask.run):
            return self._of_another(ask, site)
        run, verbs = ask.run, owner(self.verbs, ask.verb)
        most, more, notes = verbs.answers(ask.verb), False, list[str]()
        try:
            if ask.verb == JOIN or not verbs.is_free(ask.verb):
                site.runs.require(run)
            if most is not None:
                measures = verbs.declaration(ask.verb).measures
                count, of = (site.measured, run) if measures else (site.answered, None)
                if told := count.enter(ask.verb, ask.round, most, of):
                    notes.append(f"Round {ask.round}: {told}")
                    more = not measures
            if more:
                site.runs.require(run, more=True)  # before anything is paid for it
            if not verbs.is_free(ask.verb):
                if site.budget is not None:
                    cost = verbs.cost(ask.verb, site.size, self.runtime.training)
                    if cost is None:
                        site.budget.lose(run, f"no ε covers what verb {ask.verb} releases")
                    else:
                        site.budget.reserve(run, cost)
                if told := site.runs.enter(run, more=more):  # last: a refused answer tells nothing of records
                    notes.append(told)
            for one in notes:  # of what is answered, and not of what was refused after all
                site.tell(one)
        except MurmuraError as error:
            return error
        return None

    def _of_another(self, ask: Ask, site: Site) -> MurmuraError:
        """Why a site does not answer a run that it has not joined, or has left. A process joins one run, whatever its
        owner allows: else a server could have it forget one that it is in the midst of."""
        joined = "no run yet" if site.run is None else f"run '{site.run}'"
        if site.run is None or ask.verb != JOIN:
            left = ", and takes no further part in it" if site.left and site.run is not None else ""
            return RefusedError(f"run '{ask.run}' asks, but the site has joined {joined}{left}")
        try:
            site.runs.require(ask.run)
        except MurmuraError as error:
            return error
        return RefusedError(
            f"run '{ask.run}' is to be joined, and this process of the site has joined {joined}",
            fix=f"If that one is over, start the site again: `murmura site start`. If it goes on, {_DISTRUST}.",
        )

    def _hold_to_plan(self, site: Site, run: str) -> None:
        """Where a ledger of a site shows that the run departs from its plan, what is in the account is not true."""
        for journal in (site.journal, site.centres):
            if site.budget is not None and journal.lines:
                for reason in PrivacyLedger.of(journal).departures:
                    site.budget.departed(run, reason)

    def _work(self, ask: Ask, names: Sequence[str]) -> list[Reply]:
        """One cohort's replies."""
        verbs = owner(self.verbs, ask.verb)
        declared = verbs.releases(ask.verb)
        cohort = Cohort([self.sites[name] for name in names], self.runtime, ask, self.stream, self.rule)
        replies: list[Reply] = getattr(verbs, ask.verb)(cohort, ask)
        if not (isinstance(replies, list) and sorted(one.site for one in replies) == sorted(names)):
            what = f"verb {ask.verb} does not give one reply for each site"
            fix = "Return a list with a Reply for each of cohort.sites, by its name."
            raise RunError(what, where=f"round {ask.round}", fix=fix)
        for site in cohort.sites:
            self._hold_to_plan(site, ask.run)
        for reply in replies:
            for name in reply.fields:
                if name not in declared:
                    what = f"verb {ask.verb} would send '{name}', which it does not declare"
                    fix = nearest(name, declared)
                    raise UndeclaredReleaseError(what, where=f"site {reply.site}, round {ask.round}", fix=fix)
        return replies

    def _masked(self, ask: Ask, terms: Mapping[str, Any], shared: bytes, reply: Reply) -> Reply | Failure:
        """A reply as it leaves in a secure sum, or why it does not; of what had to be clipped the site's owner is told.

        Args:
            shared: digest of what all sites were asked alike.
        """
        site = self.sites[reply.site]
        try:
            asked = shared + digest(dict(ask.each.get(site.name, {})))
            weights = owner(self.verbs, ask.verb).weights(ask.verb)
            with site.in_secure_sum(ask.round) as masking:
                vector, told = masking.mask(ask.round, ask.verb, terms, asked, reply.fields, weights)
                voucher = masking.vouch(terms["sum"])
            for one in told:
                site.tell(f"Round {ask.round}: {one}; the server was not told.")
        except Exception as error:
            return Failure(site.name, type(error).__name__, error)
        masked: Payload = {MASKED: as_tensor(vector)}
        return Reply(site.name, masked if voucher is None else masked | {VOUCHED: packed([voucher], SIGNATURE_BYTES)})


def _fits(form: re.Pattern[str], told: Any) -> bool:
    return isinstance(told, str) and form.fullmatch(told) is not None


def _copied(store: Payload) -> Payload:
    """A store as it is, whatever is done to its lists."""
    return {name: list(value) if isinstance(value, list) else value for name, value in store.items()}


def _is_over(until: float | None) -> bool:
    return until is not None and time.monotonic() > until

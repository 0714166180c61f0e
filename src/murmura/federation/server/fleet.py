"""The server's view of the sites: whom to ask, what they answered, what it cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from murmura.errors import RunError
from murmura.federation.server.activity import Activity
from murmura.federation.server.ledger import Ledger
from murmura.federation.server.publication import Publication
from murmura.federation.server.stores import Stores
from murmura.federation.server.unmasking import Each, Misfits, Unmasking, remedy, step_by_step
from murmura.federation.wire.cohorts import draw
from murmura.federation.wire.layout import FALSE, MASKED, Agreement, Layout
from murmura.federation.wire.masks import STEPS
from murmura.federation.wire.messages import JOIN, Ask, Failure, Payload, Reply, size
from murmura.federation.wire.releases import Verbs, owner
from murmura.federation.wire.sums import Sum, addable, misfit
from murmura.federation.wire.well_formed import sized, well_formed
from murmura.progress import say
from murmura.streams import Stream

if TYPE_CHECKING:
    from murmura.federation.engines import Engine


_EACH = 64  # replies to an ask after which not each is written down at once: to keep a file would take the longest time


class Fleet:
    """All sites behind an engine.

    Args:
        engine: what carries the asks.
        verbs: what sites can be asked for; the method's first.
        ledger: where every message is entered.
        stream: the run's randomness, for sampling.
        min_replies: fewer answers than this stop the run.
        run: the run's id, which every ask carries.
        seconds: how long to wait for an answer; None: without limit.
        publication: what anybody may see of the run; None: all of it.
        agreement: what is known of the run's secure sums; None where sums are in clear.

    Attributes:
        listener: gets every reply that is not only added up.
        keeper: is called when something was entered in the ledgers, before it is sent or handed on; of many replies to
            one ask at every 64th.
        activity: is told what goes on.
        answering: the sites that have answered what they were asked last.
        joined: those that are in the run, and are asked; None before any was to join: then all of them are.
        barred: why a site is not in it, though it is there: it could not take part when it came.
        at_sites: seconds that it has waited for answers in this round, but for what was asked to measure.
        took_part: the sites of whose replies the round is made.
        stores: what sites keep of it.
    """

    def __init__(
        self,
        engine: Engine,
        verbs: Sequence[Verbs],
        ledger: Ledger,
        stream: Stream,
        min_replies: int = 1,
        *,
        run: str = "",
        seconds: float | None = None,
        publication: Publication | None = None,
        agreement: Agreement | None = None,
    ) -> None:
        self.engine, self.verbs, self.ledger, self.stream = engine, list(verbs), ledger, stream
        self.min_replies, self.run, self.seconds = min_replies, run, seconds
        self.publication, self.agreement = publication or Publication(ledger), agreement
        self.listener: Callable[[Reply], None] | None = None
        self.keeper: Callable[[], None] | None = None
        self.activity = Activity(lambda told: None)
        self.answering: set[str] = set()
        self.joined: list[str] | None = None
        self.barred: dict[str, str] = {}
        self.stores = Stores(self)
        self.begin(0)

    def begin(self, round: int) -> None:
        """From now on, asks are of this round."""
        self.round = round
        self.activity.begin(round)
        self.at_sites = 0.0
        self.events: list[str] = []
        self.told: list[str] = []
        self.took_part: set[str] = set()

    @property
    def sites(self) -> list[str]:
        """Names of all sites."""
        return self.engine.sites

    @property
    def taking_part(self) -> list[str]:
        """Those that are asked."""
        return self.sites if self.joined is None else self.joined

    def event(self, what: str, **about: Any) -> None:
        """Tell in words what went otherwise than planned in this round; see ``progress.say``."""
        self.events.append(what)
        say(f"round {self.round}: {what}", event="unplanned", round=self.round, **about)

    def tell(self, what: str) -> None:
        """Tell in words what is worth knowing of this round, and went as planned."""
        self.told.append(what)
        say(f"round {self.round}: {what}", event="planned", round=self.round)

    def sample(self, count: int | None, round: int) -> list[str]:
        """The cohort of a round; see ``draw``."""
        return draw(self.sites, count, self.stream, round)

    def sum(
        self,
        verb: str,
        sites: Sequence[str],
        each: Mapping[str, Payload] | None = None,
        *,
        like: Payload | None = None,
        refused: Callable[[Reply], str | None] | None = None,
        read: Callable[[Payload], Payload] | None = None,
        settled: Callable[[int], None] | None = None,
        **shared: Any,
    ) -> Sum:
        """Ask sites, and keep only the sum of their replies. Where the verb's sums are secure (``Verbs.secure``) they
        come under masks, and nobody sees more than the sum; else each comes in clear, and by itself. Tensors are
        weighed as the verb's owner says (``Verbs.weights``).

        A reply that is not what the verb declares, is not ``like`` the others, or is ``refused``, is left out of the
        sum, and an event names its site.

        Args:
            verb: one of the sites' verbs.
            sites: whom to ask.
            each: fields for single sites.
            like: a reply with fields as large as those of any site, of the same types, and with all keys that a table
                may have. Where cohorts are secret, what may be told of the traffic is made from it, and where sums are
                secure, the layout of the vectors that are summed: so there it must be given, and nothing may be asked
                of single sites only.
            refused: says why a reply does not count though it is like the others; None where it does. Not asked where
                sums are secure, since nobody sees a reply there.
            read: as of ``ask``, where sums are in clear.
            settled: where sums are secure, is called with how many sites are in the sum, before sites reveal anything
                of it: a ledger has to know of it by then, since from then on it may be known, whatever happens here.
            shared: fields for all of them.

        Raises:
            RunError: as ``ask``; or a field cannot be added up; or too few sites answer for a secure sum.
        """
        verbs = owner(self.verbs, verb)
        total, weights = Sum(), verbs.weights(verb)
        if verbs.secure(verb) is not None:
            return self._secure_sum(verb, sites, each, weights, like, shared, settled)

        def misfits(reply: Reply) -> str | None:
            why = (misfit(reply.fields, like) if like else None) or (refused(reply) if refused else None)
            return why or addable(reply.fields, weights)

        for reply in self._replies(verb, sites, each, shared, like, misfits, read=read):
            total.add(reply.site, reply.fields, weights)
        return total

    def ask(
        self,
        verb: str,
        sites: Sequence[str],
        each: Mapping[str, Payload] | None = None,
        *,
        refused: Callable[[Reply], str | None] | None = None,
        read: Callable[[Payload], Payload] | None = None,
        heard: Callable[[Reply], None] | None = None,
        **shared: Any,
    ) -> Iterator[Reply]:
        """Ask sites to do something; replies come one by one, so that a sum never holds more than one.

        A reply that is not what the verb declares, or is ``refused``, counts as none, and an event names its site.

        Args:
            verb: one of the sites' verbs.
            sites: whom to ask.
            each: fields for single sites.
            refused: says why a reply does not count though it is what the verb declares; None where it does.
            read: what the fields of a reply stand for, where they travel in another form; a ``RunError`` of it says why
                they do not.
            heard: is called with those fields of each reply that are what the verb declares, whether it counts then or
                not: what has left a site has cost it something.
            shared: fields for all of them.

        Raises:
            RunError: after the last reply, if fewer than ``min_replies`` sites (or than were asked) answered. Not for
                verbs that only measure: a figure that is missing stops no run.
        """
        if owner(self.verbs, verb).secure(verb) is not None:
            raise RunError(f"replies to '{verb}' leave sites in secure sums alone", where=f"round {self.round}")
        for reply in self._replies(verb, sites, each, shared, misfits=refused, read=read, heard=heard):
            if self.listener is not None:
                self.listener(reply)
            yield reply

    def carried(self, ask: Ask, sites: Sequence[str]) -> Iterator[Reply | Failure]:
        """What the engine brings, with nothing entered anywhere. What went wrong in this process stops the run as it
        is: its owner owns the sites.

        A site that is not known to have joined is asked to do so and nothing else. It may have, with an answer that was
        lost: then it would work on, and keep, a store that nobody has taken back to where the run is, and spend what
        nobody notes.
        """
        there = set(sites if ask.verb == JOIN else self.taking_part)
        for site in sites:
            if site not in there:
                yield Failure(site, self.barred.get(site, "it has not joined"))
        sites = [site for site in sites if site in there]
        with self.activity.asking(ask.verb, sites) as heard:
            for answer in self.engine.ask(ask, sites) if sites else ():
                if isinstance(answer, Failure) and answer.error is not None:
                    raise answer.error
                heard(answer.site)
                yield answer

    def _replies(
        self,
        verb: str,
        sites: Sequence[str],
        each: Mapping[str, Payload] | None,
        shared: Payload,
        like: Payload | None = None,
        misfits: Misfits | None = None,
        read: Callable[[Payload], Payload] | None = None,
        heard: Callable[[Reply], None] | None = None,
        under: Unmasking | None = None,
        needed: int | None = None,
    ) -> Iterator[Reply]:
        """Replies as they come, entered in the ledgers; sites that do not answer as they should become events.

        Args:
            misfits: says why a reply is left out, if it is, with its fields as they are ``read``.
            under: the secure sum that this is a step of; replies to its verb leave under its masks.
            needed: how many; as ``min_replies`` says, if not given.
        """
        told, masked = (None, None) if under is None or verb in STEPS else (under.terms(), under.sizes())
        asked, left_out = (sites, set[str]()) if under is None else (under.asked, under.left_out)
        ask = Ask(verb, self.round, shared, each or {}, self.run, self.seconds, told)
        ledgers, releases = self._enter(ask, sites, like), owner(self.verbs, verb).releases(verb)
        answered = 0
        for number, reply in self._expected(ask, sites):
            sizes, why = sized(reply.fields, releases) if masked is None else (masked, None)
            for ledger in ledgers:
                ledger.released(verb, sizes)
            if number <= _EACH or number % _EACH == 0 or number == len(sites):
                self._entered()
            if heard is not None:
                heard(Reply(reply.site, well_formed(reply.fields, releases)) if why else reply)
            if read is not None and not why:
                try:
                    reply = Reply(reply.site, read(reply.fields))
                except RunError as error:
                    why = str(error)
            if why := why or (misfits(reply) if misfits is not None else None):
                what = f"the answer of site {reply.site} to '{verb}' is left out: {why}"
                self.event(what, site=reply.site, verb=verb)
                left_out.add(reply.site)
                continue
            answered += 1
            if verb not in self.ledger.measuring and verb not in STEPS:
                self.took_part.add(reply.site)
            yield reply
        if needed is None:
            needed = 0 if verb in self.ledger.measuring else min(self.min_replies, len(sites))
        if answered < needed:
            passing, first = remedy(asked, left_out, needed)
            raise RunError(
                f"only {answered} of {len(asked)} sites answered '{verb}', {needed} are needed",
                where=f"round {self.round}",
                fix=f"{first} and start again with --resume, or lower run.min_replies. " + "; ".join(self.events),
                passing=passing,
            )

    def _enter(self, ask: Ask, sites: Sequence[str], like: Payload | None) -> tuple[Ledger, ...]:
        """The ledgers in which an ask counts; what each site is asked is entered in them before it is."""
        common = size(ask.shared if ask.masked is None else {**ask.shared, MASKED: ask.masked})
        ledgers = self.publication.enter(owner(self.verbs, ask.verb), ask.verb, common, not ask.each, like)
        for ledger in ledgers:
            for site in sites:
                ledger.asked(ask.verb, common + size(dict(ask.each.get(site, {}))))
        self._entered()
        return ledgers

    def _expected(self, ask: Ask, sites: Sequence[str]) -> Iterator[tuple[int, Reply]]:
        """The first reply of each site that was asked, and how many answers of any kind there were up to it; others
        become events."""
        verb, waited = ask.verb, set(sites)
        for number, reply in enumerate(self._answers(ask, sites), start=1):
            if reply.site not in waited:
                what = f"site {reply.site} answered '{verb}' twice, or was not asked: that does not count"
                self.event(what, site=reply.site, verb=verb)
                continue
            waited.discard(reply.site)
            if isinstance(reply, Failure):
                self.event(f"site {reply.site} did not answer '{verb}': {reply.why}", site=reply.site, verb=verb)
                self.answering.discard(reply.site)
                continue
            self.answering.add(reply.site)
            yield number, reply

    def _answers(self, ask: Ask, sites: Sequence[str]) -> Iterator[Reply | Failure]:
        """What the engine brings. The time that it takes is counted; what is done with an answer is not."""
        answers = self.carried(ask, sites)
        while True:
            start = time.perf_counter()
            answer = next(answers, None)
            if ask.verb not in self.ledger.measuring:
                self.at_sites += time.perf_counter() - start
            if answer is None:
                return
            yield answer

    def _secure_sum(
        self,
        verb: str,
        sites: Sequence[str],
        each: Mapping[str, Payload] | None,
        weights: Mapping[str, str],
        like: Payload | None,
        shared: Payload,
        settled: Callable[[int], None] | None,
    ) -> Sum:
        """A sum under masks. What is left out at one of its steps is a drop-out."""
        if self.agreement is None or like is None or each:
            what = (
                f"'{verb}' is to be added up under masks, and what a reply is like is not known, or not all sites are "
                "asked alike"
            )
            fix = "The method has to say what a reply is like, and to ask nothing of single sites."
            raise RunError(what, where=f"round {self.round}", fix=fix)
        now = Unmasking(self.run, self.round, verb, sites, Layout.of(like, weights, len(sites), self.agreement.options))

        def step(name: str, sites: Sequence[str], fields: Payload, each: Each, misfits: Misfits) -> Iterator[Reply]:
            told = {"sum": now.number, **fields}
            return self._replies(name, sites, each, told, misfits=misfits, under=now, needed=0)

        def masked(sites: Sequence[str]) -> Iterator[Reply]:
            needed = min(self.min_replies, len(now.asked))
            return self._replies(verb, sites, None, shared, misfits=now.misfit, under=now, needed=needed)

        try:
            found = step_by_step(now, step, masked, settled)
            for field in now.layout.fields:
                if field not in found.fields and misfit({}, {field: like[field]}):
                    raise RunError(f"'{field}' is said to be in none of the replies that were added up", fix=FALSE)
            return found
        except RunError as error:
            error.where = error.where or f"round {self.round}, verb {verb}"
            fix, events = error.fix or "", "; ".join(self.events)
            error.fix = fix if events in fix else f"{fix} {events}".strip()
            raise

    def _entered(self) -> None:
        if self.keeper is not None:
            self.keeper()

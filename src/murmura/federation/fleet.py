"""The server's view of the sites: whom to ask, what they answered, what it cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from murmura.errors import RunError
from murmura.federation.ledger import Ledger
from murmura.federation.messages import Ask, Failure, Payload, Reply, field_sizes, size
from murmura.federation.method import Method
from murmura.streams import Stream


class Engine(Protocol):
    """Carries asks to sites."""

    @property
    def sites(self) -> list[str]: ...

    def ask(self, ask: Ask, sites: Sequence[str]) -> Iterator[Reply | Failure]: ...

    def stores(self) -> dict[str, Payload]: ...

    def restore(self, stores: dict[str, Payload]) -> None: ...


class Fleet:
    """All sites behind an engine.

    Args:
        engine: what carries the asks.
        method: whose verbs are asked for.
        ledger: where every message is entered.
        stream: the run's randomness, for sampling.
        min_replies: fewer answers than this stop the run.
    """

    def __init__(self, engine: Engine, method: Method, ledger: Ledger, stream: Stream, min_replies: int = 1) -> None:
        self.engine, self.method, self.ledger, self.stream = engine, method, ledger, stream
        self.min_replies = min_replies
        self.round = 0
        self.events: list[str] = []
        self.listener: Callable[[Reply], None] | None = None

    @property
    def sites(self) -> list[str]:
        """Names of all sites."""
        return self.engine.sites

    def sample(self, count: int | None, round: int) -> list[str]:
        """The cohort of a round; see ``draw``."""
        return draw(self.sites, count, self.stream, round)

    def ask(
        self, verb: str, sites: Sequence[str], each: Mapping[str, Payload] | None = None, **shared: Any
    ) -> Iterator[Reply]:
        """Ask sites to do something; replies come one by one, so that a sum never holds more than one.

        Args:
            verb: a verb of the method.
            sites: whom to ask.
            each: fields for single sites.
            shared: fields for all of them.

        Raises:
            RunError: after the last reply, if fewer than ``min_replies`` sites (or than were asked) answered. Not for
                verbs that only measure: a figure that is missing stops no run.
        """
        ask = Ask(verb, self.round, shared, each or {})
        self.ledger.declare(verb, self.method.releases(verb), self.method.config)
        common = size(shared)
        for site in sites:
            self.ledger.asked(verb, common + size(dict(ask.each.get(site, {}))))
        answered = 0
        for reply in self.engine.ask(ask, sites):
            if isinstance(reply, Failure):
                self.events.append(f"site {reply.site} did not answer '{verb}': {reply.why}")
                continue
            answered += 1
            self.ledger.released(verb, field_sizes(reply.fields))
            if self.listener is not None:
                self.listener(reply)
            yield reply
        needed = 0 if verb in self.ledger.measuring else min(self.min_replies, len(sites))
        if answered < needed:
            raise RunError(
                f"only {answered} of {len(sites)} sites answered '{verb}', {needed} are needed",
                where=f"round {self.round}",
                fix="Bring the sites back and start again with --resume, or lower run.min_replies. "
                + "; ".join(self.events),
            )


def draw(sites: Sequence[str], count: int | None, stream: Stream, round: int) -> list[str]:
    """A round's cohort: ``count`` of the sites without replacement, in their order; all for None or too many.

    Args:
        stream: the run's randomness.
    """
    if count is None or count >= len(sites):
        return list(sites)
    chosen = set((stream / "cohort" / round).python().sample(list(sites), count))
    return [name for name in sites if name in chosen]

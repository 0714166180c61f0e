"""What sites keep of each round, and go back to; seen from the server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from murmura.errors import CheckpointError, RunError
from murmura.federation.wire.frames import named
from murmura.federation.wire.messages import LATE, Ask, Failure, Reply
from murmura.federation.wire.releases import disclosed, owner
from murmura.federation.wire.well_formed import sized

if TYPE_CHECKING:
    from murmura.federation.server.fleet import Fleet

_AFTERWARDS = "it is still busy, and keeps it afterwards, if the run goes on so long"
_GIVEN_UP = "it is still busy, and nobody waits for it any longer"


class Stores:
    """The stores of all sites of a fleet, of which it tells in its events."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._late: dict[str, list[int]] = {}  # rounds that sites are to keep when they are done with earlier work

    def commit(self, last: bool = False) -> list[str]:
        """Let every site keep what it has from this round; returns those that have not. Of earlier rounds that a site
        was late to keep, and then could not, is told too.

        Args:
            last: whether the run ends with it: a late site gets as long again, and what it has not kept by then is
                lost.

        Raises:
            RunError: too few sites have of those whose replies the round is made of: it would not
                be the same round when the run is resumed.
        """
        fleet, missing = self._fleet, dict[str, str]()
        seconds = fleet.seconds and fleet.seconds * (2 if last else 1)
        for answer in self._all("commit", fleet.round, seconds):
            site, late = answer.site, self._late.pop(answer.site, [])
            if isinstance(answer, Reply):
                self._tell_unkept(site, {one: why for one, why in _unkept(answer) if one in late})
            elif answer.why == LATE and not last:
                missing[site], self._late[site] = _AFTERWARDS, [*late, fleet.round]
            else:
                missing[site] = why = _GIVEN_UP if answer.why == LATE else answer.why
                self._tell_unkept(site, dict.fromkeys(late, why))
        self._require_enough(missing)
        return [site for site in fleet.sites if site in missing]

    def rewind(self, round: int, sites: Sequence[str] | None = None) -> None:
        """Let sites go back to their stores as they were after a round; every one of them, if not said otherwise.

        Raises:
            CheckpointError: one could not, since what it kept is damaged or gone.
            RunError: one is gone, or something else went wrong.
        """
        for answer in self._all("rewind", round, sites=sites):
            if isinstance(answer, Failure):
                damaged = answer.why == CheckpointError.__name__
                kind = CheckpointError if damaged else RunError
                what, fix = f"the site could not go back to round {round} ({answer.why})", "What it said stands above."
                raise kind(what, where=f"site {answer.site}", fix=fix, passing=not damaged)

    def _require_enough(self, missing: Mapping[str, str]) -> None:
        """Tell of the sites that have not kept their part of the round, and why."""
        fleet, concerned = self._fleet, dict[str, list[str]]()
        for site in sorted(fleet.took_part.intersection(missing)):
            concerned.setdefault(missing[site], []).append(site)
        told = [
            f"these sites have not kept their part of the round: {', '.join(sites)} ({why})"
            for why, sites in concerned.items()
        ]
        left = len(fleet.took_part) - sum(map(len, concerned.values()))
        if told and left < min(fleet.min_replies, len(fleet.took_part)):
            fix = "Bring the sites back and start again with --resume, or lower run.min_replies."
            raise RunError("; ".join(told), where=f"round {fleet.round}", fix=fix, passing=True)
        for one in told:
            fleet.event(one)

    def _all(
        self, verb: str, round: int, seconds: float | None = None, sites: Sequence[str] | None = None
    ) -> Iterator[Reply | Failure]:
        """What each site says to what keeps the run: no part of a round, and counted only where something leaves."""
        fleet = self._fleet
        asked = fleet.taking_part if sites is None else sites
        answers = {one.site: one for one in fleet.carried(Ask(verb, round, run=fleet.run, seconds=seconds), asked)}
        for site in asked:
            answer = answers.get(site) or Failure(site, "it did not answer")
            if isinstance(answer, Reply) and answer.fields:
                verbs = owner(fleet.verbs, verb)
                sizes, why = sized(answer.fields, verbs.releases(verb))
                if why:
                    yield Failure(site, why)
                    continue
                fleet.ledger.declare(verb, disclosed(verbs, verb), measures=True)
                fleet.ledger.released(verb, sizes)
            yield answer

    def _tell_unkept(self, site: str, rounds: Mapping[int, str]) -> None:
        for one, why in rounds.items():
            self._fleet.event(f"site {site} has not kept round {one} after all ({why})", site=site)


def _unkept(reply: Reply) -> list[tuple[int, str]]:
    """What a site says of rounds that it could not keep, as far as it can be read."""
    told = reply.fields.get("unkept")
    pairs = [one for one in told if isinstance(one, list | tuple) and len(one) == 2] if isinstance(told, list) else []
    return [(round, named(why)) for round, why in pairs if isinstance(round, int)]

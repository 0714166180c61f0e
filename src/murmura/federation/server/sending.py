"""What of the global adapter goes to sites, and what comes back of it, in the form in which it travels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from murmura.aggregation.rules import Rule
from murmura.aggregation.travel import packed, unpacked
from murmura.errors import RunError
from murmura.federation.server.fleet import Fleet
from murmura.federation.wire.messages import Payload
from murmura.federation.wire.sums import misfit
from murmura.training.adapter import State


class Sending:
    """Of a run with this rule, in the round that its fleet is in.

    Its methods are given the global adapter as the round has found it.
    """

    def __init__(self, rule: Rule, fleet: Fleet) -> None:
        self._rule, self._fleet = rule, fleet

    def rank(self, site: str) -> int | None:
        """Of a site's adapters; None where all have the run's."""
        return self._rule.rank(self._fleet.sites.index(site))

    def fields(
        self, adapter: State, sites: Sequence[str], each: Mapping[str, Payload] | None, shared: Payload
    ) -> tuple[dict[str, Payload], Payload]:
        """The fields of an ask, for single sites and for all, with what of the adapter each site is sent."""
        each = dict(each or {})
        if not self._rule.ranks:
            return each, {**shared, "adapter": self._sent(adapter)}
        for site in sites:
            part = self._rule.download(adapter, self.rank(site), self._fleet.round)
            each[site] = {"adapter": part, **each.get(site, {})}
        return each, shared

    def reading(self, adapter: State) -> Callable[[Payload], Payload] | None:
        """What replies to asks of this moment stand for, where uploads travel as rounded changes."""
        travel = self._rule.config.travel
        if travel == "float32":
            return None
        sent = unpacked(self._sent(adapter))
        expected = {"adapter": packed(self._rule.upload(adapter, self._fleet.round), travel)}

        def read(fields: Payload) -> Payload:
            if "adapter" not in fields:
                return fields
            if misfit(fields, expected):
                raise RunError(f"'adapter' is no change of what was sent, in {travel}")
            change = unpacked(fields["adapter"])
            return {**fields, "adapter": {name: sent[name] + one for name, one in change.items()}}

        return read

    def from_whole(self, adapter: State, contributions: Iterable[tuple[State, float]]) -> Iterable[tuple[State, float]]:
        """Uploads, with their weights, as if sites had gone on from the adapter as it is. They went on from it as it
        travels, and what rounding took off would be lost in every round, and with it all that changes by less."""
        if self._rule.config.travel == "float32":
            return contributions
        sent, whole = unpacked(self._sent(adapter)), self._rule.upload(adapter, self._fleet.round)
        lost = {name: tensor - sent[name] for name, tensor in whole.items()}
        return (({name: one + lost[name] for name, one in state.items()}, weight) for state, weight in contributions)

    def _sent(self, adapter: State) -> State:
        """What every site is sent, as it travels."""
        return packed(self._rule.download(adapter, None, self._fleet.round), self._rule.config.travel)

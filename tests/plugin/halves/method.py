"""The method 'halves': the server's program, and what a site does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from halves.config import HalvesConfig
from murmura.federation.forecast import Forecast, SitePart
from murmura.federation.server.fleet import Fleet
from murmura.federation.server.rounds import Server
from murmura.federation.site.cohort import Cohort
from murmura.federation.site.site import Site
from murmura.federation.traits import AveragingTraits
from murmura.federation.wire.messages import Ask, Reply
from murmura.federation.wire.releases import Count, Metric, Weights, verb
from murmura.methods.averaging import Averaging
from murmura.streams import Stream


class Halves(Averaging):
    """FedAvg (McMahan et al. 2017) on every other record."""

    config: HalvesConfig
    traits = AveragingTraits(label="Halves")

    def lead(self, server: Server, fleet: Fleet) -> None:
        for round in server.rounds(self.config.rounds):  # measured, checkpointed, resumable
            self.average(server, fleet, fleet.sample(None, round))

    @verb(releases={"adapter": Weights(), "examples": Count(), "loss": Metric("mean training loss")})
    def train(self, cohort: Cohort, ask: Ask) -> list[Reply]:
        shards = [items[self.config.first :: 2] for items in cohort.own()]
        counts = [len(shard) for shard in shards]
        return self.answered(cohort, ask, self.trained(cohort, ask, shards), examples=counts)

    def members(self, site: Site, stream: Stream) -> Sequence[Any]:
        return site.records[self.config.first :: 2]

    def forecast(self, part: SitePart) -> Forecast:
        return super().forecast(replace(part, records=part.records[self.config.first :: 2]))

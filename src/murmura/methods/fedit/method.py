"""The FedIT family: local training at the sites, then one server step a round."""

from __future__ import annotations

from typing import TYPE_CHECKING

from murmura.aggregation.config import ROBUST
from murmura.federation.traits import RULES, AveragingTraits, Combines, Traits
from murmura.federation.wire.messages import Ask, Reply
from murmura.federation.wire.releases import Metric, verb
from murmura.methods.averaging import Averaging
from murmura.training.loop import drawn

if TYPE_CHECKING:
    from murmura.federation.site.cohort import Cohort
    from murmura.training.config import LocalTraining


class FedIT(Averaging):
    """FedAvg, and what differs from it by options of ``[aggregation]``."""

    @property
    def traits(self) -> Traits:
        optimizer = self.optimizer()
        label = type(optimizer).__name__ if optimizer else self.local.title or "FedAvg"
        return AveragingTraits(
            label=label, no_public_records="", combines=Combines(rules=(*RULES, *ROBUST), travels=True)
        )

    def reads(self, records: int, training: LocalTraining) -> int:
        return drawn(records, training)


class Centralised(Averaging):
    """All records pooled: the upper bound."""

    traits = Traits(
        label="Centralised",
        pooled=True,
        single_replies="all records are in one place",
        no_public_records="all records are in one place, so there is no site to choose public ones for",
    )


class LocalOnly(Averaging):
    """No exchange: the lower bound."""

    traits = Traits(
        label="Local only",
        personal=True,
        single_replies="sites keep their adapters, so there is nothing to add up",
        no_public_records="",
    )

    def verbs(self) -> list[str]:
        return ["train_alone"]

    @verb(releases={"loss": Metric("mean training loss")})
    def train_alone(self, cohort: Cohort, ask: Ask) -> list[Reply]:
        """Train the site's own adapter further, on public records too if it has any; it stays there."""
        starts = cohort.own_adapters(ask)
        trained = cohort.train(cohort.own_and_others(), starts, ask["lr"], "private")
        for site, result in zip(cohort.sites, trained, strict=True):
            site.store["adapter"] = result.state
        return cohort.reply(loss=[t.loss for t in trained])

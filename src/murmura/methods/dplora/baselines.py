"""The baselines of DP-LoRA's paper on the same weights: Vanilla FL, CMFL and T-FedAvg."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch

from murmura.aggregation.mean import WeightedMean
from murmura.aggregation.ternary import CODE_BITS, quantise
from murmura.federation.forecast import Forecast, SitePart
from murmura.federation.traits import AveragingTraits, Combines, Traits
from murmura.federation.wire.messages import Ask, Payload, Reply
from murmura.federation.wire.releases import Metric, Weights, verb
from murmura.methods.averaging import Averaging
from murmura.methods.dplora import tfedavg
from murmura.methods.dplora.config import CMFLConfig, TFedAvgConfig
from murmura.training.adapter import State, subtract

if TYPE_CHECKING:
    from murmura.aggregation.server import ServerOptimizer
    from murmura.federation.server.fleet import Fleet
    from murmura.federation.server.rounds import Server
    from murmura.federation.site.cohort import Cohort
    from murmura.federation.site.site import Site

_LOSS = Metric("mean training loss")


class VanillaFL(Averaging):
    """Every site takes part in every round, and the server takes the plain mean (ρ_k = 1/K)."""

    weight = None

    @property
    def traits(self) -> Traits:
        return AveragingTraits(label="Vanilla FL", no_public_records="")

    def lead(self, server: Server, fleet: Fleet) -> None:
        for _ in server.rounds(self.config.rounds):
            self.average(server, fleet, fleet.sites, self.verbs()[0])
            _count_formula(server, len(fleet.sites))

    def note(self, server: Server, sites: Sequence[str], told: Payload) -> None:
        super().note(server, sites, told)
        numbers = sum(tensor.numel() for tensor in told["adapter"].values())
        server.count({"numbers_up.sent": numbers * len(sites)})


class CMFL(Averaging):
    """CMFL (Wang et al. 2019, arXiv 1908.04089): sites keep irrelevant updates back."""

    config: CMFLConfig
    weight = None
    keeps_back = True
    traits = AveragingTraits(
        label="CMFL",
        single_replies=(
            "a site that has nothing relevant to send keeps its update back, and the server has to know which do"
        ),
        combines=Combines(
            rules=("mean",),
            ranks=False,
            because="it compares updates of the whole adapter, which sites do not train, or do not get, by this rule",
            refused={
                "scaffold": "the change of a control variate would leave the site too, and only what is relevant may"
            },
        ),
        no_public_records="",
    )

    def verbs(self) -> list[str]:
        return ["train_relevant"]

    def forecast(self, part: SitePart) -> Forecast:
        found = super().forecast(part)
        return replace(found, site_keeps=found.site_keeps + 2 * part.adapter)

    def contributions(self, server: Server, replies: Iterable[Reply]) -> Iterator[tuple[State, float]]:
        """The uploads that arrived."""
        sent = kept_back = 0
        for reply in replies:
            if reply.fields:
                sent += 1
                yield reply["adapter"], 1.0
            else:
                kept_back += 1
        server.count({"updates.sent": sent, "updates.kept_back": kept_back})

    def _step(
        self,
        server: Server,
        optimizer: ServerOptimizer | None,
        round: int,
        contributions: Iterable[tuple[State, float]],
    ) -> None:
        """No step where all sites keep their updates back: momentum would move the model, and be the next update."""
        sent = iter(contributions)
        first = next(sent, None)  # of none, all replies are read and counted by then
        if first is not None:
            super()._step(server, optimizer, round, chain([first], sent))

    @verb(releases={"adapter": Weights(note="only where the update is relevant"), "loss": _LOSS})
    def train_relevant(self, cohort: Cohort, ask: Ask) -> list[Reply]:
        """CMFL's client: train, and send the result only if it moves as the global model last did.

        A site knows the last global update from the adapters that it was sent, so nothing more is sent down for it.
        """
        starts, trained = cohort.starts(ask), self.trained(cohort, ask, cohort.own_and_others())
        least, replies = threshold(self.config.relevance, ask.round), self.answered(cohort, ask, trained)
        for k, (site, start, result) in enumerate(zip(cohort.sites, starts, trained, strict=True)):
            previous = _last_global_update(site, start)
            if previous is not None and relevance(subtract(result.state, start), previous) <= least:
                replies[k] = Reply(site.name, {})
        return replies


class TFedAvg(Averaging):
    """T-FedAvg (Xu et al. 2020): codes and not an adapter travel, both ways."""

    config: TFedAvgConfig
    weight = None
    traits = Traits(  # uploads are codes, as is what their mean becomes
        label="T-FedAvg",
        single_replies="sites send codes, which cannot be added up",
        no_public_records="",
        no_magnitudes="of a module's magnitudes one number times -1, 0 or 1 leaves nothing",
        tells_uploads=True,
    )

    def verbs(self) -> list[str]:
        return ["train_ternary"]

    def forecast(self, part: SitePart) -> Forecast:
        found, share = super().forecast(part), CODE_BITS / 32
        return replace(found, down=share * part.down, up=share * part.up, server_keeps=part.adapter)

    def lead(self, server: Server, fleet: Fleet) -> None:
        if not tfedavg.settled(server):
            tfedavg.settle(server, server.adapter, self.config.tolerance)
        for round in server.rounds(self.config.rounds):
            self._round(server, fleet, server.lr(round))

    def _round(self, server: Server, fleet: Fleet, lr: float) -> None:
        sent = tfedavg.outgoing(server)
        mean, read = WeightedMean(uniform=True), tfedavg.reading(server.adapter)
        for reply in fleet.ask("train_ternary", fleet.sites, read=read, lr=lr, **sent):
            server.note_loss(reply["loss"])
            mean.add(reply["adapter"], 1)
            server.observe_upload(reply.site, reply["adapter"])
        server.count({"sent_down.ternary" if "codes" in sent else "sent_down.float": 1})
        if mean.count:
            tfedavg.settle(server, mean.result(), self.config.tolerance)

    @verb(
        releases={
            "codes": Weights("signs of adapter tensors, two bits each"),
            "scales": Weights("one number a tensor"),
            "loss": _LOSS,
        }
    )
    def train_ternary(self, cohort: Cohort, ask: Ask) -> list[Reply]:
        """T-FedAvg's client: train through ternary weights, send their codes and scales."""
        bank = cohort.runtime.bank
        starts = [tfedavg.received(ask.payload(site.name), bank) for site in cohort.sites]
        trained = cohort.train(cohort.own_and_others(), starts, ask["lr"], "private", around=tfedavg.ternary_pass)
        packed = [quantise(t.state) for t in trained]
        return cohort.reply(
            codes=[p.codes for p in packed], scales=[p.scales for p in packed], loss=[t.loss for t in trained]
        )


def relevance(update: State, previous: State) -> float:
    """CMFL's relevance (Wang et al. 2019): the share of elements with the same sign, in [0, 1].

    ``e = (1/d) Σ_j 1[sign(u_j) = sign(ū_j)]``. Zero is a sign of its own: it agrees with zero only.

    Args:
        update: u, what a site's training changed.
        previous: ū, what the last round changed in the global model.
    """
    agreeing = sum(int((torch.sign(update[n]) == torch.sign(previous[n])).sum()) for n in update)
    return agreeing / sum(tensor.numel() for tensor in update.values())


def threshold(v0: float, round: int) -> float:
    """CMFL's threshold ``v_t = v_0/√t`` of round t, counted from 1 (Wang et al. 2019); above it an update is sent."""
    return v0 / math.sqrt(round)


def _last_global_update(site: Site, adapter: State) -> State | None:
    """The last change of the global model, which a site keeps track of; None before there was any.

    A round that leaves it as it was, such as one in which no site sends anything, leaves the update before as the last.
    """
    before = site.store.get("adapter_before")
    if before is not None and any(not adapter[name].equal(before[name]) for name in adapter):
        site.store["update"] = subtract(adapter, before)
    site.store["adapter_before"] = adapter
    return site.store.get("update")


def _count_formula(server: Server, sites: int) -> None:
    """What the paper's formula says of this round's numbers, one way."""
    bank = server.runtime.bank
    if bank.lora is not None:
        formula = numbers_of_round(bank.model.config, sites, bank.lora.rank)
        server.count({"numbers_up.by_the_formula_T·K·L·r·2n": formula})


def numbers_of_round(config: Any, sites: int, rank: int) -> int:
    """``K·L·r·2n`` (communication in Liu et al. 2023): numbers that travel one way in a round with K sites.

    It takes one square matrix of n × n in each of L layers to carry an adapter of rank r; real targets are more of
    them, and not all square.

    Args:
        config: the model's own, as transformers reads it.
        sites: K, the sites asked.
        rank: r.
    """
    text = config.get_text_config()
    return sites * int(text.num_hidden_layers) * rank * 2 * int(text.hidden_size)

"""DP-LoRA and its baselines: every site takes part in every round, and the server takes the plain mean (ρ_k = 1/K)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from murmura.aggregation.config import AggregationConfig
from murmura.aggregation.mean import WeightedMean
from murmura.aggregation.relevance import relevance, threshold
from murmura.aggregation.ternary import CODE_BITS, dequantise, quantise
from murmura.errors import RefusedError
from murmura.federation.forecast import Forecast, Part
from murmura.federation.wire.messages import Ask, Payload, Reply
from murmura.federation.wire.releases import DifferentialPrivacy, Metric, Release, Weights, verb
from murmura.methods.averaging import Averaging
from murmura.methods.dplora import communication, guarantee, tfedavg
from murmura.methods.dplora.config import DPLoRAConfig
from murmura.privacy.entropy import Entropy, OSEntropy, SeededEntropy
from murmura.privacy.guarantee import Cost, Guarantee, Unit
from murmura.privacy.reported import ReportedEpsilons
from murmura.runs.schema import REPORTED
from murmura.training.adapter import State, subtract
from murmura.training.config import LocalTraining
from murmura.training.loop import steps_of
from murmura.training.private import Private

if TYPE_CHECKING:
    from murmura.augment.strategies import Strategy
    from murmura.federation.server.fleet import Fleet
    from murmura.federation.server.rounds import Server
    from murmura.federation.site.cohort import Cohort, Site

_LABELS = {"dplora": "DP-LoRA", "fedavg": "Vanilla FL", "tfedavg": "T-FedAvg", "cmfl": "CMFL"}
_VERBS = {"dplora": "train_private", "fedavg": "train", "tfedavg": "train_ternary", "cmfl": "train_relevant"}
_TELL = "tell_privacy"
_LOSS = Metric("mean training loss")
_SPENT = Metric(
    "the ε that the site has spent, by its own ledger",
    note="to a target it is rounded up, so as not to tell how many records the site has; to a given noise it is exact "
    "and tells it, which the guarantee takes as public",
)


class DPLoRA(Averaging):
    """DP-LoRA (Liu et al. 2023), Vanilla FL, T-FedAvg (Xu et al. 2020), CMFL (Wang et al. 2019) on the same weights."""

    config: DPLoRAConfig
    weight = None

    @property
    def protects(self) -> Unit | None:
        return "record" if self.config.private else None

    @property
    def needs_replies(self) -> str:  # type: ignore[override]
        if self.config.algorithm == "cmfl":
            return "a site that has nothing relevant to send keeps its update back, and the server has to know which do"
        if self.config.algorithm == "tfedavg":
            return "sites send codes, which cannot be added up"
        told = self.config.private and not self.rule.config.secure
        return "each site tells its own ε with what it sends" if told else ""

    @property
    def label(self) -> str:
        c, name = self.config, _LABELS[self.config.algorithm]
        if c.algorithm != "dplora":
            return name
        if c.epsilon is not None:
            return f"{name} ε={c.epsilon:g}"
        return f"{name} σ={c.noise_multiplier:g}" + (" (paper)" if c.preset == "paper" else "")

    @property
    def combines(self) -> bool:
        return self.config.algorithm != "tfedavg"  # whose uploads are codes, as is what their mean becomes

    def objection(self, aggregation: AggregationConfig) -> tuple[str, str] | None:
        if self.config.algorithm == "cmfl" and not aggregation.is_mean:
            what = "CMFL compares updates of the whole adapter, which sites do not train, or do not get, by this rule"
            return what, "Set aggregation.rule = 'mean', without ranks."
        if not self.config.private or self.config.noise_on != "weights" or not self.rule.personal:
            return super().objection(aggregation)
        what = "noise on what is uploaded leaves the factor that sites keep without any, which shapes the next upload"
        return what, "Set method.noise_on = 'gradient', or take another rule."

    def verbs(self) -> list[str]:
        return [_VERBS[self.config.algorithm], *([_TELL] if self._tells_apart else [])]

    @property
    def _tells_apart(self) -> bool:
        """Whether sites tell their ε apart from what they send, since that leaves in a secure sum."""
        return self.config.private and self.rule.config.secure is not None

    @property
    def uploads_are_heard(self) -> bool:
        return self.config.algorithm == "tfedavg" or super().uploads_are_heard

    def refused(self) -> Mapping[str, str]:
        change = "the change of a control variate would leave the site too, and"
        if self.config.algorithm == "cmfl":
            return {"scaffold": f"{change} only what is relevant may"}
        return {"scaffold": f"{change} the guarantee is for one upload"} if self.config.algorithm == "dplora" else {}

    def augmented(self, strategy: Strategy) -> tuple[str, str] | None:
        return None

    def forecast(self, part: Part) -> Forecast:
        found = super().forecast(part)
        if self.config.algorithm == "dplora":
            found = replace(found, steps=part.steps(len(part.records), part.public))
        if self.config.algorithm == "tfedavg":
            share = CODE_BITS / 32
            return replace(found, down=share * part.down, up=share * part.up, server_keeps=part.adapter)
        more = 2 * part.adapter if self.config.algorithm == "cmfl" else 0
        return replace(found, site_keeps=found.site_keeps + more)

    def guarantee(self, records: Sequence[int], training: LocalTraining) -> Guarantee | None:
        if not self.protects:
            return None
        return Guarantee.of(guarantee.weakest(self.config, training, records), self.config.accountant)

    def releases(self, name: str) -> dict[str, Release]:
        declared = super().releases(name)
        if name == "train_private" and self._tells_apart:
            del declared["privacy"]
        if name != "train_private" or self.config.private:
            return declared
        return {"adapter": replace(declared["adapter"], protection=None, note="clipped, but no noise was added")}

    def answers(self, name: str) -> int | None:
        return self.config.rounds if name == "train_private" and self.config.private else None

    def is_free(self, name: str) -> bool:
        return name == _TELL or super().is_free(name)  # it follows from the ledger, which is about numbers alone

    def cost(self, name: str, records: int, training: LocalTraining) -> Cost | None:
        if name != "train_private" or not self.protects:
            return None
        return Cost(guarantee.plan(self.config, training, records), steps_of(records, training))

    def lead(self, server: Server, fleet: Fleet) -> None:
        algorithm = self.config.algorithm
        if algorithm == "tfedavg" and not tfedavg.settled(server):
            tfedavg.settle(server, server.adapter, self.config.tolerance)
        if self.config.private:
            server.journal(REPORTED, ReportedEpsilons)  # refused now, if at all
        for round in server.rounds(self.config.rounds):
            if algorithm == "tfedavg":
                self._ternary_round(server, fleet, server.lr(round))
                continue
            self.average(server, fleet, fleet.sites, _VERBS[algorithm])
            for reply in fleet.ask(_TELL, fleet.sites) if self._tells_apart else ():
                guarantee.note(server, self.config, reply.site, reply["privacy"])
            if algorithm != "cmfl":
                _count_formula(server, len(fleet.sites))

    def note(self, server: Server, sites: Sequence[str], told: Payload) -> None:
        super().note(server, sites, told)
        if self.config.algorithm == "cmfl":
            return
        for site in sites if "privacy" in told else ():
            guarantee.note(server, self.config, site, told["privacy"])
        numbers = sum(tensor.numel() for tensor in told["adapter"].values())
        server.count({"numbers_up.sent": numbers * len(sites)})

    def contributions(self, server: Server, replies: Iterable[Reply]) -> Iterator[tuple[State, float]]:
        """Of CMFL the uploads that arrived; the global adapter itself where all sites kept theirs back."""
        if self.config.algorithm != "cmfl":
            yield from super().contributions(server, replies)
            return
        sent = kept_back = 0
        for reply in replies:
            if reply.fields:
                sent += 1
                yield reply["adapter"], 1.0
            else:
                kept_back += 1
        server.count({"updates.sent": sent, "updates.kept_back": kept_back})
        if kept_back and not sent:
            yield server.adapter, 1.0

    def _ternary_round(self, server: Server, fleet: Fleet, lr: float) -> None:
        sent = tfedavg.outgoing(server)
        mean, shapes, answered = WeightedMean(uniform=True), tfedavg.shapes(server.adapter), 0
        for reply in fleet.ask("train_ternary", fleet.sites, lr=lr, **sent):
            server.note_loss(reply["loss"])
            upload = dequantise(reply["codes"], reply["scales"], shapes)
            mean.add(upload, 1)
            answered += 1
            server.observe_upload(reply.site, upload)
        server.count({"sent_down.ternary" if "codes" in sent else "sent_down.float": 1})
        if answered:
            tfedavg.settle(server, mean.result(), self.config.tolerance)

    # ---- at the sites --------------------------------------------------------------------------------------------

    def entropy(self, cohort: Cohort, site: Site) -> Entropy:
        """Where a site's samples and noise in a round come from: the operating system, or the run's seed where there is
        no noise and so nothing to keep secret."""
        if self.config.private:
            return OSEntropy()
        return SeededEntropy(cohort.stream / "round" / cohort.round / "sample" / site.name)

    @verb(
        releases={
            "adapter": Weights(
                protection=DifferentialPrivacy(
                    "record", "site",
                    "clipped gradients, Gaussian noise (clipping {config.clipping}, sampler {config.sampler}, noise on "
                    "{config.noise_on}, δ={config.delta:g}, {config.adjacency})",
                ),
                note="ε is in the table of rounds; it does not cover figures that measure the run",
            ),
            "privacy": _SPENT,
        }
    )  # fmt: skip
    def train_private(self, cohort: Cohort, ask: Ask) -> list[Reply]:
        """DP-LoRA: train with clipped and noised gradients; no loss and no count leaves the site.

        Where the site keeps public records, it first trains on those, plainly. What it then adds noise to starts from
        an adapter that depends on private records only as the global one does. So ε counts steps on private records
        alone: differential privacy is closed under post-processing (Dwork and Roth 2014, Proposition 2.1).
        """
        self._require_rate(ask["lr"], cohort.runtime.training)
        guards = [guarantee.Guard(self.config, cohort.runtime.training, site) for site in cohort.sites]
        entropy = [self.entropy(cohort, site) for site in cohort.sites]
        privacy = Private([guard.trained(ask["lr"]) for guard in guards], entropy)
        trained = self.trained(cohort, ask, cohort.own(), starts=self._publicly(cohort, ask), privacy=privacy)
        uploads = cohort.uploads([result.state for result in trained])
        replies = []
        for site, guard, result, upload in zip(cohort.sites, guards, trained, uploads, strict=True):
            fields: Payload = {"adapter": upload}
            guard.record(cohort.round, result.spent)
            if self.config.private and not self._tells_apart:
                fields["privacy"] = guard.told()
            replies.append(Reply(site.name, fields))
        return replies

    def _require_rate(self, lr: float, training: LocalTraining) -> None:
        """
        Raises:
            RefusedError: the rate is larger than the plan's, so that noise on weights would hide less of a step.
        """
        if self.config.noise_on == "weights" and not 0 < lr <= training.lr * (1 + 1e-6):  # as schedules round
            raise RefusedError(f"a learning rate of {lr:g} is asked for, and the noise is for {training.lr:g} at most")

    @verb(releases={"privacy": _SPENT}, slots=False, singly=True)
    def tell_privacy(self, cohort: Cohort, ask: Ask) -> list[Reply]:
        """Tell the ε that the site has spent."""
        guards = [guarantee.Guard(self.config, cohort.runtime.training, site) for site in cohort.sites]
        return cohort.reply(privacy=[guard.told() for guard in guards])

    def _publicly(self, cohort: Cohort, ask: Ask) -> list[State]:
        """The global adapter, trained on the public records that each site keeps."""
        public = cohort.public()
        if not any(public):
            return cohort.starts(ask)
        return [result.state for result in self.trained(cohort, ask, public, "public")]

    @verb(
        releases={
            "codes": Weights("signs of adapter tensors, two bits each"), "scales": Weights("one number a tensor"),
            "loss": _LOSS,
        }
    )  # fmt: skip
    def train_ternary(self, cohort: Cohort, ask: Ask) -> list[Reply]:
        """T-FedAvg's client: train through ternary weights, send their codes and scales."""
        bank = cohort.runtime.bank
        starts = [tfedavg.received(ask.payload(site.name), bank) for site in cohort.sites]
        trained = cohort.train(cohort.own_and_others(), starts, ask["lr"], "private", around=tfedavg.ternary_pass)
        packed = [quantise(t.state) for t in trained]
        return cohort.reply(
            codes=[p.codes for p in packed], scales=[p.scales for p in packed], loss=[t.loss for t in trained]
        )

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
        formula = communication.of_round(bank.model.config, sites, bank.lora.rank)
        server.count({"numbers_up.by_the_formula_T·K·L·r·2n": formula})

"""DP-LoRA: sites clip and noise their gradients; the rest is Vanilla FL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from murmura.errors import ConfigError, RefusedError
from murmura.federation.forecast import Forecast, SitePart
from murmura.federation.traits import RULES, AveragingTraits, Combines, Traits
from murmura.federation.wire.messages import Ask, Payload, Reply
from murmura.federation.wire.releases import DifferentialPrivacy, Metric, Release, Weights, verb
from murmura.finite import is_finite
from murmura.methods.dplora import guarantee
from murmura.methods.dplora.baselines import VanillaFL
from murmura.methods.dplora.config import DPLoRAConfig
from murmura.privacy.entropy import Entropy, OSEntropy, SeededEntropy
from murmura.privacy.guarantee import Cost, Guarantee, Unit, require_promise
from murmura.privacy.reported import ReportedEpsilons
from murmura.runs.names import REPORTED
from murmura.training.adapter import State, beside
from murmura.training.config import LocalTraining
from murmura.training.loop import steps_of
from murmura.training.private import Private
from murmura.units import several

if TYPE_CHECKING:
    from murmura.federation.server.fleet import Fleet
    from murmura.federation.server.rounds import Server
    from murmura.federation.site.cohort import Cohort
    from murmura.federation.site.site import Site

_TELL = "tell_privacy"
_SPENT = Metric(
    "the ε that the site has spent, by its own ledger, and in how many answers",
    note="to a target it is rounded up, so as not to tell how many records the site has; to a given noise it is exact "
    "and tells it, which the guarantee takes as public",
)


class DPLoRA(VanillaFL):
    """DP-LoRA (Liu et al. 2023): Vanilla FL whose sites train privately."""

    config: DPLoRAConfig

    @property
    def protects(self) -> Unit | None:
        return "record" if self.config.private else None

    @property
    def per_number(self) -> Mapping[str, float]:
        c = self.config
        noise = {"adapter": 2.0 * (c.noise_multiplier or 0.0)} if c.private and c.noise_on == "weights" else {}
        return {**super().per_number, **noise}

    @property
    def traits(self) -> Traits:
        c = self.config
        strength = f"σ={c.noise_multiplier:g}" if c.epsilon is None else f"ε={c.epsilon:g}"
        paper = " (paper)" if c.epsilon is None and c.preset == "paper" else ""
        told = c.private and not self.rule.config.secure
        noisy = c.private and c.noise_on == "weights"
        scaffold = "the change of a control variate would leave the site too, and the guarantee is for one upload"
        combines = Combines(
            rules=tuple(rule for rule in RULES if rule != "fedsa" or not noisy),
            because="noise on what is uploaded leaves the factor that sites keep without any",
            fix="Set method.noise_on = 'gradient', or choose another rule.",
            refused={"scaffold": scaffold},
        )
        single = "each site tells its own ε with what it sends" if told else ""
        return AveragingTraits(
            label=f"DP-LoRA {strength}{paper}",
            single_replies=single,
            combines=combines,
            no_public_records="",
            no_whole_models="per-example gradients of all parameters do not fit in memory",
        )

    def verbs(self) -> list[str]:
        return ["train_private", *([_TELL] if self._tells_apart else [])]

    @property
    def _tells_apart(self) -> bool:
        """Whether sites tell their ε apart from what they send, since that leaves in a secure sum."""
        return self.config.private and self.rule.config.secure is not None

    def forecast(self, part: SitePart) -> Forecast:
        return replace(super().forecast(part), steps=part.steps(len(part.records), part.public))

    def guarantee(self, records: Sequence[int], training: LocalTraining) -> Guarantee | None:
        if not self.protects:
            require_promise(self.config.private)
            return None
        for name in {*self.verbs()} - {"train_private", _TELL}:  # of a method that goes further than this one
            if not self.is_free(name) and self.cost(name, max(records), training) is None:
                what = f"verb {name} releases what no ε covers, and the method promises one"
                fix = "Leave the verb out, or let the method protect nothing."
                raise ConfigError(what, where="method.name", fix=fix)
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
        if self.config.private:
            server.journal(REPORTED, ReportedEpsilons)  # refused now, if at all
        super().lead(server, fleet)

    def average(self, server: Server, fleet: Fleet, cohort: Sequence[str], *args: Any, **options: Any) -> None:
        if self.config.private:
            guarantee.asked(server, self.config, cohort)
        self._summed = frozenset[str]()
        super().average(server, fleet, cohort, *args, **options)
        if self._tells_apart:
            for reply in fleet.ask(_TELL, fleet.sites):
                told, answers = reply.fields.get("privacy"), int(reply.site in self._summed)
                guarantee.note(server, self.config, reply.site, told, answers)

    def note(self, server: Server, sites: Sequence[str], told: Payload) -> None:
        super().note(server, sites, told)
        self._summed = frozenset(sites)

    def hear(self, server: Server, reply: Reply) -> None:
        if self.config.private and not self._tells_apart:
            guarantee.note(server, self.config, reply.site, reply.fields.get("privacy"))

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
                    "record",
                    "site",
                    "clipped gradients, Gaussian noise (clipping {config.clipping}, sampler {config.sampler}, noise on "
                    "{config.noise_on}, δ={config.delta:g}, {config.adjacency})",
                ),
                note="ε is in the table of rounds; it does not cover figures that measure the run",
            ),
            "privacy": _SPENT,
        }
    )
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
        starts = self._publicly(cohort, ask)
        trained = self.trained(
            cohort, ask, cohort.own(), starts=starts, privacy=privacy, finite=not self.config.private
        )
        for slot, (guard, result) in enumerate(zip(guards, trained, strict=True)):
            if not all(map(is_finite, result.state.values())):
                guard.record(cohort.round, result.spent)  # that it fails follows from all of its noisy steps
                raise cohort.diverged(slot, f"within {several(result.steps, 'step')} (private)")
        for guard, result in zip(guards, trained, strict=True):
            guard.record(cohort.round, result.spent)
        uploads = cohort.uploads([result.state for result in trained])
        replies = []
        for site, guard, upload in zip(cohort.sites, guards, uploads, strict=True):
            fields: Payload = {"adapter": upload}
            if self.config.private and not self._tells_apart:
                fields["privacy"] = guard.told()
            replies.append(Reply(site.name, fields))
        return replies

    def _require_rate(self, lr: float, training: LocalTraining) -> None:
        """Refuse a rate larger than the run's: noise on weights would hide less of a step, and other noise carry a
        site's adapter away."""
        if self.config.private and not 0 < lr <= training.lr * (1 + 1e-6):  # as schedules round
            raise RefusedError(f"a learning rate of {lr:g} is asked for, and in this run {training.lr:g} at most")

    @verb(releases={"privacy": _SPENT}, slots=False, singly=True)
    def tell_privacy(self, cohort: Cohort, ask: Ask) -> list[Reply]:
        """Tell the ε that the site has spent."""
        guards = [guarantee.Guard(self.config, cohort.runtime.training, site) for site in cohort.sites]
        return cohort.reply(privacy=[guard.told() for guard in guards])

    def _publicly(self, cohort: Cohort, ask: Ask) -> list[State]:
        """The global adapter, trained on the public records that each site keeps."""
        public, starts = cohort.public(), cohort.starts(ask)
        if not any(public):
            return starts
        trained = self.trained(cohort, ask, public, "public")
        return [beside(one.state, start) for one, start in zip(trained, starts, strict=True)]

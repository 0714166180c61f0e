"""FewFedPIT, and the baselines that share its generation (Zhang et al. 2024, arXiv 2403.06131, Algorithm 1)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from murmura.aggregation.rules import Rule
from murmura.federation.forecast import Forecast, SitePart
from murmura.federation.traits import AveragingTraits, Combines, Traits
from murmura.federation.wire.messages import Ask, Payload, Reply
from murmura.federation.wire.releases import Count, Metric, Weights, verb
from murmura.methods.averaging import Averaging
from murmura.methods.fewfedpit.config import FewFedPITConfig, SyntheticConfig
from murmura.methods.fewfedpit.rejections import left_without, some_left_without
from murmura.methods.fewfedpit.substitute import PUBLIC, Substitute
from murmura.methods.fewfedpit.synthetic import COUNTED, WITHOUT, Synthetic, generated, received
from murmura.training.adapter import State, beside, mix
from murmura.training.loop import Trained

if TYPE_CHECKING:
    from murmura.federation.server.fleet import Fleet
    from murmura.federation.server.rounds import Server
    from murmura.federation.site.cohort import Cohort

_LOSS = Metric("mean training loss on the private records")
_ANEW = "what sites train on is written anew in each round, which no control variate can stand for"
_JOINT_LOSS = Metric("mean training loss on private and synthetic records")
_COUNTS = Metric(
    "how many drafts were rejected for what, how many prompts shortened; whether the site has too few records to show, "
    "and whether it was left without synthetic ones"
)


class WithSynthetic(Averaging):
    """Sites train on records that the model writes after their own, or on public ones in their place."""

    config: SyntheticConfig
    counted = COUNTED

    def __init__(self, config: SyntheticConfig, rule: Rule | None = None) -> None:
        super().__init__(config, rule)
        self._told: set[str] = set()
        self._without: dict[str, Payload] = {}

    @property
    @abstractmethod
    def kind(self) -> str:
        """Its name, without the options that are about what is written."""

    @property
    @abstractmethod
    def instead(self) -> str:
        """What becomes of sites that are left without synthetic records."""

    @property
    def traits(self) -> Traits:
        c = self.config
        marks = [c.scorer.upper()] if c.scorer != "ifs" else []
        marks += ["global judge"] if c.judge == "global" else []
        label = ", ".join([self.kind, *marks]) if c.substitute is None else f"{self.kind} +{c.substitute_name}"
        single = "each site is sent public records of its own" if c.substitute is not None else ""
        if not self.rule.config.secure:
            single = "which sites are left without synthetic records, and why, is told by their names"
        combines = Combines(refused={"scaffold": _ANEW}, travels=True)
        return AveragingTraits(label=label, single_replies=single, combines=combines, no_public_records="")

    def forecast(self, part: SitePart) -> Forecast:
        found = super().forecast(part)
        return replace(found, steps=part.steps(*self.shards(part)), tokens=self.config.most_tokens_written)

    def shards(self, part: SitePart) -> list[int]:
        """How many records each training of a round is on."""
        own = len(part.records)
        return ([own] if self.config.needs_private_branch else []) + [own + self.others(part)]

    def others(self, part: SitePart) -> int:
        """How many records there are beside a site's own."""
        return self.config.keep * (part.round if self.config.accumulate else 1) + part.public

    def lead(self, server: Server, fleet: Fleet) -> None:
        public = None
        if self.config.substitute is not None:
            public = Substitute.load(self.config, server.runtime, server.evaluation_set.subjects)
        for round in server.rounds(self.config.rounds):
            cohort = fleet.sample(self.config.sites_per_round, round)
            each = public.draw(cohort, server.stream / "round" / round) if public else {}
            self._without = {}
            self.average(server, fleet, cohort, self.verbs()[0], each)
            if self._without:
                server.event(left_without(self._without, len(cohort), self.instead))

    def note(self, server: Server, sites: Sequence[str], told: Payload) -> None:
        """Note also which sites are left without synthetic records, and what became of their drafts."""
        super().note(server, sites, told)
        without, together = told["counts"].get(WITHOUT), self.rule.config.secure
        if without and together:
            server.event(some_left_without(without, told["counts"], len(sites), self.instead))
        elif without:
            self._without.update((site, told["counts"]) for site in sites)

    def _train_together(
        self, cohort: Cohort, ask: Ask, start: list[State]
    ) -> tuple[list[Trained], list[dict[str, int]]]:
        private = self._private_branch(cohort, ask, start)
        records, counts = self._synthesise(cohort, ask, writers=start, judges=private)
        shards = [own + other for own, other in zip(cohort.own(), records, strict=True)]
        return self._train(cohort, ask, shards, start, "together"), counts

    def _private_branch(self, cohort: Cohort, ask: Ask, start: list[State]) -> list[Trained]:
        """LocTrain(D_k); nothing is trained where neither the upload nor the judge needs it."""
        shards = cohort.own() if self.config.needs_private_branch else [[] for _ in cohort.sites]
        return self._train(cohort, ask, shards, start, "private")

    def _train(
        self, cohort: Cohort, ask: Ask, shards: Sequence[Sequence[Any]], start: list[State], purpose: str
    ) -> list[Trained]:
        """Local training of a branch, by the local rule."""
        return cohort.train(shards, start, ask["lr"], purpose, **self.local.options(cohort, ask, start))

    def _synthesise(self, cohort: Cohort, ask: Ask, writers: Sequence[State], judges: Sequence[Trained]) -> Synthetic:
        """Each site's synthetic records, and those that it keeps beside its own (``[augment]``)."""
        synthetic, counts = self._written(cohort, ask, writers, judges)
        records, told = [], []
        for own, count, others in zip(synthetic, counts, cohort.others(), strict=True):
            records.append(own + others)
            told.append(
                {rejection: number for rejection, number in count.items() if rejection != WITHOUT or not others}
            )
        return records, told

    def _written(self, cohort: Cohort, ask: Ask, writers: Sequence[State], judges: Sequence[Trained]) -> Synthetic:
        if self.config.substitute is not None:
            return received(cohort, cohort.given(ask, PUBLIC), self.config)
        self._tell_of_few(cohort)
        if self.config.judge != "private":
            return generated(cohort, writers, writers, self.config)
        private = [beside(judge.state, writer) for judge, writer in zip(judges, writers, strict=True)]
        return generated(cohort, writers, private, self.config)

    def _tell_of_few(self, cohort: Cohort) -> None:
        """Tell owners once where their site has fewer records than are to be shown."""
        wanted = max(self.config.instructions_shown, self.config.examples_shown)
        for site in cohort.sites:
            if site.size < wanted and site.name not in self._told:
                self._told.add(site.name)
                site.tell(
                    f"Round {cohort.round}: this site has {site.size} records, fewer than the {wanted} to be shown to "
                    "the model, so it is shown what there is."
                )


class FewFedPIT(WithSynthetic):
    """A private branch, a synthetic branch trained on what the model writes after private examples, and their β-mix.

    Mixing lessens what an upload shows of the private branch, but is not differential privacy. Nor is the synthetic
    branch independent of the private records: the model that writes is shown them, and they judge what it wrote.
    """

    config: FewFedPITConfig

    @property
    def kind(self) -> str:
        return f"FewFedPIT β={self.config.beta:g}{', untouched' * self.config.untouched}"

    @property
    def instead(self) -> str:
        if self.config.beta == 0:
            return "with β = 0 the global adapter came back from them unchanged"
        return "the unchanged global adapter stood in for their synthetic branch"

    def verbs(self) -> list[str]:
        return ["improve"]

    @property
    def traits(self) -> Traits:
        option = "untouched = true" if self.config.untouched else "beta = 1"
        why = "" if self.config.branches else f"with method.{option} there is no branch for other records than its own"
        return replace(super().traits, no_public_records=why)

    def shards(self, part: SitePart) -> list[int]:
        own = [len(part.records)] if self.config.needs_private_branch else []
        return own + ([self.others(part)] if self.config.branches else [])

    @verb(
        releases={
            "adapter": Weights(
                note="mixed with {config.other_branch}, β = {config.beta}; mixing is not differential privacy"
            ),
            "examples": Count(),
            "loss": _LOSS,
            "counts": _COUNTS,
        }
    )
    def improve(self, cohort: Cohort, ask: Ask) -> list[Reply]:
        """Train the two branches from the global adapter and send their mix back.

        A site that is left without synthetic records sends ``β·W^l + (1−β)·W^g``: its synthetic branch is the unchanged
        global adapter. The private branch in its place would show more of the site than β says.
        """
        start = cohort.starts(ask)
        private = self._private_branch(cohort, ask, start)
        records: list[list[Any]]
        counts: list[dict[str, int]]
        records, counts = [[] for _ in cohort.sites], [{} for _ in cohort.sites]
        if self.config.branches:
            records, counts = self._synthesise(cohort, ask, writers=start, judges=private)
        synthetic = self._train(cohort, ask, records, start, "synthetic")
        mixed = [mix(self.config.beta, own.state, other.state) for own, other in zip(private, synthetic, strict=True)]
        uploads = cohort.uploads(mixed)
        return cohort.reply(adapter=uploads, examples=cohort.sizes, loss=[p.loss for p in private], counts=counts)


class FedMIT(WithSynthetic):
    """One adapter for private and synthetic records, uploaded as it is."""

    kind: str = "FedMIT"
    instead: str = "they trained on their own records alone"

    def verbs(self) -> list[str]:
        return ["improve_together"]

    @verb(
        releases={
            "adapter": Weights(note="trained on private and synthetic records together"),
            "examples": Count(),
            "loss": _JOINT_LOSS,
            "counts": _COUNTS,
        }
    )
    def improve_together(self, cohort: Cohort, ask: Ask) -> list[Reply]:
        """FedMIT: the same synthetic records, but one adapter for both kinds, uploaded as it is."""
        trained, counts = self._train_together(cohort, ask, cohort.starts(ask))
        return self.answered(cohort, ask, trained, examples=cohort.sizes, counts=counts)


class LocIT(FedMIT):
    """LocIT+SG: FedMIT without a federation."""

    kind = "LocIT+SG"

    @property
    def traits(self) -> Traits:
        single = "sites keep their adapters, so there is nothing to add up"
        return replace(super().traits, personal=True, combines=None, single_replies=single)

    def verbs(self) -> list[str]:
        return ["improve_alone"]

    @verb(releases={"loss": _JOINT_LOSS, "counts": _COUNTS})
    def improve_alone(self, cohort: Cohort, ask: Ask) -> list[Reply]:
        """LocIT+SG: FedMIT without a federation; the site's own adapter is also the one that writes."""
        start = cohort.own_adapters(ask)
        trained, counts = self._train_together(cohort, ask, start)
        for site, result in zip(cohort.sites, trained, strict=True):
            site.store["adapter"] = result.state
        return cohort.reply(loss=[t.loss for t in trained], counts=counts)

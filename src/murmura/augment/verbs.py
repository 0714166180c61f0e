"""What the server asks of sites to augment them: what their instructions are about, and to take public records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from murmura.augment import noise
from murmura.augment.config import ENCODER, SITE_ENCODER, AugmentConfig
from murmura.augment.influence import features, field, projection
from murmura.augment.writing import account, written
from murmura.data.records import Instruction
from murmura.data.texts import text_hash
from murmura.errors import RefusedError
from murmura.federation.wire.messages import Ask, Reply
from murmura.federation.wire.releases import Count, DifferentialPrivacy, Embeddings, Metric, Release, Verbs, verb
from murmura.privacy.guarantee import Cost
from murmura.progress import phase
from murmura.retrieval.centres import cluster

if TYPE_CHECKING:
    from murmura.federation.site.cohort import Cohort
    from murmura.training.config import LocalTraining

_NEARLY = (
    "no ε covers it. The centre of a cluster of one record is that record's vector, from which much of its text can be "
    "recovered; the fewer records in a cluster, the closer it comes to that"
)

_INVERTIBLE = (
    "no ε covers it. Gradients of a single record can be turned back into much of its text, and there are as many of "
    "them as the site has records"
)

_KEPT = (
    "trained on as public records all the same: to leave them out would depend on private records in a way that the ε "
    "of this run does not cover"
)


class Augmenting(Verbs):
    """Verbs for runs with ``[augment]``.

    Args:
        config: its options.
        drops: whether a site leaves out public records that it holds as private ones too. That depends on its private
            records, so where an ε is promised for each of those it may not.
        rounds: of the run.
        planted: tells an audit's canaries from the site's records; they train, and have no part in what is chosen. None
            where there are none.

    Attributes:
        plan: of the noise on centres; None where there is none.
    """

    def __init__(
        self,
        config: AugmentConfig,
        *,
        drops: bool = True,
        rounds: int = 1,
        planted: Callable[[Instruction], bool] | None = None,
    ) -> None:
        self.config, self.drops, self._planted = config, drops, planted
        self.plan = None if config.noise_multiplier is None else noise.planned(config, rounds)
        self._selections = config.selections(rounds)

    def verbs(self) -> list[str]:
        from murmura.augment.strategies import strategy

        return [*strategy(self.config).asks, *(["take"] if self.config.pool is not None else [])]

    def answers(self, name: str) -> int | None:
        return self._selections if name == "centres" and self.plan is not None else None

    def releases(self, name: str) -> Mapping[str, Release]:
        declared = super().releases(name)
        if name != "centres":
            return declared
        if self.plan is None:
            return {field: declared[field] for field in ("centres", "sizes")}
        protection = DifferentialPrivacy("record", "site", f"k-means on noisy sums and counts: {self.plan.describe()}")
        noisy = {field: replace(declared[field], protection=protection, note="") for field in ("centres", "sizes")}
        return {**noisy, "privacy": declared["privacy"]}

    def cost(self, name: str, records: int, training: LocalTraining) -> Cost | None:
        return Cost(self.plan, self.config.noise_iterations) if name == "centres" and self.plan is not None else None

    @verb(
        releases={
            "centres": Embeddings("k-means centres of the site's embedded instructions", note=_NEARLY),
            "sizes": Count("number of records in each cluster"),
            "privacy": Metric("the ε that its centres have cost, by the site's own ledger, and in how many answers"),
        },
        everyone=True,
        option="augment.strategy",
    )
    def centres(self, cohort: Cohort, ask: Ask) -> list[Reply]:
        """Cluster each site's instructions, or, where the ask says ``hardest``, the half of them that its current model
        finds so (the clients' part of Algorithm 1 of FedDCA, Wang et al. 2024, arXiv 2409.20135). With noise, k-means
        begins at the ``starts`` of the ask (``augment.noise``)."""
        encoder = cohort.runtime.resources.encoder(SITE_ENCODER if self.config.site_encoder else ENCODER)
        if self.plan is not None:
            return [
                Reply(site.name, noise.answer(site, own, cohort.round, ask["starts"], self.config, self.plan, encoder))
                for site, own in zip(cohort.sites, self._own(cohort), strict=True)
            ]
        if ask["hardest"] and self.config.focus != "hardest":
            raise RefusedError("centres of the hardest records are asked for, and in this run they are of all")
        records = _hardest(cohort, ask, self._own(cohort)) if ask["hardest"] else self._own(cohort)
        replies = []
        for site, own, stream in zip(cohort.sites, records, cohort.streams("centres"), strict=True):
            # Each site by itself: in other company a vector has other last digits.
            vectors = encoder.embed([record.question for record in own])
            found = cluster(vectors, self.config.clusters, stream.integer(), self.config.smallest_cluster)
            told = {"centres": torch.from_numpy(found.points), "sizes": torch.from_numpy(found.sizes)}
            replies.append(Reply(site.name, told))
        return replies

    @verb(
        releases={
            "features": Embeddings(
                "gradients of the loss of each single record, projected by random signs that the server knows",
                note=_INVERTIBLE,
            )
        },
        everyone=True,
        option="augment.strategy",
    )
    def features(self, cohort: Cohort, ask: Ask) -> list[Reply]:
        """Gradients of each site's records under the adapters that the ask brings, projected and of length 1, float32
        [adapters, records, d] (LESS, Xia et al. 2024, arXiv 2402.04333).

        Raises:
            RefusedError: these are not as many as in this run.
        """
        if ask["epochs"] != self.config.less_epochs:
            planned = self.config.less_epochs
            raise RefusedError(f"gradients are asked for under other than the {planned} adapters of this run")
        bench, replies = cohort.runtime, []
        project = projection(cohort.stream, self.config.less_dimension)
        with phase("score"):
            for site, own in zip(cohort.sites, self._own(cohort), strict=True):
                items, found = bench.tokenise_fitting(own), []
                for epoch in range(ask["epochs"]):
                    bench.bank.load([ask[field(epoch)]])
                    found.append(features(bench.bank, items, bench.training, project).cpu())
                replies.append(Reply(site.name, {"features": torch.stack(found)}))
        return replies

    @verb(releases={}, everyone=True)
    def write(self, cohort: Cohort, ask: Ask) -> list[Reply]:
        """Let a model write new records after each site's own, and keep them in place of those that it has; nothing
        leaves (Self-Instruct, Wang et al. 2023, arXiv 2212.10560)."""
        asked = self.config.records
        for site, drafts in zip(cohort.sites, written(cohort, ask, self.config), strict=True):
            site.keep("written", drafts.records, asked)
            site.tell(account(cohort.round, drafts, asked))
        return cohort.reply()

    @verb(releases={}, slots=False, everyone=True)
    def take(self, cohort: Cohort, ask: Ask) -> list[Reply]:
        """Keep the public ``records`` that the ask brings, in place of those that the site has; nothing leaves.

        Of those that are the site's own records too its owner is told, and nobody else.
        """
        for site, given in zip(cohort.sites, cohort.given(ask, "records"), strict=True):
            sent = [Instruction(*fields) for fields in given]
            own = {text_hash(record.question) for record in (*site.records, *site.apart)}
            others = [record for record in sent if text_hash(record.question) not in own]
            if len(others) < len(sent):
                what = "left out" if self.drops else _KEPT
                site.tell(
                    f"Round {cohort.round}: of {len(sent)} public records that the server has sent, "
                    f"{len(sent) - len(others)} ask what a record of this site asks. They are {what}."
                )
            site.keep("public", others if self.drops else sent, len(sent))
        return cohort.reply()

    def _own(self, cohort: Cohort) -> list[list[Instruction]]:
        """Each site's records that have a part in what is chosen for it."""
        planted = self._planted or (lambda record: False)
        return [[record for record in site.records if not planted(record)] for site in cohort.sites]


def _hardest(cohort: Cohort, ask: Ask, records: Sequence[list[Instruction]]) -> list[list[Instruction]]:
    """Of each site's ``records`` the half with the highest mean loss of a token, in their order; all of a site that has
    no model yet, or only one record."""
    sent = cohort.given(ask, "adapter", default=lambda site: None)
    have = [k for k, site in enumerate(cohort.sites) if sent[k] is not None or "adapter" in site.store]
    flat = [(k, record) for k in have for record in records[k]]
    adapters = {k: cohort.whole(cohort.sites[k], sent[k]) for k in have}
    items = cohort.runtime.tokenise_fitting(record for _, record in flat)
    scores = cohort.runtime.score([adapters[k] for k, _ in flat], items, description="score own records")
    losses: dict[int, list[float]] = {k: [] for k in have}
    for (k, _), score in zip(flat, scores, strict=True):
        losses[k].append(score.mean)
    chosen = []
    for k, own in enumerate(records):
        order = sorted(range(len(own)), key=lambda place: -losses[k][place] if k in losses else 0.0)
        places = order[: (len(own) + 1) // 2] if k in losses else order
        chosen.append([own[place] for place in sorted(places)])
    return chosen

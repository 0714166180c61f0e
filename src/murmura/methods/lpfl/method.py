"""LP-FL: cloze patterns make a classifier of a language model; sites train on few labels, and on those that the global
model gives to their unlabelled texts between rounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

import numpy as np

from murmura.data.selection import label_order
from murmura.errors import DataError
from murmura.federation.forecast import Forecast, SitePart, Work, few
from murmura.federation.traits import RULES, AveragingTraits, Combines, Traits
from murmura.federation.wire.messages import Ask, Reply
from murmura.federation.wire.releases import Count, Metric, Weights, verb
from murmura.federation.wire.sums import misfit
from murmura.measure.ensemble import ensemble, soft_labels
from murmura.measure.labelled import pattern_scores
from murmura.methods.averaging import Averaging
from murmura.methods.lpfl.annotation import choose, due, opens, reads_scores, takes, targets
from murmura.methods.lpfl.config import LPFLConfig
from murmura.runs.names import CLASSIFIER
from murmura.runs.schema import PatternWeights
from murmura.streams import Stream
from murmura.training.cloze import ClozeRecord

if TYPE_CHECKING:
    from murmura.federation.server.fleet import Fleet
    from murmura.federation.server.rounds import Server
    from murmura.federation.site.cohort import Cohort
    from murmura.federation.site.site import Site
    from murmura.model_runtime import ModelRuntime
    from murmura.training.config import LocalTraining

_LABELLED, _POOL, _FIRST, _ANNOTATED = "labelled", "pool", "first_pool", "annotated"  # in a site's store


class LPFL(Averaging):
    """LP-FL (Jiang et al. 2023), and with ``annotate = false`` training on the labelled records alone."""

    config: LPFLConfig

    @property
    def traits(self) -> Traits:
        c = self.config
        label = "LP-FL" + ("" if c.select == "random" else f", {c.select}") + (", hard labels" if c.hard else "")
        combines = Combines(
            rules=tuple(rule for rule in RULES if rule != "fedsa") if c.validates else RULES,
            because="sites keep a factor of their own, so the server has no model to validate for gate and weights",
            fix="Set method.gate = 0 and method.pattern_weights = 'uniform', or choose another rule.",
        )
        return AveragingTraits(
            label=label if c.annotate else "labelled only",
            single_replies="it is told how many texts each site annotates" if c.annotate else "",
            combines=combines,
        )

    def verbs(self) -> list[str]:
        return ["train", "annotate"] if self.config.annotate else ["train"]

    def check(self, site: str, records: Sequence[Any]) -> None:
        known = self._begins_with(records)
        if not known:
            fix = "Label some of its records, or leave the site out."
            raise DataError("no record has a label to begin with", where=f"site {site}", fix=fix)
        if self.config.annotate and known == len(records):
            hide = "hide labels with method.labelled_share, or set method.annotate = false"
            fix = f"Add texts with an empty label, {hide}."
            raise DataError("there is no unlabelled text to annotate", where=f"site {site}", fix=fix)

    def forecast(self, part: SitePart) -> Forecast:
        known, found = self._begins_with(part.records), super().forecast(part)
        first = left = len(part.records) - known
        for event in range(1, min(part.round, self.config.events + 1)):
            left -= due(self.config, event, 1.0, first, left)  # as if the gate were always open
        trained_on = known + first - left
        # To annotate, the new global adapter goes down too.
        down = found.down + (part.down if part.round <= self.config.events else 0)
        return replace(found, records=trained_on, steps=part.steps(trained_on), down=down)

    def work(self, sites: Sequence[Sequence[Any]], training: LocalTraining) -> Iterator[Work]:
        unlabelled = sum(len(own) - self._begins_with(own) for own in sites)
        if self.config.annotate and unlabelled:
            attempt = few(_annotate, unlabelled)
            yield Work("texts to annotate", "writing", unlabelled, attempt, self.config.events, at_most=True)

    def members(self, site: Site, stream: Stream) -> list[Any]:
        """Those whose label the site trains on; the label of the others is hidden from it, or not there."""
        return [site.records[index] for index in self._known(site.records, stream)]

    def outcomes(self, server: Server) -> dict[str, Any]:
        """What ``murmura predict`` must know about the patterns: what each is worth to the final model."""
        return {CLASSIFIER: PatternWeights(tuple(server.store["patterns"]))}

    # ---- on the server -------------------------------------------------------------------------------------------

    def lead(self, server: Server, fleet: Fleet) -> None:
        validation = server.evaluation_set.validation
        for round in server.rounds(self.config.rounds):
            self.average(server, fleet, fleet.sites)
            weighed = validation.weigh(server.runtime, server.adapter)
            server.store["patterns"] = weighed.weights
            # Known in every round, evaluated or not; but of no site's model where each has a factor of its own.
            accuracy = None if self.rule.personal else weighed.accuracy
            if accuracy is not None:
                for name, value in validation.figures(weighed).items():
                    server.note(name, value)
            if round <= self.config.events:
                self._event(server, fleet, round, accuracy, weighed.weights)

    def _event(self, server: Server, fleet: Fleet, event: int, accuracy: float | None, weights: list[float]) -> None:
        """Let every site annotate a part of its pool with the new global model."""
        gate, measured = self.config.gate, accuracy or 0.0
        if not takes(self.config, event, measured):
            server.event(
                f"the gate kept sites from annotating: validation accuracy {measured:.3g} is not above {gate:g}"
            )
            return
        asked: dict[str, Any] = {"event": event, "accuracy": measured, "patterns": weights}
        annotated = left = right = known = 0
        for reply in server.ask("annotate", fleet.sites, None, refused=_unlike, **asked):
            annotated, left = annotated + reply["annotated"], left + reply["left"]
            if "right" in reply.fields:
                right, known = right + reply["right"], known + reply["annotated"]
        server.note("annotated", annotated)
        server.note("left_unlabelled", left)
        if known:
            server.note("pseudo_accuracy", right / known)
            server.note("pseudo_accuracy_n", known)
        # Without a validation set nobody knows what the gate would have done.
        if annotated and accuracy is not None and not opens(self.config, accuracy):
            server.event(
                f"all {annotated} texts left were annotated by a model of validation accuracy {accuracy:.3g}, which "
                f"the gate ({gate:g}) would have kept from it"
            )

    # ---- at the sites --------------------------------------------------------------------------------------------

    @verb(
        releases={
            "adapter": Weights("adapter tensors"),
            "examples": Count("labelled and annotated records"),
            "loss": Metric("mean training loss"),
        }
    )
    def train(self, cohort: Cohort, ask: Ask) -> list[Reply]:
        """Train on labelled and annotated texts, and send the adapter back."""
        shards = [self._shard(cohort, site) for site in cohort.sites]
        return self.answered(cohort, ask, self.trained(cohort, ask, shards), examples=[len(shard) for shard in shards])

    @verb(
        releases={
            "annotated": Count("texts annotated now"),
            "left": Count("texts without a label that are left"),
            "right": Metric("how many of them agree with a label that was hidden, in experiments that hide labels"),
        }
    )
    def annotate(self, cohort: Cohort, ask: Ask) -> list[Reply]:
        """Give a part of each site's pool the labels that the global model gives it; texts and labels stay here."""
        for site in cohort.sites:  # of which one may have missed all training
            self._begin(cohort, site)
        c, event, streams = self.config, ask["event"], cohort.streams("annotate")
        pools: list[list[int]] = [site.store[_POOL] for site in cohort.sites]
        counts = [
            due(c, event, ask["accuracy"], site.store[_FIRST], len(pool))
            for site, pool in zip(cohort.sites, pools, strict=True)
        ]
        # Where the choice needs no scores, only chosen texts are read.
        read = [
            list(range(len(pool))) if reads_scores(c, event, count) else choose(c, event, count, len(pool), stream)
            for count, pool, stream in zip(counts, pools, streams, strict=True)
        ]
        found = self._scores(cohort, ask, [[pool[i] for i in some] for pool, some in zip(pools, read, strict=True)])
        replies = []
        for site, count, stream, some, scores in zip(cohort.sites, counts, streams, read, found, strict=True):
            chosen = some
            if reads_scores(c, event, count):
                chosen = choose(c, event, count, len(some), stream, soft_labels(scores, c.temperature))
                scores = scores[chosen]
            replies.append(self._keep(cohort, site, chosen, scores))
        return replies

    def _scores(self, cohort: Cohort, ask: Ask, read: list[list[int]]) -> list[np.ndarray]:
        """Scores of all patterns together (eq. 5) for some of each site's records, float64 [texts, labels]; all texts
        share batches."""
        adapters = [a for a, some in zip(cohort.starts(ask), read, strict=True) for _ in some]
        texts = [site.records[i].text for site, some in zip(cohort.sites, read, strict=True) for i in some]
        found = ensemble(pattern_scores(cohort.runtime, adapters, texts, "annotate"), ask["patterns"])
        return np.split(found, np.cumsum([len(some) for some in read])[:-1])

    def _keep(self, cohort: Cohort, site: Site, chosen: list[int], scores: np.ndarray) -> Reply:
        """Move chosen texts from the pool to the annotated ones."""
        c, pool = self.config, site.store[_POOL]
        given = targets(scores, c.temperature, hard=c.hard)
        records = [pool[i] for i in chosen]
        site.store[_ANNOTATED] += [[index, [float(p) for p in row]] for index, row in zip(records, given, strict=True)]
        taken = set(chosen)
        site.store[_POOL] = [index for place, index in enumerate(pool) if place not in taken]
        fields: dict[str, Any] = {"annotated": len(chosen), "left": len(site.store[_POOL])}
        names, hidden = cohort.runtime.cloze.labels, [site.records[index].label for index in records]
        if records and all(hidden):
            said = [names[place] for place in scores.argmax(axis=1)]
            fields["right"] = sum(one == other for one, other in zip(said, hidden, strict=True))
        return Reply(site.name, fields)

    def _shard(self, cohort: Cohort, site: Site) -> list[ClozeRecord]:
        """What a site trains on now."""
        self._begin(cohort, site)
        known: list[int] = site.store[_LABELLED]
        given: dict[int, list[float]] = dict(site.store[_ANNOTATED])
        found = cohort.tokenised(site, [site.records[index] for index in [*known, *given]], common=True)
        annotated = [
            replace(item, target=tuple(row)) for item, row in zip(found[len(known) :], given.values(), strict=True)
        ]
        return [*found[: len(known)], *annotated]

    def _begin(self, cohort: Cohort, site: Site) -> None:
        """Decide which records keep their label, if that is not decided yet; all others are the pool."""
        if _LABELLED in site.store:
            return
        self.check(site.name, site.records)
        known = self._known(site.records, cohort.stream)
        pool = sorted(set(range(site.size)) - set(known))
        site.store |= {_LABELLED: known, _POOL: pool, _FIRST: len(pool), _ANNOTATED: []}

    def _known(self, records: Sequence[Any], stream: Stream) -> list[int]:
        """Which records keep their label, in order."""
        return sorted(label_order(records, stream.seed)[: self._begins_with(records)])

    def _begins_with(self, records: Sequence[Any]) -> int:
        """How many of a site's records keep their label: at least one, if any has one."""
        return min(sum(bool(record.label) for record in records), max(self._visible(len(records)), 1))

    def _visible(self, records: int) -> int:
        """How many of so many records the options let keep their label."""
        c = self.config
        if c.labelled_records is not None:
            return min(c.labelled_records, records)
        return records if c.labelled_share is None else round(c.labelled_share * records)


def _unlike(reply: Reply) -> str | None:
    """Why what a site says of its annotating cannot be added up; None where it can."""
    like = {"annotated": 0, "left": 0} | ({"right": 0} if "right" in reply.fields else {})
    if why := misfit(reply.fields, like):
        return why
    return "more are right than it annotated" if reply.fields.get("right", 0) > reply["annotated"] else None


def _annotate(runtime: ModelRuntime, records: Sequence[Any], count: int) -> None:
    texts = [record.text for record in islice(cycle(records), count)]
    pattern_scores(runtime, [runtime.bank.initial(Stream(0))] * len(texts), texts, "try annotating")

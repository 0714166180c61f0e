"""What sites do for themselves when all rounds are done."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from murmura.federation.wire.messages import Ask, Payload, Reply
from murmura.federation.wire.releases import Metric, Release, Verbs, verb
from murmura.federation.wire.well_formed import is_count
from murmura.finite import is_finite
from murmura.measure.evaluation_set import EvaluationSet, brought
from murmura.personal.config import PersonalConfig
from murmura.training.adapter import State, beside

if TYPE_CHECKING:
    from murmura.federation.site.cohort import Cohort
    from murmura.federation.site.site import Site
    from murmura.model_runtime import ModelRuntime
    from murmura.streams import Stream
    from murmura.tasks.task import Task
    from murmura.training.config import LocalTraining

PERSONAL = "personal"
"""Of a site's store, its own adapter; also the purpose of the randomness that made it."""
MODELS = ("before", "shared", "personal")
"""What is measured: the model before training, the global one, and the site's own."""


class Personalising(Verbs):
    """A few more steps at each site, for itself.

    Args:
        config: how sites train.
        task: the kind of record that the run is about.
        members: which records of a site the run's method trains on as they are.
        tells: whether sites tell how good their models are, on records that were set apart.
    """

    def __init__(
        self, config: PersonalConfig, task: Task, members: Callable[[Site, Stream], Sequence[Any]], *, tells: bool
    ) -> None:
        self.config, self.task, self.tells, self._members = config, task, tells, members

    def releases(self, name: str) -> Mapping[str, Release]:
        return super().releases(name) if self.tells else {}

    def reads(self, records: int, training: LocalTraining) -> int:
        return records if self.tells else 0  # else no answer depends on records, nor on whether training fails

    def answers(self, name: str) -> int | None:
        return 1 if self.tells else None

    @verb(
        releases={
            "losses": Metric("losses of the base model, the global one and the site's own, on its own records"),
            "records": Metric("how many records these are: those that the site has set apart"),
            "public": Metric("loss of the site's own model on public records"),
        },
        measures=True,
        option="personal.heldout",
    )
    def personalise(self, cohort: Cohort, ask: Ask) -> list[Reply]:
        """Train ``adapter``, the global one, further on the site's own records, and keep the result.

        Where figures are told, ``heldout`` brings public records to measure it on too. Where none are, as under an ε,
        a site that comes to no finite number keeps the global one and tells its owner alone: that it failed would tell
        the server of records that no noise hides.
        """
        sent = cohort.given(ask, "heldout", default=lambda site: ())
        public = [brought(site, self.task, "personalise", own) for site, own in zip(cohort.sites, sent, strict=True)]
        starts, own = cohort.starts(ask), [self._members(site, cohort.stream) for site in cohort.sites]
        bench = cohort.runtime
        shards = [cohort.tokenised(site, records, common=True) for site, records in zip(cohort.sites, own, strict=True)]
        steps = bench.training.model_copy(update={"max_steps": self.config.steps})
        lr = bench.training.lr if self.config.lr is None else self.config.lr
        frozen = "A" if self.config.part == "B" else None
        trained = cohort.train(shards, starts, lr, PERSONAL, training=steps, frozen=frozen, finite=self.tells)
        replies = []
        for site, start, result, records in zip(cohort.sites, starts, trained, public, strict=True):
            personal = beside(result.state, start)
            if not all(map(is_finite, personal.values())):
                site.tell(
                    f"Round {cohort.round}: the site's own model came to no finite number, so it is the global one, "
                    "and the server was not told. Look at this site's records, or ask for a lower personal.lr."
                )
                personal = start
            site.store[PERSONAL] = personal
            before = bench.initial(cohort.stream / "adapter")
            replies.append(Reply(site.name, self._told(bench, site, (before, start, personal), records)))
        return replies

    def _told(self, bench: ModelRuntime, site: Site, models: Sequence[State], public: Sequence[Any]) -> Payload:
        if not self.tells or not site.apart:
            return {}
        found = losses(self.task, bench, site.apart, models)
        [there] = losses(self.task, bench, public, models[-1:])
        return {"losses": dict(zip(MODELS, found, strict=True)), "records": len(site.apart), "public": there}


def losses(task: Task, bench: ModelRuntime, records: Sequence[Any], models: Sequence[State]) -> list[float]:
    """The mean loss of each model on some records, in the unit of the held-out loss."""
    measured = task.measure(bench, EvaluationSet(task, records, sample=0), models)  # nothing is written
    return [figures["heldout_loss"] for figures in measured]


def unfit(reply: Reply) -> str | None:
    """Why what a site tells of its model is not what it should be; None where it is. A site that could set no record
    apart has nothing to tell."""
    fields, told = reply.fields, reply.fields.get("losses")
    if not fields:
        return None
    if not isinstance(told, Mapping) or told.keys() != set(MODELS):
        return "it does not tell the losses that it should"
    if not all(isinstance(one, int | float) and math.isfinite(one) for one in (*told.values(), fields.get("public"))):
        return "a loss is no finite number"
    return None if is_count(fields.get("records"), 1) else "it does not tell on how many records"

"""Verbs that measure a run at the sites, and belong to no method."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from murmura.errors import RefusedError
from murmura.federation.wire.messages import Ask, Reply
from murmura.federation.wire.releases import Metric, Release, Verbs, verb
from murmura.measure.config import EvaluationConfig
from murmura.measure.evaluation_set import EvaluationSet, brought, digests
from murmura.measure.heldout import continuations
from murmura.measure.membership import Scores, chosen, cuts, member_stream, others_stream, scores, set_apart, tallies
from murmura.measure.reader import Reader
from murmura.measure.roc import CUTS
from murmura.progress import phase
from murmura.streams import Stream
from murmura.training.adapter import State

if TYPE_CHECKING:
    from murmura.federation.site.cohort import Cohort
    from murmura.federation.site.site import Site
    from murmura.tasks.task import Task
    from murmura.training.config import LocalTraining


_ATTACKED = {"adapter": "records", "upload": "upload_records"}
"""Fields of an ask: what is attacked, and with how many records."""


@dataclass(frozen=True)
class MeasurementPlan:
    """What a run measures at its sites, by which a site knows what it may be asked.

    Args:
        evaluation: settled.
        rounds: of the run.
        personal: sites keep adapters of their own.
        uploads: single uploads are attacked.
        planted: there are canaries among the records.
    """

    evaluation: EvaluationConfig
    rounds: int
    personal: bool
    uploads: bool
    planted: bool

    @property
    def verbs(self) -> dict[str, int]:
        """What is asked, and how often a site is asked at most: before training too, or at the end alone."""
        wanted = {"attack": self.evaluation.attacks, "memorise": self.evaluation.memorisation, "assess": self.personal}
        often = {"memorise": 1}
        return {name: often.get(name, self.rounds + 1) for name, asked in wanted.items() if asked}

    def require(self, verb: str, given: Mapping[str, Any]) -> None:
        """
        Raises:
            RefusedError: no server of this run sends these fields: more would be learnt by them than is declared.
        """
        config = self.evaluation
        most = config.attack_records if verb == "attack" else config.sample
        counts = [given.get(name, 0) for name in ("records", "upload_records", "sample")]
        counts += [len(given.get("nonmembers", ()))] if verb == "attack" else []
        points = [one for name in ("cuts", "upload_cuts") for one in given.get(name, {}).values()]
        wrong = {
            f"it is about more than {most} records": any(not 0 <= count <= most for count in counts),
            "its cut points are not those between the scores of non-members": any(p.shape != (CUTS,) for p in points),
            "no single uploads are attacked": "upload" in given and not self.uploads,
            "there are no such questions": bool(
                (given.get("choices") and config.choices is None)
                or (given.get("benchmarks") and config.benchmarks is None)
            ),
            "there are no canaries": bool(given.get("canaries")) and not self.planted,
            "the sites' own adapters are not attacked": not self.personal
            and any(given.get(count) and name not in given for name, count in _ATTACKED.items()),
        }
        if reason := next((reason for reason, found in wrong.items() if found), None):
            raise RefusedError(f"'{verb}' is asked for in another way than in this run: {reason}")


@dataclass(frozen=True)
class _Job:
    """One adapter and the records that it is attacked with.

    Args:
        own: the site's, at least one.
        cuts: the server's cut points; None where they are made here, of the public records.
        public: non-members; empty where there are cut points.
    """

    site: str
    prefix: str
    adapter: State
    own: list[Any]
    stream: Stream
    cuts: State | None
    public: list[Any]

    def counted(self, scores: Scores, run: Stream, task: Task) -> dict[str, State]:
        """The fields of the reply: scores of own and of public records, in this order, as counts."""
        own = {name: values[: len(self.own)] for name, values in scores.items()}
        apart = set_apart(len(self.own), task, self.stream)
        if self.cuts is not None:
            return {f"{self.prefix}tally": tallies(own, self.cuts, apart)}
        others = {name: values[len(self.own) :] for name, values in scores.items()}
        points = cuts(others)
        public = set_apart(len(self.public), task, others_stream(run))
        return {"tally": tallies(own, points, apart), "others": tallies(others, points, public)}


class Measuring(Verbs):
    """What the monitor asks of sites.

    An ask that attacks may name a number of ``canaries``: a site has so many, and they are no members.

    Args:
        task: the kind of record that the run is about.
        members: which records of a site the run's method trains on as they are.
        measured: what the run measures.
    """

    def __init__(self, task: Task, members: Callable[[Site, Stream], Sequence[Any]], measured: MeasurementPlan) -> None:
        self.task, self._members, self._measured = task, members, measured
        self._reader = Reader(task.token_scores)

    def verbs(self) -> list[str]:
        return list(self._measured.verbs)

    def releases(self, name: str) -> Mapping[str, Release]:
        absent = {"upload_tally"} if not self._measured.uploads else set()
        absent |= {"others"} if not self._measured.personal else set()
        return {field: release for field, release in super().releases(name).items() if field not in absent}

    def reads(self, records: int, training: LocalTraining) -> int:
        options, asked = self._measured.evaluation, self._measured.verbs
        counts = {"attack": options.attack_records * (1 + self._measured.uploads), "memorise": options.sample}
        return min(records, sum(counts.get(verb, 0) for verb in asked))

    def answers(self, name: str) -> int | None:
        return self._measured.verbs[name]

    @verb(
        releases={
            "tally": Metric("of each attack, how many of the attacked own records score between which cut points"),
            "upload_tally": Metric("the same of the site's own upload, by its own cut points"),
            "others": Metric("the same of public records, by the site's own adapter"),
        },
        measures=True,
        option="evaluation.attacks",
    )
    def attack(self, cohort: Cohort, ask: Ask) -> list[Reply]:
        """Attack adapters by membership inference: how do the site's own records score beside non-members?

        ``adapter`` is the server's, to be attacked with ``records`` own records, which are counted between ``cuts``;
        ``upload``, if given, is the site's own of this round, likewise with ``upload_records`` and ``upload_cuts``.
        Without an adapter the personal one in the site's store is meant, and the ask brings ``nonmembers`` to make cut
        points of. All sites share batches.
        """
        jobs: list[_Job] = []
        for site in cohort.sites:
            given, stream = ask.payload(site.name), member_stream(cohort.stream, site.name)
            self._measured.require("attack", given)
            public = brought(site, self.task, "attack", given.get("nonmembers", ()))
            members = self._attacked(cohort, site, given)
            for prefix, name in (("", "adapter"), ("upload_", "upload")):
                own = chosen(members, given.get(f"{prefix}records", 0), stream)
                if own:
                    adapter = cohort.whole(site, given.get(name))
                    jobs.append(_Job(site.name, prefix, adapter, own, stream, given.get(f"{prefix}cuts"), public))
        adapters, records = [job.adapter for job in jobs], [job.own + job.public for job in jobs]
        found = scores(self._reader, self.task, cohort.runtime, adapters, records)
        fields: dict[str, dict[str, Any]] = {site.name: {} for site in cohort.sites}
        for job, scored in zip(jobs, found, strict=True):
            fields[job.site] |= job.counted(scored, cohort.stream, self.task)
        return [Reply(name, told) for name, told in fields.items()]

    @verb(
        releases={
            "rouge": Metric("mean ROUGE-L of continuations of own records (discoverable memorisation)"),
            "exact": Metric("share of own records continued word for word"),
            "prefix": Metric("mean tokens of own records continued word for word"),
            "records": Metric("records continued: all that a site has, where these are fewer than asked for"),
        },
        measures=True,
        option="evaluation.memorisation",
    )
    def memorise(self, cohort: Cohort, ask: Ask) -> list[Reply]:
        """Let adapters complete ``records`` of the site's own records: ``adapter``, which is the server's, or without
        it the personal one in the site's store. All sites share batches.

        This is discoverable memorisation (Carlini et al. 2023; Nasr et al. 2023). The model gets the exact training
        prompt and writes greedily, at most as many tokens as the true response has; ROUGE-L against that is the score.
        A better model scores higher on records it never saw, too, so what counts is the mean over members minus the
        mean over non-members.
        """
        drawn = []
        for site, count in zip(cohort.sites, cohort.given(ask, "records"), strict=True):
            self._measured.require("memorise", ask.payload(site.name))
            members = self._attacked(cohort, site, ask.payload(site.name))
            rng = (cohort.stream / "memorise" / site.name).python()
            drawn.append(rng.sample(members, min(count, len(members))))
        sent = cohort.given(ask, "adapter", default=lambda site: None)
        adapters = [cohort.whole(site, adapter) for site, adapter in zip(cohort.sites, sent, strict=True)]
        with phase("attack"):
            found = continuations(cohort.runtime, adapters, drawn, "memorisation")
        return [Reply(site.name, figures) for site, figures in zip(cohort.sites, found, strict=True)]

    def _attacked(self, cohort: Cohort, site: Site, given: Mapping[str, Any]) -> Sequence[Any]:
        """The site's members, without the canaries, which no non-member is like."""
        members = self._members(site, cohort.stream)
        return [one for one in members if not self.task.is_canary(one)] if given.get("canaries") else members

    @verb(
        releases={"figures": Metric("what the report shows of the site's personal adapter, on the public records")},
        measures=True,
    )
    def assess(self, cohort: Cohort, ask: Ask) -> list[Reply]:
        """Evaluate each site's personal adapter on public records (``EvaluationSet.to_payload``), which come with the
        ask.

        ``adapter`` holds the factors that are not personal, where an aggregation rule leaves some.
        """
        for site in cohort.sites:
            self._measured.require("assess", ask.payload(site.name))
        public = EvaluationSet.from_payload(self.task, ask)
        for site in cohort.sites:
            records = (*public.heldout, *public.nonmembers)
            site.require_agreed("assess", digests(records, public.choices, public.benchmarks))
        sent = cohort.given(ask, "adapter", default=lambda site: None)
        adapters = [cohort.whole(site, adapter) for site, adapter in zip(cohort.sites, sent, strict=True)]
        figures = public.measure(cohort.runtime, adapters, completes=ask["completes"])
        return cohort.reply(figures=figures)

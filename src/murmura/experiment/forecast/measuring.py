"""What measuring a run takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from murmura.data.records import Instruction
from murmura.experiment.prepare import Plan, Records
from murmura.federation.forecast import Trial, Work, seconds, token
from murmura.measure.evaluation_set import EvaluationSet
from murmura.streams import Stream
from murmura.tasks import Task

_READ = 16  # records that are read to try it


class MeasuringForecast:
    """All of a run's.

    Args:
        cohort: most sites that a round asks; None where that is not known.
    """

    def __init__(self, plan: Plan, rounds: int, cohort: int | None) -> None:
        self.plan, self.cohort, self.config = plan, cohort, plan.evaluation
        every = self.config.every
        self.times = 1 + sum(round % every == 0 or round == rounds for round in range(1, rounds + 1))

    def work(self) -> Iterator[Work]:
        """What is done before the first round and after those that are measured; nothing where records are not known.

        Answers are as long as their references, or as they may be.
        """
        records, asked = self.plan.records, self.plan.asked
        if records is None:
            return
        models = len(records.planted.sites) if self.plan.method.keeps_adapters else 1
        tokens, apart = self._tokens(records, models)
        yield self._part("tokens to measure", tokens, "evaluation.sample", token)
        yield self._part("tokens to measure memorisation", apart, "evaluation.memorisation", token, 1)
        heldout = len(records.public.heldout)
        yield self._part("held-out records to read", heldout * models, "data.heldout_records", self._record)
        if self.cohort is not None:
            scored = self._scored(records, models)
            yield self._part("records to attack", scored, "evaluation.attack_records", self._record)
        # Under the global model, and those of the sites that are heard, in each one's own upload.
        often = 2 if self.plan.method.uploads_are_heard and self.config.uploads else 1
        canaries = often * self.plan.experiment.audit.canaries * self.plan.experiment.audit.candidates
        yield self._part("candidates of canaries to read", canaries, "audit.canaries", self._record)
        if asked is not None:
            options = sum(len(question.options) for question in asked.choices)
            yield self._part("options to read", options * models, "evaluation.choices", self._record)
            benchmarks, tokens = self.config.benchmarks, models * sum(one.tokens for one in asked.benchmarks)
            times = 1 if benchmarks and benchmarks.only_last else self.times
            yield self._part("tokens for benchmarks", tokens, "evaluation.benchmarks", token, times)
            if asked.harness:  # each task has its own way to ask
                questions = len(asked.harness.questions) * models
                yield self._part("questions of tasks", questions, "evaluation.benchmarks.tasks", None, times)

    def _part(self, what: str, count: int, option: str, attempt: Any, times: int | None = None) -> Work:
        return Work(what, "measuring", count, attempt, times or self.times, option, at_most=True)

    def _record(self, trial: Trial) -> float:
        """To read one held-out record: its loss, or the probabilities of its labels. An option of a question is taken
        to be as long."""
        return read_one(self.plan.experiment.task, trial)

    def _tokens(self, records: Records, models: int) -> tuple[int, int]:
        """Most tokens written each time; and once, to see what was memorised, of members the longest."""
        context, _ = self.plan.complete
        if not self.plan.experiment.task.writes:
            return 0, 0
        people, sample, tokenizer = records.planted, self.config.sample, context.model.tokenizer
        tokens = models * sum(_lengths(people.heldout[:sample], tokenizer))
        if not self.config.memorisation:
            return tokens, 0
        private = sorted(_lengths([r for site in people.sites for r in site.records], tokenizer), reverse=True)
        return tokens, models * sum(_lengths(people.nonmembers[:sample], tokenizer)) + sum(private[:sample])

    def _scored(self, records: Records, models: int) -> int:
        """Most records that are scored to attack what one round has made."""
        config, people, cohort = self.config, records.planted, self.cohort or 0
        if not config.attacks:
            return 0
        members = sum(len(site.records) for site in records.people.sites)  # canaries are measured by themselves
        others = min(config.attack_records, len(people.nonmembers or people.heldout))
        uploads = min(config.uploads, cohort) if self.plan.method.uploads_are_heard else 0
        return (models + uploads) * others + (2 if uploads else 1) * min(config.attack_records, members)


def read_one(task: Task, trial: Trial) -> float:
    """Seconds to measure a held-out record."""
    some = EvaluationSet(task, trial.heldout[:_READ], sample=0)  # nothing is written
    start = trial.server.bank.initial(Stream(0))
    return seconds(lambda: some.measure(trial.server, [start])) / len(some.heldout)


def _lengths(records: Sequence[Instruction], tokenizer: Any) -> list[int]:
    if not records:
        return []
    texts = [record.output for record in records]
    return [len(ids) for ids in tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]]

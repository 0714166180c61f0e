"""How long a run will take on this machine, by steps and tokens that are tried (``murmura run --dry-run --time``)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from murmura.augment.config import ENCODER, SITE_ENCODER
from murmura.augment.influence import features, projection
from murmura.experiment.config import Experiment
from murmura.experiment.forecast.dry_run import DryRun
from murmura.experiment.prepare import prepare
from murmura.federation.forecast import Work
from murmura.federation.method import Method
from murmura.federation.server.fleet import draw
from murmura.measure.evaluation_set import EvaluationSet
from murmura.model_runtime import ModelRuntime, sequences
from murmura.streams import Stream
from murmura.tasks import Task
from murmura.training.by_example import at_once
from murmura.training.loop import train

_STEPS = 2  # tried, after one to warm up
_TOKENS = 16  # written by each text that is tried
_READ = 16  # records that are read to try it


@dataclass(frozen=True)
class Rates:
    """What was tried.

    Attributes:
        step: seconds that an optimiser step of one site takes while a round's other sites train too.
        token: seconds that a written token takes while other texts are written too; None where nothing is written.
        record: seconds that it takes to read one held-out record: its loss, or the probabilities of its labels. A
            question with one of its options is taken to be as long.
        text: seconds to embed a text, where sites are augmented by centres.
        gradient: seconds for the projected gradient of a record, where they are by influence.
        first: seconds more when a record is read for the first time: what the layers below all adapters compute of it
            is kept.
    """

    step: float
    token: float | None
    record: float
    text: float = 0.0
    gradient: float = 0.0
    first: float = 0.0


@dataclass(frozen=True)
class Timing:
    """Seconds of a whole run; what a method writes or annotates, and what is written to measure, is at most so much.

    Attributes:
        training: optimiser steps. Private ones are tried as plain ones.
        writing: what the method has written, or annotated.
        measuring: held-out records, attacks and questions. Programs that a benchmark runs are not counted.
        choosing: public records, for which texts are embedded or gradients taken. The search itself is not counted.
        work: what else is done with texts (``Method.work``), as far as it can be tried.
        measured: the parts of ``measuring`` by the option that bounds each.
    """

    training: float
    writing: float
    measuring: float
    choosing: float = 0.0
    work: Mapping[str, float] = field(default_factory=dict)
    measured: Mapping[str, float] = field(default_factory=dict)

    @property
    def total(self) -> float:
        return self.training + self.choosing + self.writing + self.measuring + sum(self.work.values())


def timing(dry_run: DryRun) -> Timing:
    """Try a few steps and tokens, and tell from them how long the run that was planned will take.

    The model is loaded, and fetched if need be. Nothing of what is tried is kept.

    Raises:
        MurmuraError: what would stop the run before its first round.
    """
    experiment = dry_run.experiment
    plan = prepare(experiment)
    method, (context, records) = plan.method, plan.complete
    runtime, augmentation, heldout = context.runtime("server"), dry_run.augmentation, records.public.heldout
    names = [site.name for site in records.planted.sites]
    asked = experiment.method.cohort_size
    cohort = draw(names, asked, Stream(experiment.run.seed), 1)[: runtime.slots]
    shards = [site.records for site in records.planted.sites if site.name in cohort]
    drafted = augmentation.tokens if augmentation else 0
    writes = bool(dry_run.tokens or dry_run.tokens_measuring or dry_run.tokens_benchmarks or drafted)
    first = _first(runtime, heldout)
    rates = Rates(
        step=_step(runtime, experiment, method, shards) if any(round.steps for round in dry_run.rounds) else 0.0,
        token=_token(runtime, heldout) if writes else None,
        record=_record(runtime, experiment.task, heldout),
        first=first,
    )
    if augmentation and augmentation.embedded:
        rates = replace(rates, text=_text(context.runtime("site"), experiment, heldout))
    if augmentation and augmentation.gradients:
        rates = replace(rates, gradient=_gradient(runtime, experiment, heldout))
    found = estimate(dry_run, rates, len(names), keeps_adapters=method.keeps_adapters)
    return replace(found, work={one.what: _work(one, runtime, heldout) for one in dry_run.work if one.attempt})


def estimate(dry_run: DryRun, rates: Rates, sites: int, *, keeps_adapters: bool) -> Timing:
    """The arithmetic of ``timing``.

    Args:
        sites: in the run.
        keeps_adapters: every site's adapter is measured, and not one for all.
    """
    rounds, every = len(dry_run.rounds), dry_run.experiment.evaluation.every
    measured = 1 + sum(round % every == 0 or round == rounds for round in range(1, rounds + 1))
    unlabelled = sum(site.records - site.labelled for site in dry_run.sites or () if site.labelled is not None)
    token = rates.token or 0.0
    answers = sum(len(question.options) for question in dry_run.asked.choices) if dry_run.asked else 0
    benchmarks = dry_run.experiment.evaluation.benchmarks
    written = (1 if benchmarks and benchmarks.only_last else measured) * (dry_run.tokens_benchmarks or 0)
    models = sites if keeps_adapters else 1
    parts = {
        "evaluation.sample": measured * token * (dry_run.tokens_measuring or 0),
        "evaluation.benchmarks": token * written,
        "data.heldout_records": (measured * rates.record * models + rates.first) * (dry_run.heldout or 0),
        "evaluation.choices": measured * rates.record * answers * models,
        "evaluation.attack_records": measured * rates.record * (dry_run.scored or 0),
    }
    public, own = dry_run.augmentation, sum(site.records for site in dry_run.sites or ())
    drafted = public.times * sites * public.tokens if public else 0
    return Timing(
        training=rates.step * sum(round.steps or 0 for round in dry_run.rounds) + rates.first * own,
        writing=rounds * (token * (dry_run.tokens or 0) + rates.record * unlabelled) + token * drafted,
        measuring=sum(parts.values()),
        choosing=rates.text * public.embedded + rates.gradient * public.gradients if public else 0.0,
        measured=parts,
    )


def _step(runtime: ModelRuntime, experiment: Experiment, method: Method, shards: Sequence[Sequence[Any]]) -> float:
    bank, stream = runtime.bank, Stream(experiment.run.seed) / "timing"
    count = experiment.training.batch_size * _STEPS
    tokenised = [runtime.tokenise_fitting(records[:count]) for records in shards]
    start = bank.initial(stream)
    streams = [stream / place for place in range(len(tokenised))]

    def steps(count: int) -> None:
        training = experiment.training.model_copy(update={"max_steps": count})
        train(
            bank, tokenised, [start] * len(tokenised), training, training.lr, streams,
            frozen=method.rule.frozen(1), step=runtime.reading.step, description="try training",
        )  # fmt: skip

    steps(1 if bank.head.frozen is None else _STEPS)  # all states that the timed ones need are known then
    return _seconds(lambda: steps(_STEPS)) / (_STEPS * len(tokenised))


def _token(runtime: ModelRuntime, heldout: Sequence[Any]) -> float:
    """Of texts that go on from the prompts of held-out records."""
    items = runtime.tokenise_fitting(heldout)
    prompts = [item.ids[: item.start] for item in items][: runtime.decode_rows]
    start = runtime.bank.initial(Stream(0))
    written = 0

    def write(tokens: int) -> None:
        nonlocal written
        texts = runtime.write([start] * len(prompts), prompts, [tokens] * len(prompts), description="try writing")
        written = sum(max(len(text.ids), 1) for text in texts)

    write(1)
    return _seconds(lambda: write(_TOKENS)) / written


def _first(runtime: ModelRuntime, heldout: Sequence[Any]) -> float:
    """What rates of steps and records that are found after it do not have in them."""
    frozen, some = runtime.bank.head.frozen, heldout[:_READ]
    if frozen is None:
        return 0.0
    rows = [torch.tensor([ids]) for ids in map(list, sequences(runtime.tokenise_fitting(some)))]
    return _seconds(lambda: [frozen.states(row.to(runtime.bank.device), [row.shape[1]]) for row in rows]) / len(some)


def _record(runtime: ModelRuntime, task: Task, heldout: Sequence[Any]) -> float:
    some = EvaluationSet(task, heldout[:_READ], sample=0)  # nothing is written
    start = runtime.bank.initial(Stream(0))
    return _seconds(lambda: some.measure(runtime, [start])) / len(some.heldout)


def _text(runtime: ModelRuntime, experiment: Experiment, heldout: Sequence[Any]) -> float:
    """Of the sites' encoder. It is loaded before."""
    assert experiment.augment is not None
    encoder = runtime.resources.encoder(SITE_ENCODER if experiment.augment.site_encoder else ENCODER)
    some = [record.question for record in heldout[:_READ]]
    encoder.embed(some[:1])
    return _seconds(lambda: encoder.embed(some)) / len(some)


def _gradient(runtime: ModelRuntime, experiment: Experiment, heldout: Sequence[Any]) -> float:
    """Its share of a projection included, the matrix of which is made for many records at once."""
    assert experiment.augment is not None
    bank, stream = runtime.bank, Stream(experiment.run.seed)
    project = projection(stream, experiment.augment.less_dimension)
    items = runtime.tokenise_fitting(heldout[:_READ])
    bank.load([bank.initial(stream)])
    matrix = _seconds(lambda: project(torch.zeros(1, bank.size, device=bank.device)))
    every = _seconds(lambda: features(bank, items, runtime.training, project))
    return max(every - matrix, 0.0) / len(items) + matrix / at_once(bank)


def _work(work: Work, runtime: ModelRuntime, heldout: Sequence[Any]) -> float:
    """Of all of it. Models are loaded before."""
    attempt, some = work.attempt, min(work.count, work.together or runtime.decode_rows)
    assert attempt is not None, "only what can be tried is"
    if not some:
        return 0.0
    attempt(runtime, heldout, 1)
    return _seconds(lambda: attempt(runtime, heldout, some)) / some * work.count


def _seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun

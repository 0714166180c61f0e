"""What training at the sites takes, and writing that belongs to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from murmura.experiment.forecast.rounds import ForeseenRound
from murmura.experiment.prepare import Plan
from murmura.federation.forecast import Trial, Work, seconds, token
from murmura.model_runtime import sequences
from murmura.streams import Stream
from murmura.training.loop import train

STEPS = "optimiser steps"
_STEPS = 2  # tried, after one to warm up
_READ = 16  # records that are read to try it


def work(plan: Plan, rounds: Sequence[ForeseenRound]) -> Iterator[Work]:
    """All of a run's; nothing where its sites' records are not known."""
    if plan.sizes is None:
        return

    def step(trial: Trial) -> float:
        return _step(plan, trial)

    if plan.records and plan.context and plan.context.model.below:
        option, heldout = "data.heldout_records", len(plan.records.public.heldout)
        yield Work("records to read first", "training", sum(plan.sizes.values()), _first)
        yield Work("held-out records to read first", "measuring", heldout, _first, option=option)

    personal = plan.experiment.personal
    after = personal.steps * len(plan.sizes) if personal else 0
    yield Work(STEPS, "training", sum(round.steps or 0 for round in rounds) + after, step)
    most = max((round.tokens or 0 for round in rounds), default=0)
    yield Work("tokens to write", "writing", most, token, len(rounds), at_most=True)


def _step(plan: Plan, trial: Trial) -> float:
    """A step of one site while a round's other sites train too."""
    runtime, options = trial.server, plan.experiment.training
    bank, stream = runtime.bank, Stream(plan.experiment.run.seed) / "timing"
    tokenised = [runtime.tokenise_fitting(records[: options.batch_size * _STEPS]) for records in trial.shards]
    starts, frozen = [bank.initial(stream)] * len(tokenised), plan.method.rule.frozen(1)
    streams = [stream / place for place in range(len(tokenised))]

    def steps(count: int) -> None:
        training, how = options.model_copy(update={"max_steps": count}), runtime.step
        said = "try training"
        train(bank, tokenised, starts, training, options.lr, streams, frozen=frozen, step=how, description=said)

    steps(1 if bank.head.frozen is None else _STEPS)  # all states that the timed ones need are known then
    return seconds(lambda: steps(_STEPS)) / (_STEPS * len(tokenised))


def _first(trial: Trial) -> float:
    """More when a record is read for the first time: what the layers below all adapters compute of it is kept, and
    steps and records that were tried after it do not have that in them."""
    runtime, some = trial.server, trial.heldout[:_READ]
    frozen = runtime.bank.head.frozen
    if frozen is None:
        return 0.0
    rows = [torch.tensor([ids]) for ids in map(list, sequences(runtime.tokenise_fitting(some)))]
    return seconds(lambda: [frozen.states(row.to(runtime.bank.device), [row.shape[1]]) for row in rows]) / len(some)

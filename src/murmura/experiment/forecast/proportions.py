"""What in a dry run is out of all proportion, and which options make it smaller: rates, bytes, memory and time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from murmura.aggregation.config import ResidualRule
from murmura.aggregation.low_rank import modules
from murmura.experiment.config import Experiment
from murmura.experiment.forecast.memory import Memory
from murmura.experiment.forecast.rounds import ForeseenRound
from murmura.experiment.model_spec import ModelSpec
from murmura.federation.method import Method
from murmura.units import count, duration, listing, size

if TYPE_CHECKING:
    from murmura.experiment.forecast.timing import Timing

# What a step may move, at most, so that anybody would mean it: each number with AdamW, and the length of all with SGD.
# Adapters are tuned at rates up to some 1e-2, whole models up to 1e-3.
_ADAMW, _SGD = {"adapter": 0.1, "all": 0.01}, {"adapter": 100.0, "all": 10.0}
_IDLE = 1e-7  # AdamW's lr below which float32 weights of usual size hardly move
_SERVERS = 100  # times its default, for a server's rate
_ROUND = 5e9  # bytes of a round
_LINE = 100e6 / 8  # bytes a second of the line that they are compared with
_LONG = 60.0  # seconds; shorter measuring bothers nobody


def proportions(
    experiment: Experiment,
    method: Method,
    rounds: Sequence[ForeseenRound],
    model: ModelSpec | None,
    memory: Memory | None,
) -> list[str]:
    """Sentences about rates, bytes and memory for whoever is about to start the run."""
    found = list(_rates(experiment, method))
    if model is not None:
        found += [*_adapter(experiment, model), *_traffic(experiment, rounds)]
    if model is not None and memory is not None:
        found += _memory(memory, _there_is(model.device_name))
    return found


def of_time(experiment: Experiment, timing: Timing, rounds: int) -> list[str]:
    """That measuring takes longer than all else, and what shortens it.

    Args:
        rounds: of the run.
    """
    measuring = timing.of("measuring")
    rest = timing.total - measuring
    if measuring < max(rest, _LONG):
        return []
    often = "longer than all else" if not rest else f"{measuring / rest:.1f} times as long as all else"
    options = {work.option for work, _ in timing.parts if work.option}
    found = ((timing.of(option=option), option) for option in options)
    parts = sorted(((seconds, option) for seconds, option in found if seconds), reverse=True)
    shown = listing([f"{duration(seconds)} by {option}" for seconds, option in parts])
    every = experiment.evaluation.every
    seldom = f", or raise evaluation.every (now {every}, of {rounds} rounds)" if every < rounds else ""
    return [f"Measuring takes {often}: {shown}. Lower these{seldom}."]


def _rates(experiment: Experiment, method: Method) -> Iterator[str]:
    training, what = experiment.training, experiment.model.trainable
    if method.traits.trained_at != "nowhere":
        lr, decay = training.lr, training.lr * training.weight_decay
        if training.optimizer == "adamw" and lr > _ADAMW[what]:
            yield (
                f"training.lr = {lr:g}: with AdamW a step moves every trained number by about as much, which nothing "
                "that is learnt survives. Rates are 1e-5 to 1e-2 for adapters, and 1e-6 to 1e-3 for whole models."
            )
        if training.optimizer == "sgd" and lr * (training.clip or 1.0) > _SGD[what]:
            yield (
                f"training.lr = {lr:g}: with SGD a step is as long as that times the gradient's norm, which nothing "
                "that is learnt survives."
            )
        if training.optimizer == "adamw" and lr < _IDLE:
            yield f"training.lr = {lr:g}: so small that the model stays as it is."
        if training.optimizer == "adamw" and decay >= 1:
            yield f"training.lr · training.weight_decay = {decay:g}: each step takes away all of every weight, or more."
    for options, name in ((experiment.aggregation.server, "lr"), (experiment.method, "server_lr")):
        if (field := type(options).model_fields.get(name)) is not None:
            full = "aggregation.server.lr" if name == "lr" else "method.server_lr"
            rate, usual = getattr(options, name), field.default
            if rate > _SERVERS * usual:
                yield f"{full} = {rate:g}: {rate / usual:,.0f} times the usual {usual:g}."


def _adapter(experiment: Experiment, model: ModelSpec) -> Iterator[str]:
    if experiment.model.trainable == "all":
        return
    if model.trainable > model.parameters:
        yield (
            f"An adapter has {count(model.trainable)} numbers, more than the base with its {count(model.parameters)}: "
            "lower lora.rank."
        )
    # A and B of a layer are [rank, in] and [out, rank], and their product has no higher rank than the layer.
    widths = [min(model.state[a].shape[1], model.state[b].shape[0]) for a, b in modules(model.state)]
    if widths and experiment.lora.rank > min(widths):
        yield (
            f"lora.rank = {experiment.lora.rank} is more than the rank of a layer that it adapts "
            f"({count(min(widths))}): what is above that adds bytes alone."
        )


def _traffic(experiment: Experiment, rounds: Sequence[ForeseenRound]) -> Iterator[str]:
    totals = [(each.bytes_down or 0) + (each.bytes_up or 0) for each in rounds]
    most = max(totals, default=0)
    if most < _ROUND:
        return
    sites = rounds[totals.index(most)].sites or 1
    yield (
        f"{size(most)} travel in a round, {size(most / sites)} for each of {count(sites)} sites: "
        f"{duration(most / _LINE)} on a line of 100 Mbit/s. Less travels by "
        f"{listing(list(_smaller(experiment, sites)))}."
    )


def _smaller(experiment: Experiment, sites: int) -> Iterator[str]:
    """Options that have less travel."""
    settings: Any = experiment.method
    if experiment.model.trainable == "all":
        yield 'model.trainable = "adapter"'
    else:
        yield f"a lower lora.rank (now {experiment.lora.rank})"
        yield "fewer lora.targets"
    if isinstance(experiment.aggregation.rule, ResidualRule):
        yield "a lower aggregation.rule.residual_rank"
    if sites > 1 and "sites_per_round" in type(settings).model_fields:
        yield f"a lower method.sites_per_round (now {settings.sites_per_round or 'all'})"


def _memory(memory: Memory, there: int | None) -> Iterator[str]:
    if there is None or memory.total <= there:
        return
    parts = {
        "run.workers": (memory.processes - 1) * memory.each,
        "run.slots": memory.adapters * memory.processes,
        "training.tokens_per_pass, run.decode_rows or data.max_length": memory.passing * memory.processes,
        "model.name, a smaller one": memory.base * memory.processes,
    }
    largest = max(parts, key=lambda option: parts[option])
    yield (
        f"About {size(memory.total)} of memory are needed, by an estimate, and there are {size(there)}: the run may be "
        f"killed. Most of it follows from {largest}."
    )


def _there_is(device: str) -> int | None:
    """Bytes of memory of a device; None where that is not known."""
    if device.startswith("cuda"):
        import torch

        there = torch.cuda.is_available()
        return int(torch.cuda.get_device_properties(device).total_memory) if there else None
    if device != "cpu":
        return None
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):  # a system that does not tell
        return None

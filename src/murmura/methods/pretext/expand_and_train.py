"""The last round: the seeds are expanded into many texts, and the model is trained on these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from murmura.data.records import Document
from murmura.data.tokenising import Tokenised, left_open
from murmura.errors import RunError
from murmura.methods.pretext.config import PretextConfig, in_proportion
from murmura.methods.pretext.generator import generator_of
from murmura.progress import phase, say
from murmura.reading import SequenceReading
from murmura.runs.names import EXPANDED
from murmura.synthesis.answers import Texts
from murmura.synthesis.expansion import expand
from murmura.training.adapter import State
from murmura.training.config import LocalTraining
from murmura.training.loop import NonFiniteLoss, Trained, steps_of, train

if TYPE_CHECKING:
    from murmura.federation.server.rounds import Server
    from murmura.model_runtime import ModelRuntime

SEEDS, CURVE = "seeds", "curve"
"""In the server's store: the seeds, and how good the model is by the number of texts that it was trained on."""


def close(config: PretextConfig, server: Server, seeds: Sequence[str]) -> None:
    """Expand the seeds, if they are to be, and make the model that is trained on the texts the global one.

    Raises:
        RunError: there is no seed, or the loss is no longer finite.
        CheckpointError: texts cannot be written.
    """
    if not seeds:
        fix = "Let more sites take part, or more public texts in."
        raise RunError("no seed is left to expand or to train on", fix=fix)
    server.store[SEEDS] = list(seeds)
    texts = expanded(config, server) if config.samples else list(seeds)
    server.note("trained_texts", len(texts))
    server.store[CURVE] = []
    items, options = read(config, server.runtime, texts), server.runtime.training
    for count in sorted(set(config.curve)):
        if count < len(texts):
            state = trained(server, items[:count], in_proportion(options, count, len(texts))).state
            [figures] = server.evaluation_set.measure(server.runtime, [state])
            server.store[CURVE] = [*server.store[CURVE], {"texts": count, **figures}]
            say(f"trained on {count} texts: " + ", ".join(f"{key} {value:.4f}" for key, value in figures.items()))
    result = trained(server, items, options)
    server.note_loss(result.loss)
    server.adapter = result.state


def expanded(config: PretextConfig, server: Server) -> Texts:
    """The texts that a generator writes after the seeds; those that are in the run's folder already are not written
    again."""
    generator = generator_of(config, server)
    found = expand(
        server.store[SEEDS],
        config.samples,
        server.file(EXPANDED),
        generator,
        server.stream / "expansion",
        whole=config.unfinished == "sentences",
    )
    server.count({f"expansion.{fault}": count for fault, count in found.faults.items()})
    if found.given_up:
        server.event(f"{found.given_up} of {config.samples} expanded texts could not be had, and are missing")
    if cut := int((~found.texts.finished).sum()):
        server.note("cut_texts", cut)
    return found.texts


def read(config: PretextConfig, runtime: ModelRuntime, texts: Sequence[str]) -> list[Tokenised]:
    """Texts as the model is trained on them."""
    assert isinstance(runtime.reading, SequenceReading), "the method works with documents alone"
    items = runtime.reading.fit([Document(text) for text in texts]).items
    if not isinstance(texts, Texts) or config.unfinished == "ended":
        return items
    return [item if ends else left_open(item) for item, ends in zip(items, texts.finished, strict=True)]


def trained(server: Server, items: Sequence[Tokenised], options: LocalTraining) -> Trained:
    """What the model comes to by training on some texts, all in one shard, from where the run begins; ``cosine`` has
    the rate fall over its steps.

    Raises:
        RunError: the loss is no longer finite.
    """
    bench = server.runtime
    steps = steps_of(len(items), options)

    def watch(done: int, optimizer: torch.optim.Optimizer) -> None:
        for group in optimizer.param_groups:
            group["lr"] = options.rate(done, steps)

    start: State = server.initial()
    with phase("train"):
        try:
            [result] = train(
                bench.bank,
                [items],
                [start],
                options,
                options.lr,
                [server.stream / "target"],
                step=bench.step,
                watch=watch,
                description="train on the texts",
            )
        except NonFiniteLoss as error:
            fix = "Lower training.lr. The last checkpoint and the texts are intact: change the option and start with "
            raise error.told(f"round {server.round}, training on the texts", f"{fix}--resume.") from None
    return result

"""Ways (a), (s) and (l): Murmura's annotation, its step in all patterns, and its step of a larger batch."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from functools import partial
from itertools import cycle, islice
from typing import Any

import torch
from way_bank import local_training, stream
from work import ALPHA, RANK, TARGETS, ClozeWork, base_model, finish, gpu_peak, initial

from murmura.measure.labelled import probabilities
from murmura.model_runtime import ModelRuntime
from murmura.tasks.labelled import LabelledReading
from murmura.training.adapter import State
from murmura.training.bank import Bank
from murmura.training.cloze import ClozeRecord, ClozeStep
from murmura.training.config import LoraSpec
from murmura.training.loop import train
from murmura.training.step import Step, StepFactory

WARM_UP = 8  # texts


def main(work: ClozeWork, out: str, way: str) -> None:
    bank = Bank(base_model(work), LoraSpec(rank=RANK, alpha=ALPHA, targets=TARGETS))
    adapter = initial({entry.name: entry.shape for entry in bank.manifest})
    if way == "a":
        found, seconds = annotation(work, bank, adapter)
        finish(out, {"labels": found}, seconds, gpu_peak(work))
    else:
        finish(out, adapter, steps(work, bank, adapter, in_patterns=way == "s"), gpu_peak(work))


def annotation(work: ClozeWork, bank: Bank, adapter: State) -> tuple[torch.Tensor, list[float]]:
    """Soft labels of all texts [texts, labels], and the seconds of a few texts to warm up and of all."""
    bench = ModelRuntime(bank, None, LabelledReading(work.cloze()), local_training(work), max_length=work.length)
    texts, weights, seconds = work.all_texts(), [1.0] * len(work.patterns), []
    for some in ([f"{text} again" for text in texts[:WARM_UP]], texts):
        begun = time.perf_counter()
        found = probabilities(bench, adapter, some, weights)
        seconds.append(time.perf_counter() - begun)
    return torch.from_numpy(found).float(), seconds


def steps(work: ClozeWork, bank: Bank, adapter: State, *, in_patterns: bool) -> list[float]:
    """Seconds of each step, the adapter's way in and out of the bank included; rows are the same in both ways."""
    cloze, texts, seconds = work.cloze(), cycle(work.all_texts()), []
    for number in range(work.rounds):
        questions = cloze.tokenise_all(list(islice(texts, work.batch)))
        if in_patterns:
            shard: Sequence[Any] = [ClozeRecord(tuple(items), (0.3, 0.7)) for items in questions]
            step: StepFactory = partial(ClozeStep, cloze=cloze)
        else:
            shard, step = [item for items in questions for item in items], Step
        training = local_training(work).model_copy(update={"batch_size": len(shard)})
        begun = time.perf_counter()
        adapter = train(bank, [shard], [adapter], training, work.lr, [stream(0, number)], step=step)[0].state
        seconds.append(time.perf_counter() - begun)
    return seconds


if __name__ == "__main__":
    main(ClozeWork.read(sys.argv[1]), *sys.argv[2:])

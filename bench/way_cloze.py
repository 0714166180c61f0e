"""Ways (a), (s) and (l): Murmura's annotation, its step in all patterns, and its step of a larger batch."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from itertools import cycle, islice
from typing import Any

import torch
from way_bank import local_training, stream
from work import ClozeWork, bank, finish, gpu_peak, initial, timing

from murmura.measure.labelled import probabilities
from murmura.model_runtime import ModelRuntime
from murmura.tasks.labelled import LabelledReading
from murmura.training.adapter import State
from murmura.training.bank import Bank
from murmura.training.cloze import ClozeRecord, ClozeStep
from murmura.training.loop import train
from murmura.training.step import Step, StepFactory

WARM_UP = 8  # texts


def main(work: ClozeWork, out: str, way: str) -> None:
    murmura, shapes = bank(work)
    adapter = initial(shapes)
    if way == "a":
        found, seconds = annotation(work, murmura, adapter)
        finish(out, {"labels": found}, seconds, gpu_peak(work))
    else:
        finish(out, adapter, steps(work, murmura, adapter, in_patterns=way == "s"), gpu_peak(work))


def annotation(work: ClozeWork, bank: Bank, adapter: State) -> tuple[torch.Tensor, list[float]]:
    """Soft labels of all texts [texts, labels], and the seconds of a few texts to warm up and of all."""
    bench = ModelRuntime(bank, None, LabelledReading(work.cloze()), local_training(work), max_length=work.length)
    texts, weights, seconds = work.all_texts(), [1.0] * len(work.patterns), list[float]()
    for some in ([f"{text} again" for text in texts[:WARM_UP]], texts):
        with timing(seconds):
            found = probabilities(bench, adapter, some, weights)
    return torch.from_numpy(found).float(), seconds


def steps(work: ClozeWork, bank: Bank, adapter: State, *, in_patterns: bool) -> list[float]:
    """Seconds of each step, the adapter's way in and out of the bank included; rows are the same in both ways."""
    cloze, texts, seconds = work.cloze(), cycle(work.all_texts()), list[float]()
    for number in range(work.rounds):
        questions = cloze.tokenise_all(list(islice(texts, work.batch)))
        if in_patterns:
            shard: Sequence[Any] = [ClozeRecord(tuple(items), (0.3, 0.7)) for items in questions]
            step: StepFactory = partial(ClozeStep, cloze=cloze)
        else:
            shard, step = [item for items in questions for item in items], Step
        training = local_training(work).model_copy(update={"batch_size": len(shard)})
        with timing(seconds):
            adapter = train(bank, [shard], [adapter], training, work.lr, [stream(0, number)], step=step)[0].state
    return seconds


if __name__ == "__main__":
    main(ClozeWork.read(sys.argv[1]), *sys.argv[2:])

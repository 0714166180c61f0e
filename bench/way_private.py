"""Ways (m) and (n): Murmura's step with and without privacy."""

from __future__ import annotations

import sys
import time

from dp import NOISE, NORM
from way_bank import local_training, shard, stream
from work import ALPHA, RANK, TARGETS, Work, base_model, finish, gpu_peak, initial, learnt

from murmura.privacy.entropy import OSEntropy
from murmura.privacy.parts import ExampleClipping, FullParticipation, GaussianNoise
from murmura.privacy.plan import PrivacyPlan
from murmura.training.bank import Bank
from murmura.training.config import LoraSpec
from murmura.training.loop import train
from murmura.training.private import Private


def main(work: Work, out: str, kind: str) -> None:
    bank = Bank(base_model(work), LoraSpec(rank=RANK, alpha=ALPHA, targets=TARGETS, layers=work.layers))
    adapter = initial({entry.name: entry.shape for entry in bank.manifest})
    first, seconds, training = adapter, [], local_training(work)
    if kind == "private":
        training = training.model_copy(update={"tokens_per_pass": "auto"})  # a record a pass, as ε needs it
    for round in range(work.rounds):
        begun = time.perf_counter()
        privacy = Private([plan(NOISE if round else 0.0)], [OSEntropy()]) if kind == "private" else None
        records, streams = [shard(work, 0)], [stream(0, round)]
        adapter = train(bank, records, [adapter], training, work.lr, streams, privacy=privacy)[0].state
        seconds.append(time.perf_counter() - begun)
        if round == 0:
            first = adapter
    finish(out, learnt(first), seconds, gpu_peak(work))


def plan(noise: float) -> PrivacyPlan:
    clipping = ExampleClipping(NORM)
    return PrivacyPlan("record", "zero-out", FullParticipation(), clipping, GaussianNoise(noise), 1, delta=1e-5)


if __name__ == "__main__":
    main(Work.read(sys.argv[1]), sys.argv[2], sys.argv[3])

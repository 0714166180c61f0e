"""Ways (m) and (n): Murmura's step with and without privacy."""

from __future__ import annotations

import sys

from dp import NOISE, NORM
from way_bank import local_training, shard, stream
from work import Work, bank, finish, gpu_peak, initial, learnt, timing

from murmura.privacy.clipping import ExampleClipping
from murmura.privacy.entropy import OSEntropy
from murmura.privacy.mechanisms.gaussian import GaussianNoise
from murmura.privacy.plan import PrivacyPlan
from murmura.privacy.samplers import FullParticipation
from murmura.training.loop import train
from murmura.training.private import Private


def main(work: Work, out: str, way: str) -> None:
    murmura, shapes = bank(work)
    first = adapter = initial(shapes)
    seconds, training = list[float](), local_training(work)
    if way == "m":
        training = training.model_copy(update={"tokens_per_pass": "auto"})  # a record a pass, as ε needs it
    for round in range(work.rounds):
        with timing(seconds):
            privacy = Private([plan(NOISE if round else 0.0)], [OSEntropy()]) if way == "m" else None
            records, streams = [shard(work, 0)], [stream(0, round)]
            adapter = train(murmura, records, [adapter], training, work.lr, streams, privacy=privacy)[0].state
        if round == 0:
            first = adapter
    finish(out, learnt(first), seconds, gpu_peak(work))


def plan(noise: float) -> PrivacyPlan:
    clipping = ExampleClipping(NORM)
    return PrivacyPlan("record", "zero-out", FullParticipation(), clipping, GaussianNoise(noise), 1, delta=1e-5)


if __name__ == "__main__":
    main(Work.read(sys.argv[1]), sys.argv[2], sys.argv[3])

"""Way (c): Murmura's bank, all sites at once."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from work import EPS, Work, bank, finish, gpu_peak, initial, learnt, timing

from murmura.aggregation.mean import WeightedMean
from murmura.streams import Stream
from murmura.training.config import LocalTraining
from murmura.training.loop import train


@dataclass(frozen=True)
class Record:
    ids: list[int]
    labels: list[int]


def local_training(work: Work) -> LocalTraining:
    plain = LocalTraining(lr=work.lr, schedule="constant", batch_size=work.batch, eps=EPS, clip=0.0)
    return plain.model_copy(update={"tokens_per_pass": work.tokens_per_pass, "precision": work.dtype})


def stream(site: int, round: int) -> Stream:
    """Where the order of a site's records comes from; the driver writes the same order down for the other ways."""
    return Stream(0) / "round" / round / "site" / site


def main(work: Work, out: str) -> None:
    murmura, shapes = bank(work)
    adapter, training, seconds = initial(shapes), local_training(work), list[float]()
    for round in range(work.rounds):
        with timing(seconds):
            shards = [shard(work, site) for site in range(work.sites)]
            streams = [stream(site, round) for site in range(work.sites)]
            mean = WeightedMean()
            results = train(murmura, shards, [adapter] * work.sites, training, work.lr, streams)
            for own, result in zip(shards, results, strict=True):
                mean.add(result.state, len(own))
            adapter = mean.result()
    finish(out, learnt(adapter), seconds, gpu_peak(work))


def shard(work: Work, site: int) -> list[Record]:
    records = work.records(site)
    return [Record(*row) for row in zip(records.tolist(), work.labels(records).tolist(), strict=True)]


if __name__ == "__main__":
    main(Work.read(sys.argv[1]), sys.argv[2])

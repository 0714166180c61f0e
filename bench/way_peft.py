"""Way (b): one resident model with a PEFT adapter, site after site."""

from __future__ import annotations

import sys

import torch
from peft_site import build, start, train
from work import Work, finish, gpu_peak, learnt, timing


def main(work: Work, out: str) -> None:
    model = build(work)
    adapter, seconds = start(model), list[float]()
    for round in range(work.rounds):
        with timing(seconds):
            replies = [train(work, model, adapter, site, round) for site in range(work.sites)]
            adapter = {name: torch.stack([reply[name] for reply in replies]).mean(0) for name in adapter}
    finish(out, learnt(adapter), seconds, gpu_peak(work))


if __name__ == "__main__":
    main(Work.read(sys.argv[1]), sys.argv[2])

"""Both ways of ``scoring.py``: every site's records under its own adapter, in each round."""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from torch.nn import functional as F
from work import Work, adapter_of, bank, finish, gpu_peak, timed

Scores = Callable[[], list[float]]


def main(work: Work, out: str, way: str) -> None:
    found, seconds = timed((by_peft if way == "p" else by_bank)(work), work.rounds)
    finish(out, {"losses": torch.tensor(found)}, seconds, gpu_peak(work))


def by_peft(work: Work) -> Scores:
    from peft import get_peft_model_state_dict, set_peft_model_state_dict
    from peft_site import build

    model = build(work).eval()
    shapes = {name: tuple(tensor.shape) for name, tensor in get_peft_model_state_dict(model).items()}

    @torch.no_grad()
    def scores() -> list[float]:
        found: list[float] = []
        for site in range(work.sites):
            set_peft_model_state_dict(model, adapter_of(shapes, site))
            records = work.records(site)
            labels = work.labels(records)[:, 1:].to(work.device)
            logits = model(input_ids=records.to(work.device)).logits[:, :-1]
            losses = F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), reduction="none")
            found += losses.view(labels.shape).sum(1).tolist()
        return found

    return scores


def by_bank(work: Work) -> Scores:
    from way_bank import shard

    from murmura.generation.scoring import SUMS, score

    murmura, shapes = bank(work)

    def scores() -> list[float]:
        murmura.load([adapter_of(shapes, site) for site in range(work.sites)])
        items = [record for site in range(work.sites) for record in shard(work, site)]
        slots = [site for site in range(work.sites) for _ in range(work.batch)]
        return [one.nll for one in score(SUMS, murmura, items, slots, tokens_per_pass=2 * work.tokens_per_pass)]

    return scores


if __name__ == "__main__":
    main(Work.read(sys.argv[1]), sys.argv[2], sys.argv[3])

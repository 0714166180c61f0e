"""Ways (g), (r) and (p): transformers' ``generate``, greedily, by sampling, and with PEFT adapter by adapter.

Prompts are sorted by what is to be written and padded on the left; a batch goes on until its longest text is done. Each
batch size is tried, and the fastest one counts.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from work import ALPHA, RANK, TARGETS, WritingWork, adapter_of, base_model, finish, gpu_peak, timing, tokens_of


def main(work: WritingWork, out: str, way: str) -> None:
    model = base_model(work).eval()
    if way == "p":
        model = with_adapters(work, model)
    everything, seconds = list(range(work.texts)), list[float]()
    generate(work, model, way, everything[:2], 2)
    most = -(-work.texts // work.sites) if way == "p" else work.texts
    for batch in sorted({min(batch, most) for batch in work.batches}):
        with timing(seconds):
            written = [[] for _ in everything]
            for site in range(work.sites) if way == "p" else [None]:
                if site is not None:
                    model.set_adapter(f"site{site}")
                own = [i for i in everything if site is None or work.site_of(i) == site]
                for i, ids in zip(own, generate(work, model, way, own, batch), strict=True):
                    written[i] = ids
        print(f"batch size {batch}: {seconds[-1]:.2f} s", flush=True)
    finish(out, {"tokens": tokens_of(written)}, [min(seconds)], gpu_peak(work))


def with_adapters(work: WritingWork, model: Any) -> Any:
    config = LoraConfig(r=RANK, lora_alpha=ALPHA, lora_dropout=0.0, target_modules=list(TARGETS), task_type="CAUSAL_LM")
    peft = get_peft_model(model, config, adapter_name="site0")
    for site in range(work.sites):
        if site:
            peft.add_adapter(f"site{site}", config)
        names = get_peft_model_state_dict(peft, adapter_name=f"site{site}")
        shapes = {name: tuple(tensor.shape) for name, tensor in names.items()}
        set_peft_model_state_dict(peft, adapter_of(shapes, site), adapter_name=f"site{site}")
    return peft.eval()


def generate(work: WritingWork, model: Any, way: str, chosen: Sequence[int], size: int) -> list[list[int]]:
    """What is written for each of the chosen prompts, in their order."""
    prompts, limits, found = work.prompts(), work.limits(), {}
    until = {"min_new_tokens": None, "eos_token_id": None, "pad_token_id": 0}
    options: dict[str, Any] = {"do_sample": False, "temperature": None, "top_p": None, "top_k": None}
    if way == "r":
        options = {"do_sample": True, "temperature": work.temperature, "top_p": work.top_p, "top_k": work.top_k}
    order = sorted(chosen, key=lambda i: limits[i])
    for start in range(0, len(order), size):
        batch = order[start : start + size]
        width = max(len(prompts[i]) for i in batch)
        ids = torch.tensor([[0] * (width - len(prompts[i])) + prompts[i] for i in batch], device=work.device)
        mask = torch.tensor([[0] * (width - len(prompts[i])) + [1] * len(prompts[i]) for i in batch]).to(work.device)
        most = max(limits[i] for i in batch)
        out = model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=most, **until, **options)
        found.update({i: row[: limits[i]] for i, row in zip(batch, out[:, width:].tolist(), strict=True)})
    return [found[i] for i in chosen]


if __name__ == "__main__":
    main(WritingWork.read(sys.argv[1]), *sys.argv[2:])

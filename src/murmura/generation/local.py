"""Greedy decoding with the bank: rows of one batch may use different sites' adapters."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from murmura.progress import bar
from murmura.training.bank import Bank


@dataclass(frozen=True)
class Completion:
    """What a model wrote. ``finished`` is False when it was cut off: by the token limit, or halted.

    ``ids`` are the tokens without the end-of-sequence token; ``text`` ends before the first stop string.
    """

    text: str
    ids: list[int]
    finished: bool


@dataclass
class _Row:
    index: int
    limit: int
    ids: list[int] = field(default_factory=list)
    finished: bool = False
    halted: bool = False


@torch.no_grad()
def complete(
    bank: Bank,
    tokenizer: Any,
    prompts: Sequence[Sequence[int]],
    slots: Sequence[int],
    limits: Sequence[int],
    *,
    stop: Sequence[str] = (),
    halt: Callable[[str], bool] | None = None,
    rows: int = 32,
    description: str = "generate",
) -> list[Completion]:
    """Continue each prompt greedily.

    Args:
        prompts: token ids of each prompt, not empty.
        slots: the bank slot that writes each continuation.
        limits: most tokens to write for each prompt.
        stop: a continuation ends where one of these first appears in it.
        halt: a continuation is cut off as soon as this holds for its text so far, for one that gets nowhere.
        rows: prompts decoded together; a finished row leaves the batch. It changes no result beyond float rounding.

    Returns:
        Completions in the order of the prompts.
    """
    results: list[Completion | None] = [None] * len(prompts)
    order = sorted((i for i in range(len(prompts)) if limits[i] > 0), key=lambda i: (limits[i], len(prompts[i])))
    with bar(description, len(prompts)) as progress:
        for start in range(0, len(order), rows):
            chosen = order[start : start + rows]
            batch = [_Row(i, limits[i]) for i in chosen]
            _decode(bank, tokenizer, batch, [prompts[i] for i in chosen], [slots[i] for i in chosen], stop, halt)
            for row in batch:
                results[row.index] = _completion(row, tokenizer, stop)
            progress.advance(len(batch))
    return [result or Completion("", [], False) for result in results]


def _decode(
    bank: Bank,
    tokenizer: Any,
    batch: list[_Row],
    prompts: list[Sequence[int]],
    slots: list[int],
    stop: Sequence[str],
    halt: Callable[[str], bool] | None,
) -> None:
    """One batch, left-padded, until every row has ended; fills the rows' ``ids`` and ``finished``."""
    from transformers import DynamicCache

    device, ends = bank.device, end_tokens(bank.model, tokenizer)
    width = max(len(prompt) for prompt in prompts)
    ids = torch.zeros(len(batch), width, dtype=torch.long, device=device)
    mask = torch.zeros_like(ids)
    for i, prompt in enumerate(prompts):
        ids[i, width - len(prompt) :] = torch.tensor(list(prompt))
        mask[i, width - len(prompt) :] = 1
    position = (mask.cumsum(1) - 1).clamp(min=0)
    options = {"logits_to_keep": 1} if "logits_to_keep" in inspect.signature(bank.model.forward).parameters else {}
    route = torch.tensor(slots, device=device)
    cache, active = DynamicCache(config=bank.model.config), list(batch)
    bank.route(route)
    while True:
        out = bank.model(
            input_ids=ids, attention_mask=mask, position_ids=position, past_key_values=cache, use_cache=True, **options
        )
        ids = out.logits[:, -1].argmax(-1, keepdim=True)
        for row, token in zip(active, ids[:, 0].tolist(), strict=True):
            _advance(row, token, ends, stop, halt, tokenizer)
        running = [i for i, row in enumerate(active) if not (row.finished or row.halted) and len(row.ids) < row.limit]
        if not running:
            return
        mask = torch.cat([mask, mask.new_ones(len(active), 1)], 1)
        position = position[:, -1:] + 1
        if len(running) < len(active):
            keep = torch.tensor(running, device=device)
            cache.batch_select_indices(keep)
            ids, mask, position, route = ids[keep], mask[keep], position[keep], route[keep]
            active = [active[i] for i in running]
            bank.route(route)


def _advance(
    row: _Row, token: int, ends: set[int], stop: Sequence[str], halt: Callable[[str], bool] | None, tokenizer: Any
) -> None:
    if token in ends:
        row.finished = True
        return
    row.ids.append(token)
    if stop:
        # Every token but special ones gives at least a byte, so a stop string that ends here lies within this tail.
        longest = max(len(text.encode()) for text in stop)
        tail = tokenizer.decode(row.ids[-longest - 8 :], skip_special_tokens=True)
        row.finished = any(text in tail for text in stop)
    if halt is not None and not row.finished:
        row.halted = halt(tokenizer.decode(row.ids, skip_special_tokens=True))


def _completion(row: _Row, tokenizer: Any, stop: Sequence[str]) -> Completion:
    text = tokenizer.decode(row.ids, skip_special_tokens=True)
    cuts = [text.index(s) for s in stop if s in text]
    return Completion(text[: min(cuts)] if cuts else text, row.ids, row.finished)


def end_tokens(model: Any, tokenizer: Any) -> set[int]:
    """Ids that end a text: the tokenizer's EOS and whatever the model's generation config adds."""
    named = getattr(model.generation_config, "eos_token_id", None)
    listed = named if isinstance(named, list) else [named]
    return {i for i in [tokenizer.eos_token_id, *listed] if i is not None}

"""Writing with the bank: rows of one batch may use different sites' adapters, and a finished row makes room."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch

from murmura.generation.decoder import Decoder, Lockstep, Text, decoder_for
from murmura.generation.ending import Draft, Ending, end_tokens
from murmura.generation.packed import products_in
from murmura.generation.sampling import Numbers, Sampling, choose
from murmura.precision import with_float64
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


@torch.no_grad()
def complete(
    bank: Bank,
    tokenizer: Any,
    prompts: Sequence[Sequence[int]],
    slots: Sequence[int],
    limits: Sequence[int],
    *,
    sampling: Sampling | None = None,
    streams: Sequence[Numbers] = (),
    stop: Sequence[str] = (),
    halt: Callable[[str], bool] | None = None,
    nonempty: bool = False,
    rows: int = 32,
    bfloat16: bool = False,
    description: str = "generate",
) -> list[Completion]:
    """Continue each prompt: greedily, or by sampling.

    Args:
        prompts: token ids of each prompt, not empty.
        slots: the bank slot that writes each continuation.
        limits: most tokens to write for each prompt.
        sampling: how tokens are drawn; None takes the likeliest each time.
        streams: with ``sampling``, each continuation's own randomness. Its n-th token takes the n-th number.
        stop: a continuation ends where one of these first appears in it.
        halt: a continuation is cut off as soon as this holds for its text so far, such as one that repeats itself.
        nonempty: no continuation ends before its first token.
        rows: continuations written together. It changes no result beyond float rounding.
        bfloat16: compute products with frozen weights in it, whatever the model is in.

    Returns:
        Completions in the order of the prompts.
    """
    ending = Ending(tokenizer, end_tokens(bank.model, tokenizer), stop, halt)
    texts = [
        Text(prompt, slot, limit, Draft(ending, limit))
        for prompt, slot, limit in zip(prompts, slots, limits, strict=True)
    ]
    if sampling is not None:
        for text, stream in zip(texts, streams, strict=True):
            text.draws = stream.uniform(text.limit).tolist()
    wanted = [text for text in texts if text.limit > 0]
    with bar(description, len(texts)) as progress, ExitStack() as stack:
        if wanted:
            stack.enter_context(products_in(bank.model, torch.bfloat16 if bfloat16 else None))
            stack.enter_context(bank.stacked())
            never_first = sorted(ending.tokens) if nonempty else []
            for _ in _written(decoder_for(bank, wanted, rows), wanted, sampling, never_first):
                progress.advance()
    return [Completion(ending.text(text.draft.ids), text.draft.ids, text.draft.finished) for text in texts]


def _written(
    decoder: Decoder | Lockstep, texts: Sequence[Text], sampling: Sampling | None, never_first: Sequence[int]
) -> Iterator[Text]:
    """Texts as they end. Those that may take longest go first, so that few are left running at the end."""
    device = decoder.bank.device
    waiting = deque(sorted(texts, key=lambda text: (-text.limit, text.slot, list(text.prompt))))
    while waiting or decoder.texts:
        joining = [waiting.popleft() for _ in range(min(decoder.room(), len(waiting)))]
        logits = decoder.join(joining) if joining else decoder.step()
        if joining:
            logits[:, never_first] = -torch.inf
        going = joining or decoder.texts
        draws = None
        if sampling is not None:
            drawn = [text.draws[len(text.draft.ids)] for text in going]
            draws = torch.tensor(drawn, dtype=torch.float64, device=with_float64(device))
        for text, token in zip(going, choose(logits, sampling, draws).tolist(), strict=True):
            text.draft.add(token)
        yield from decoder.leave()

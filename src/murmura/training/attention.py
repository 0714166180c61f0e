"""Attention of short texts in training, where a processor multiplies in bfloat16.

PyTorch's fused attention goes through a text in blocks, and has oneDNN multiply each block of each head by itself. In
bfloat16 such a product takes longer to begin than to compute: of texts below 192 tokens, whose blocks have 32 rows,
both passes together take up to eight times as long as in float32, with what it costs to convert. Forward alone is not
slow.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch

from murmura.overlapping import Overlapping

_LONG = 192  # tokens, from which on blocks have 64 rows
_FUSED = "sdpa"  # PyTorch's, as transformers names it


def _replaced() -> Callable[[], None]:
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS as every

    plain = every[_FUSED]
    every[_FUSED] = partial(_attend, plain)
    return partial(every.__setitem__, _FUSED, plain)


_SHORT = Overlapping(_replaced)


def short_in_float32(device: torch.device) -> AbstractContextManager[None]:
    """While the block runs, models of transformers compute attention of short texts in float32 on a CPU, where there
    will be a backward pass; what comes out is in bfloat16 again."""
    return _SHORT.block() if device.type == "cpu" else nullcontext()


def _attend(
    plain: Any, module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any, **options: Any
) -> tuple[torch.Tensor, Any]:
    """As ``plain``, which takes queries, keys and values [rows, heads, tokens, d]."""
    three = (query, key, value)
    is_short = key.shape[2] < _LONG and all(one.dtype == torch.bfloat16 for one in three)
    if not is_short or not any(one.requires_grad for one in three):
        return plain(module, query, key, value, mask, **options)
    if isinstance(mask, torch.Tensor) and mask.is_floating_point():
        mask = mask.float()
    with torch.autocast("cpu", enabled=False):
        found, weights = plain(module, *(one.float() for one in three), mask, **options)
    return found.to(torch.bfloat16), weights

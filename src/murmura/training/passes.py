"""How many tokens go through the model at once, where nobody says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch

TokensPerPass = int | Literal["auto"]

_CPU, _CPU_SHALLOW = 256, 384
"""The most that takes about the memory of PEFT with four records of 64 tokens a step: of a model with adapters in all
its layers, and of one where half of them or more are below all adapters. README has the curve."""
_GPU = 16_384
_SHARE = 8  # of a GPU's memory, a part in so many is for what a pass keeps
_BYTES = 2


def tokens_per_pass(asked: TokensPerPass, config: Any, device: torch.device | str, below: int = 0) -> int:
    """Padded tokens of a pass: those asked for; "auto" goes by device and model, never by a stopwatch.

    On a GPU they are as many as an eighth of its memory holds what a pass keeps of them in bfloat16: for each layer 8
    vectors as wide as the model and 3 as wide as its inner layer; 16,384 at most, and where there is no GPU to ask.

    Args:
        config: the model's, as transformers reads it.
        below: layers below all adapters, of which a pass keeps nothing.
    """
    if asked != "auto":
        return asked
    place, text = torch.device(device), config.get_text_config()
    if place.type != "cuda":
        return _CPU_SHALLOW if 2 * below >= text.num_hidden_layers else _CPU
    if not torch.cuda.is_available():
        return _GPU
    each = _BYTES * (text.num_hidden_layers - below) * (8 * text.hidden_size + 3 * inner_width(text))
    room = torch.cuda.get_device_properties(place).total_memory // _SHARE
    return int(max(min(room // each, _GPU), _CPU))


def inner_width(text: Any) -> int:
    """How wide a layer is inside, by the config of the part that reads; where layers differ, the widest."""
    widths = [getattr(layer, "intermediate_size", None) or 4 * text.hidden_size for layer in layer_configs(text)]
    return int(max(max(width) if isinstance(width, Sequence) else width for width in widths))


def layer_configs(text: Any) -> Sequence[Any]:
    """A config for each layer: where layers differ, transformers refuses to read of the whole what they differ in."""
    return getattr(text, "per_layer_config", None) or [text]

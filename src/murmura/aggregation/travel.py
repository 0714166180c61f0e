"""How adapters travel between server and sites: as they are, or in fewer bits.

Down goes the global adapter, rounded; the server keeps it as it is, so that nothing adds up from round to round. Up
goes the change from what the site was sent, rounded, and what the rounding of one round left out is added to the change
of the next (error feedback: Seide et al. 2014; Karimireddy et al. 2019, arXiv 1901.09847, Algorithm 1). DoRA's
magnitudes always travel as they are: they are few, and rounded they would scale whole rows of the frozen weight.
"""

from __future__ import annotations

import torch

from murmura.aggregation.config import Travel
from murmura.training.adapter import MAGNITUDE, State

BLOCK = 256
"""Numbers with a scale of their own (Dettmers et al. 2022, arXiv 2110.02861, section 2): 1.6 % more bytes."""
_SCALES = ".scales"
_MOST = 127


def packed(state: State, travel: Travel) -> State:
    """As a state travels: float32 as it is; bfloat16; or int8 in the tensors' own shapes, each with a float32 vector of
    scales [⌈numbers / ``BLOCK``⌉] beside it, by which the largest number of a block becomes ±127 (Dettmers et al.
    2022)."""
    if travel == "float32":
        return state
    if travel == "bfloat16":
        return {name: tensor if _is_whole(name) else tensor.to(torch.bfloat16) for name, tensor in state.items()}
    after: State = {}
    for name, tensor in state.items():
        if _is_whole(name):
            after[name] = tensor
            continue
        blocks = _blocks(tensor.float())
        scales = blocks.abs().amax(1) / _MOST
        codes = (blocks / torch.where(scales > 0, scales, 1.0).unsqueeze(1)).round().clamp(-_MOST, _MOST)
        after[name] = codes.to(torch.int8).flatten()[: tensor.numel()].view(tensor.shape)
        after[name + _SCALES] = scales
    return after


def unpacked(state: State) -> State:
    """What a state that has travelled stands for: float32. One that travelled as it is comes back as it is."""
    if all(tensor.dtype == torch.float32 for tensor in state.values()):
        return state
    after: State = {}
    for name, tensor in state.items():
        if name.endswith(_SCALES):
            continue
        scales = state.get(name + _SCALES)
        if scales is None:
            after[name] = tensor.float()
        else:
            numbers = _blocks(tensor.float()) * scales.unsqueeze(1)
            after[name] = numbers.flatten()[: tensor.numel()].view(tensor.shape)
    return after


def with_feedback(change: State, carried: State, travel: Travel) -> tuple[State, State]:
    """A change as it travels, and what to carry over to the next.

    Args:
        carried: what the last change left; tensors that are not there count as zero.

    Returns:
        ``packed``, and with the tensors of ``carried`` that did not travel now.
    """
    whole = {name: tensor + carried[name] if name in carried else tensor for name, tensor in change.items()}
    sent = packed(whole, travel)
    arrived = unpacked(sent)
    return sent, {**carried, **{name: whole[name] - arrived[name] for name in whole}}


def size(state: State, travel: Travel) -> int:
    """Bytes of a state as it travels; only its shapes are looked at."""
    each = {"float32": 4, "bfloat16": 2, "int8": 1}[travel]
    whole, rounded = ([t.numel() for n, t in state.items() if _is_whole(n) == which] for which in (True, False))
    scales = 4 * sum(-(-numbers // BLOCK) for numbers in rounded) if travel == "int8" else 0
    return 4 * sum(whole) + each * sum(rounded) + scales


def _is_whole(name: str) -> bool:
    return name.endswith(MAGNITUDE)


def _blocks(tensor: torch.Tensor) -> torch.Tensor:
    """[blocks, BLOCK] of all numbers in order, the last filled up with zeros."""
    flat = tensor.flatten()
    return torch.nn.functional.pad(flat, (0, -len(flat) % BLOCK)).view(-1, BLOCK)

"""Ternary weights (T-FedAvg, Xu et al. 2020, arXiv 2003.03564): each tensor as one number times -1, 0 or 1.

On the wire a tensor is its codes, four to a byte, and its scale: about a sixteenth of float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from murmura.errors import RunError

if TYPE_CHECKING:
    from murmura.training.adapter import State

SITE_THRESHOLD = 0.07
"""T of Δ = T·mean|θ| where a site quantises what it has trained."""
SERVER_THRESHOLD = 0.05
"""The same where the server quantises the mean of what sites sent (Xu et al. 2020)."""

CODE_BITS = 2
"""Bits of a code on the wire."""

_PER_BYTE = 8 // CODE_BITS
_SHIFTS = torch.arange(0, 8, CODE_BITS, dtype=torch.uint8)
_INVALID = 3  # codes are stored as code + 1, so of the four values of two bits one is never written


@dataclass(frozen=True)
class Ternary:
    """A quantised state.

    Args:
        codes: for each tensor of n elements, uint8 [⌈n/4⌉]: code + 1 in two bits each, the first element in the lowest
            ones, the last byte filled up with the code 0.
        scales: float32 [number of tensors], w of each in the order of ``codes``' sorted names.
    """

    codes: dict[str, torch.Tensor]
    scales: torch.Tensor


def ternary(tensor: torch.Tensor, threshold: float) -> tuple[torch.Tensor, torch.Tensor]:
    """One tensor's codes and scale (Xu et al. 2020).

    Args:
        tensor: θ, of any shape.
        threshold: T; elements of at most Δ = T·mean|θ| become 0.

    Returns:
        The codes -1, 0, 1 in the tensor's shape and dtype, and w = mean{|θ_j| : |θ_j| > Δ}, of no dimension; 0 for a
        tensor of zeros (a fresh adapter's B).
    """
    magnitude = tensor.abs()
    kept = magnitude > threshold * magnitude.mean()
    scale = (magnitude * kept).sum() / kept.sum().clamp(min=1)
    return tensor.sign() * kept, scale


def quantise(state: State, threshold: float = SITE_THRESHOLD) -> Ternary:
    """Quantise every tensor by itself; see ``ternary``."""
    codes, scales = {}, []
    for name in sorted(state):
        code, scale = ternary(state[name].detach(), threshold)
        codes[name] = pack(code)
        scales.append(scale)
    return Ternary(codes, torch.stack(scales).float())


def dequantise(codes: Mapping[str, torch.Tensor], scales: torch.Tensor, shapes: Mapping[str, torch.Size]) -> State:
    """The float32 state that codes and scales stand for.

    Args:
        codes, scales: as in ``Ternary``.
        shapes: names and shapes of the state to return.

    Raises:
        RunError: tensors are missing, unexpected or of another size, a code is none of the three, a scale is not a
            finite number of at least 0.
    """
    if codes.keys() != shapes.keys() or scales.shape != (len(shapes),):
        raise RunError("a ternary state does not have the tensors of this adapter", fix=_SAME)
    if not (torch.isfinite(scales) & (scales >= 0)).all():
        raise RunError("a scale of a ternary state is not a finite number of at least 0", fix="Lower training.lr.")
    return {
        name: unpack(codes[name], shapes[name], name) * scale
        for name, scale in zip(sorted(codes), scales.float(), strict=True)
    }


def pack(codes: torch.Tensor) -> torch.Tensor:
    """Codes -1, 0, 1 of any shape, n in all, as uint8 [⌈n/4⌉]."""
    flat = (codes.reshape(-1) + 1).to(torch.uint8)
    short = -len(flat) % _PER_BYTE
    padded = torch.cat([flat, flat.new_ones(short)]).view(-1, _PER_BYTE)
    return (padded << _SHIFTS).sum(dim=1, dtype=torch.uint8)


def unpack(packed: torch.Tensor, shape: torch.Size, name: str = "codes") -> torch.Tensor:
    """The inverse of ``pack``: float32 codes of ``shape``.

    Raises:
        RunError: not so many codes, or one that stands for nothing; ``name`` is where.
    """
    count = shape.numel()
    if packed.dtype != torch.uint8 or packed.shape != (-(-count // _PER_BYTE),):
        raise RunError(f"not {count} packed codes, but {packed.dtype} {tuple(packed.shape)}", where=name, fix=_SAME)
    flat = ((packed[:, None] >> _SHIFTS) & _INVALID).view(-1)[:count]
    if (flat == _INVALID).any():
        raise RunError("a code is neither -1, 0 nor 1", where=name, fix="The message was damaged, or is not ternary.")
    return (flat.float() - 1).view(shape)


_SAME = "All sites must use the same model and the same adapter rank."

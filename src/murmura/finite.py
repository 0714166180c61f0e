"""Whether tensors hold neither a NaN nor an infinity."""

from __future__ import annotations

import torch


def is_finite(tensor: torch.Tensor) -> bool:
    """Whether all of a tensor's real numbers are finite.

    Its extremes tell, as a NaN is an extreme too. They are found in one pass over memory, where `torch.isfinite` writes
    a mask first: it takes some twenty times as long on a processor.
    """
    return not tensor.numel() or bool(torch.stack(torch.aminmax(tensor)).isfinite().all())

"""Products with frozen weights on a processor, the weights laid out for it beforehand.

A matrix product of few rows spends most of its time on rearranging the weights, which is the same work at every step.
oneDNN multiplies by weights that were rearranged once (PyTorch's compiler does the same when it freezes a model).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from murmura.training.layer import is_conv1d

_ROWS = 32  # the layout suits about this many rows; it is correct for any number


@contextmanager
def products_in(model: nn.Module, dtype: torch.dtype | None = None) -> Iterator[None]:
    """While the block runs, linear layers use packed copies of their weights; elsewhere than on a CPU, autocast. Where
    they do already, nothing is packed again.

    Args:
        model: its weights must not change in the meantime. Quantised layers stay as they are.
        dtype: that of products with frozen weights, if not their own. On a CPU nothing else changes its type.
    """
    first = next(model.parameters())
    device = first.device.type
    if device != "cpu" or not available() or (dtype is torch.bfloat16 and not multiplies_bfloat16()):
        with torch.autocast(device, dtype, enabled=dtype not in (None, first.dtype)):
            yield
        return
    changed = [module for module in model.modules() if _is_plain(module, dtype) and "forward" not in vars(module)]
    try:
        for module in changed:
            module.forward = _product(module, dtype)
        yield
    finally:
        for module in changed:
            vars(module).pop("forward", None)


def available() -> bool:
    """Whether this build of PyTorch has the operations."""
    operations = torch.ops.mkldnn
    return torch.backends.mkldnn.is_available() and all(
        hasattr(operations, name) for name in ("_reorder_linear_weight", "_linear_pointwise")
    )


def multiplies_bfloat16() -> bool:
    """Whether the operations take bfloat16 on this processor, which needs AVX-512 or the like for that."""
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _is_plain(module: nn.Module, dtype: torch.dtype | None) -> bool:
    if not (type(module) is nn.Linear or is_conv1d(module)):
        return False
    weight: Any = module.weight
    if weight.device.type != "cpu" or not weight.is_floating_point():
        return False
    kind = dtype or weight.dtype
    return kind == torch.float32 or (kind == torch.bfloat16 and multiplies_bfloat16())


def _product(module: Any, dtype: torch.dtype | None) -> Callable[[torch.Tensor], torch.Tensor]:
    weight, bias = module.weight.detach(), None if module.bias is None else module.bias.detach()
    if is_conv1d(module):
        weight = weight.t()
    kind = dtype or weight.dtype
    wide = weight.shape[0]
    weight = torch.ops.mkldnn._reorder_linear_weight(weight.to(kind).contiguous(), _ROWS)
    bias = None if bias is None else bias.to(kind)
    multiply = torch.ops.mkldnn._linear_pointwise

    def forward(x: torch.Tensor) -> torch.Tensor:
        flat = x.reshape(-1, x.shape[-1])
        y = multiply(flat.to(kind), weight, bias, "none", [], "")
        return y.to(x.dtype).view(*x.shape[:-1], wide)

    return forward

"""A linear layer with stacked LoRA factors, and the routing of a batch's rows to them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from murmura.errors import ModelError


@dataclass
class Routing:
    """Which slot each row of the present batch uses. One object is shared by all layers of a bank.

    ``single`` is set when all rows use one slot and ``span`` when the rows use neighbouring slots, in order and with
    equally many rows each; both save the gather of the general case. ``residual`` says of each row whether the
    layers' residuals apply to it (float32 [rows, 1, 1], 1 or 0); None: to all. ``length`` is that of the rows, where it
    is known. ``shares`` says, where all slots' factors are stacked, which columns belong to a row's slot (float32
    [rows, 1, K·r], s or 0).
    """

    slots: torch.Tensor | None = None
    single: int | None = None
    span: slice | None = None
    lengths: list[int] = field(default_factory=list)
    generators: list[torch.Generator] | None = None
    residual: torch.Tensor | None = None
    length: int | None = None
    shares: torch.Tensor | None = None

    def set(self, slots: torch.Tensor, residual: torch.Tensor | None = None) -> None:
        rows = slots.tolist()
        used = range(rows[0], rows[-1] + 1)
        each, rest = divmod(len(rows), max(len(used), 1))
        self.slots, self.residual = slots, residual
        self.single = rows[0] if len(set(rows)) == 1 else None
        in_order = self.single is None and not rest and rows == [slot for slot in used for _ in range(each)]
        self.span = slice(used.start, used.stop) if in_order else None


class BankLayer(nn.Module):
    """``y = base(x) + s·B[slot](A[slot] x) + residual`` with one (A, B) per slot.

    With DoRA (Liu et al. 2024, arXiv 2402.09353, equation 5) the weight of a slot is ``m ∘ (W + s·B·A) / norm``, where
    ``norm`` are the lengths of the rows of W + s·B·A. For the backward pass they are constants (section 4.3).

    Args:
        base: the frozen layer: ``nn.Linear``, transformers' ``Conv1D``, or a bitsandbytes linear.
        scale: s of the adapter.
        dropout: probability of dropping an input of A while generators are set (that is, while training).

    ``A`` [K, r, in] and ``B`` [K, out, r] are float32 views into the bank's buffer; the bank sets them, and the
    ``residual`` too: float32 factors A [R, in] and B [out, R] of a change of the frozen weight that slots share. It is
    added here and not to the weight itself, which may be quantised. ``stack`` holds copies of all slots' factors side
    by side, A [K·r, in] and B [out, K·r], while there is no training: two products then serve any mixture of slots.
    ``m`` and ``norm`` [K, out] are DoRA's, float32, and None without it; ``m`` is a view into the buffer too.
    """

    def __init__(self, base: nn.Module, routing: Routing, scale: float, dropout: float) -> None:
        super().__init__()
        self.base, self.routing, self.scale, self.dropout = base, routing, scale, dropout
        self.A: torch.Tensor
        self.B: torch.Tensor
        self.m: torch.Tensor | None = None
        self.norm: torch.Tensor | None = None
        self.residual: tuple[torch.Tensor, torch.Tensor] | None = None
        self.stack: tuple[torch.Tensor, torch.Tensor] | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.base(x)
        with torch.autocast(x.device.type, enabled=False):
            rows = self._rows(x)
            drops = bool(self.dropout and self.routing.generators)
            seen = rows * self._mask(rows) if drops else rows
            change, residual = self._change(seen), self._residual(rows)
            if residual is not None:
                change = change + residual
        if self.m is not None:
            # What is dropped from A's input is dropped from that of the turned weight too, as PEFT has it.
            change = self._turned(change, self.base(seen.to(x.dtype).reshape(x.shape)) if drops else y)
        return y + change.reshape(y.shape).to(y.dtype)

    @property
    def weight(self) -> torch.Tensor:
        """What a model asks for that multiplies by the weight itself, and so would pass by the adapter.

        Raises:
            ModelError: always.
        """
        wide_in, wide_out = in_out_features(self.base, "of the model")
        what = f"the model takes the weight [{wide_out}, {wide_in}] out of a layer with an adapter, and passes that by"
        raise ModelError(what, fix="Leave that layer out of lora.targets: name the others.")

    @cached_property
    def base_squares(self) -> torch.Tensor:
        """Squared lengths of the rows of W, float32 [out].

        Raises:
            ModelError: the frozen weight cannot be read out.
        """
        return frozen_weight(self.base).square().sum(1)

    @torch.no_grad()
    def measure(self) -> None:
        """Set ``norm``, by ``‖w + s·Aᵀb‖² = ‖w‖² + b·(2s·A w + s²·A Aᵀ b)`` for each row w of W and b of B. That takes
        a product of K·r rows with W, and nothing as large as W for each slot.

        Raises:
            ModelError: the frozen weight cannot be read out.
        """
        A, B, s = self.A, self.B, self.scale
        along = F.linear(A.flatten(0, 1), frozen_weight(self.base)).view(*A.shape[:2], -1).transpose(1, 2)
        squares = self.base_squares + (B * (2 * s * along + s**2 * B @ (A @ A.mT))).sum(-1)
        # Of a row of zeros nothing is left, whatever it is divided by.
        self.norm = torch.where(squares > 0, squares, 1.0).sqrt()

    def _turned(self, change: torch.Tensor, direct: torch.Tensor) -> torch.Tensor:
        """What DoRA adds to the layer's output: ``g·(W x + s·B A x) − W x`` with g = m / norm.

        Args:
            change: s·B A x, float32 [rows, length, out].
            direct: W x and the layer's bias, for the same x.
        """
        assert self.m is not None and self.norm is not None and self.routing.slots is not None
        slots = self.routing.slots if self.routing.single is None else self.routing.slots[:1]
        bias: Any = getattr(self.base, "bias", None)
        gain = (self.m.index_select(0, slots) / self.norm.index_select(0, slots))[:, None]
        direct = (direct if bias is None else direct - bias).float().reshape(change.shape)
        return gain * (direct + change) - direct  # so that a backward pass keeps one tensor of this size

    def _rows(self, x: torch.Tensor) -> torch.Tensor:
        """The input as float32 [rows, length, in]; as one row where it is not the batch and all rows use one slot."""
        routing = self.routing
        assert routing.slots is not None, "a bank's forward needs a routing"
        rows = routing.slots.shape[0]
        flat = x.dim() == 2 and routing.length is not None
        expected = rows * routing.length if flat and routing.length is not None else rows
        if (flat or x.dim() > 2) and len(x) != expected:
            if routing.single is None:
                # An expert of a mixture sees only some of the tokens, and their owner is unknown.
                raise ModelError(
                    f"an adapter's layer got {len(x)} of {expected} {'tokens' if flat else 'rows'} of a batch, so they "
                    "cannot be told apart by site",
                    fix="Choose another layer for lora.targets, or set run.slots = 1.",
                )
            rows = 1
        return x.to(self.A.dtype).reshape(rows, -1, x.shape[-1])

    def _change(self, x: torch.Tensor) -> torch.Tensor:
        """s·B A x of rows [rows, length, in], each by its own slot."""
        routing, A, B = self.routing, self.A, self.B
        assert routing.slots is not None
        if routing.single is not None:
            z = F.linear(x, A[routing.single])
            delta = F.linear(self.scale * z, B[routing.single])
        elif self.stack is not None and routing.shares is not None:
            delta = F.linear(F.linear(x, self.stack[0]) * routing.shares, self.stack[1])
        elif routing.span is not None:
            if routing.span != slice(0, len(A)):
                A, B = A[routing.span], B[routing.span]
            z = torch.bmm(x.reshape(len(A), -1, x.shape[-1]), A.transpose(1, 2))
            delta = torch.bmm(self.scale * z, B.transpose(1, 2))
        else:
            z = torch.bmm(x, A.index_select(0, routing.slots).transpose(1, 2))
            delta = torch.bmm(self.scale * z, B.index_select(0, routing.slots).transpose(1, 2))
        return delta.reshape(len(x), -1, delta.shape[-1])

    def _residual(self, x: torch.Tensor) -> torch.Tensor | None:
        """What the residual adds to rows [rows, length, in], if there is one."""
        if self.residual is None:
            return None
        change = F.linear(F.linear(x, self.residual[0]), self.residual[1])
        return change if self.routing.residual is None else change * self.routing.residual[: len(change)]

    def _mask(self, x: torch.Tensor) -> torch.Tensor:
        """Inverted-dropout mask, row by row from the row's own generator and only over its own length.

        So a site draws the same masks whichever sites share its batch, and however long their rows are.

        Raises:
            ModelError: they are not the tokens of a batch.
        """
        lengths, generators = self.routing.lengths, self.routing.generators
        assert generators is not None
        if x.shape[:2] != (len(lengths), self.routing.length or x.shape[1]):
            what = "an adapter's layer looks at something else than a batch's tokens, for which dropout has no masks"
            raise ModelError(what, fix="Set lora.dropout = 0, or leave this layer out of lora.targets.")
        keep = 1.0 - self.dropout
        drawn = torch.ones(x.shape, device=x.device)  # what is beyond a row's length is dropped
        for row, length, generator in zip(drawn, lengths, generators, strict=True):
            row[:length].uniform_(generator=generator)
        return drawn.lt_(keep).div_(keep)


def in_out_features(module: nn.Module, name: str) -> tuple[int, int]:
    """(in, out) of a layer that can carry an adapter; raises ``ModelError`` for any other."""
    known: Any = module
    if hasattr(module, "in_features") and hasattr(module, "out_features"):
        return int(known.in_features), int(known.out_features)
    if is_conv1d(module):
        rows, columns = known.weight.shape
        return int(rows), int(columns)
    raise ModelError(f"target {name} is a {type(module).__name__}, not a linear layer", fix="Change lora.targets.")


def frozen_weight(module: nn.Module) -> torch.Tensor:
    """The weight of a layer that carries an adapter, float32 [out, in]; a quantised one is read out.

    Raises:
        ModelError: it cannot be.
    """
    from peft.utils.integrations import dequantize_bnb_weight, dequantize_module_weight

    known: Any = module
    try:
        # On a CPU PEFT's other function would take the scales of a layer of 8 bits away.
        if type(getattr(known, "weight", None)).__name__ == "Int8Params":
            weight = dequantize_bnb_weight(known.weight, state=known.state).detach()
        else:
            weight = dequantize_module_weight(known).detach()
    except (AttributeError, TypeError):
        weight = torch.empty(0, dtype=torch.uint8)
    weight = weight.T if is_conv1d(module) else weight
    if not weight.is_floating_point() or tuple(weight.shape[::-1]) != in_out_features(module, "of DoRA"):
        what = f"DoRA goes by the rows of a weight, and those of a {type(module).__name__} cannot be read out"
        raise ModelError(what, fix="Set lora.dora = false, or load the model without quantization.")
    return weight.float()


def is_conv1d(module: nn.Module) -> bool:
    """True for GPT-2's linear layer, which stores its weight as [in, out] (PEFT: ``fan_in_fan_out``)."""
    return type(module).__name__ == "Conv1D"

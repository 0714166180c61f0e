"""One resident model with a slot of trainable tensors per site.

The base model is loaded once. Every adapter target becomes a ``BankLayer``; the factors of all layers of one slot lie
in one row of a flat float32 buffer ``flat[K, P]``, of which each layer's A and B are views. So an optimiser has one
tensor, a site's adapter is one row, and a norm per site is one reduction.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from murmura.errors import ModelError
from murmura.streams import Stream
from murmura.training.adapter import PEFT_PREFIX, State
from murmura.training.config import LoraSpec
from murmura.training.head import HEADS, Head
from murmura.training.layer import BankLayer, Routing, in_out_features, is_conv1d


@dataclass(frozen=True)
class Entry:
    """Where a tensor lies in a row of the buffer: columns ``start`` to ``start + prod(shape)``."""

    name: str
    shape: tuple[int, ...]
    start: int

    @property
    def stop(self) -> int:
        return self.start + math.prod(self.shape)


class Bank:
    """The resident model and its slots.

    Args:
        model: a transformers causal or masked language model; it is changed in place, and its own dropout stays off.
        lora: the adapter's spec, or None to train all parameters (one slot only, model in float32).

    Raises:
        ModelError: a target that no module matches or that is not linear; full training of a model not in float32.
    """

    def __init__(self, model: Any, lora: LoraSpec | None) -> None:
        self.model, self.lora = model.eval(), lora
        self.routing = Routing()
        self.device = next(model.parameters()).device
        for parameter in model.parameters():
            parameter.requires_grad_(False)
        self.head = Head(model)
        self._layers: dict[str, BankLayer] = {}
        self._parameters: dict[str, nn.Parameter] = {}
        self.manifest = self._inject(lora) if lora else self._adopt()
        self.head.adapted(self._layers)
        self.size = self.manifest[-1].stop
        self.flat = torch.zeros(0, self.size, device=self.device)
        self.grad = torch.zeros(0, self.size, device=self.device)

    # ---- building -----------------------------------------------------------------------------------------------

    def _inject(self, lora: LoraSpec) -> list[Entry]:
        manifest, start = [], 0
        for name in target_names(self.model, lora.targets):
            parent_name, _, child = name.rpartition(".")
            parent = self.model.get_submodule(parent_name)
            base = getattr(parent, child)
            wide_in, wide_out = in_out_features(base, name)
            layer = BankLayer(base, self.routing, lora.scale, lora.dropout)
            setattr(parent, child, layer)
            self._layers[name] = layer
            for factor, shape in (("lora_A", (lora.rank, wide_in)), ("lora_B", (wide_out, lora.rank))):
                manifest.append(Entry(f"{PEFT_PREFIX}{name}.{factor}.weight", shape, start))
                start = manifest[-1].stop
        return manifest

    def _adopt(self) -> list[Entry]:
        manifest, start = [], 0
        for name, parameter in self.model.named_parameters():  # tied weights are named once
            if parameter.dtype != torch.float32:
                raise ModelError(
                    f"full-parameter training needs float32 weights, {name} is {parameter.dtype}",
                    fix="Set model.dtype = 'float32' and no quantization.",
                )
            self._parameters[name] = parameter
            manifest.append(Entry(name, tuple(parameter.shape), start))
            start = manifest[-1].stop
        return manifest

    @property
    def fan_in_fan_out(self) -> bool:
        """True when the adapted layers store their weight as [in, out]."""
        return any(is_conv1d(layer.base) for layer in self._layers.values())

    # ---- slots --------------------------------------------------------------------------------------------------

    @property
    def slots(self) -> int:
        return int(self.flat.shape[0])

    def initial(self, stream: Stream) -> State:
        """A fresh start: A Kaiming-uniform with a = √5 (that is, U(−1/√in, 1/√in)), B zero; full: the model itself."""
        if self.lora is None:
            return {name: parameter.detach().cpu().clone() for name, parameter in self._parameters.items()}
        generator = stream.torch()
        state = {}
        for entry in self.manifest:
            if ".lora_A." in entry.name:
                bound = 1 / math.sqrt(entry.shape[1])
                state[entry.name] = torch.empty(entry.shape).uniform_(-bound, bound, generator=generator)
            else:
                state[entry.name] = torch.zeros(entry.shape)
        return state

    def load(self, states: Sequence[State]) -> None:
        """Fill the slots, one for each state."""
        if self.lora is None and len(states) != 1:
            raise ModelError("full-parameter training has one slot", fix="Train the sites one after the other.")
        if len(states) != self.slots:
            self.flat = torch.empty(len(states), self.size, device=self.device)
            self.grad = torch.empty(0, self.size, device=self.device)
            self._attach()
        for row, state in zip(self.flat, states, strict=True):
            row.copy_(self.pack(state))

    def read(self, slot: int) -> State:
        """A copy of a slot's tensors on the CPU."""
        return self.unpack(self.flat[slot].detach().cpu().clone())

    def pack(self, state: State) -> torch.Tensor:
        """A state as one float32 vector [P] on the CPU, in the manifest's order."""
        if state.keys() != {entry.name for entry in self.manifest}:
            odd = sorted(state.keys() ^ {entry.name for entry in self.manifest})[0]
            raise ModelError(f"the adapter does not fit this model: {odd} is in one of them only")
        for entry in self.manifest:
            if tuple(state[entry.name].shape) != entry.shape:
                raise ModelError(
                    f"{entry.name} has shape {tuple(state[entry.name].shape)}, this model needs {entry.shape}",
                    fix="Use the rank and targets that the adapter was trained with.",
                )
        return torch.cat([state[entry.name].reshape(-1).float() for entry in self.manifest])

    def unpack(self, vector: torch.Tensor) -> State:
        """The inverse of ``pack``; the tensors are views of ``vector`` [P]."""
        return {entry.name: vector[entry.start : entry.stop].view(entry.shape) for entry in self.manifest}

    def _attach(self) -> None:
        """Make every trainable tensor of the model a view of the buffer."""
        for tensor_name, view in self._views(self.flat).items():
            if self.lora is None:
                self._parameters[tensor_name].data = view[0]
            else:
                module, factor = tensor_name.removeprefix(PEFT_PREFIX).rsplit(".lora_", 1)
                setattr(self._layers[module], factor[0], view)

    def _views(self, buffer: torch.Tensor) -> dict[str, torch.Tensor]:
        slots = buffer.shape[0]
        return {e.name: buffer[:, e.start : e.stop].view(slots, *e.shape) for e in self.manifest}

    # ---- use ----------------------------------------------------------------------------------------------------

    def route(self, slots: torch.Tensor) -> None:
        """Send row i of the next batches to slot ``slots[i]``.

        Args:
            slots: int64 [rows].
        """
        self.routing.set(slots.to(self.device))

    @contextmanager
    def trainable(self) -> Iterator[nn.Parameter]:
        """The buffer as one parameter [K, P] whose ``grad`` fills up during backward.

        Autograd adds in place to gradients that are there already, so giving each view a view of one gradient buffer
        gathers them all without a copy. Leaving the block detaches everything.
        """
        if self.grad.shape != self.flat.shape:
            self.grad = torch.empty_like(self.flat)
        self.grad.zero_()
        leaves = [tensor for _, tensor in self._leaves()]
        for leaf, gradient in zip(leaves, self._leaf_gradients(), strict=True):
            leaf.requires_grad_(True)
            leaf.grad = gradient
        parameter = nn.Parameter(self.flat)
        parameter.grad = self.grad
        try:
            with warnings.catch_warnings():
                # Autograd remarks that a strided gradient is slower to add to; here it is what saves the copies.
                warnings.filterwarnings("ignore", message="grad and param do not obey the gradient layout contract")
                yield parameter
        finally:
            self.routing.generators = None
            for leaf in leaves:
                leaf.requires_grad_(False)
                leaf.grad = None

    def _leaves(self) -> Iterator[tuple[str, torch.Tensor]]:
        for entry in self.manifest:
            if self.lora is None:
                yield entry.name, self._parameters[entry.name]
            else:
                module, factor = entry.name.removeprefix(PEFT_PREFIX).rsplit(".lora_", 1)
                yield entry.name, getattr(self._layers[module], factor[0])

    def _leaf_gradients(self) -> Iterator[torch.Tensor]:
        for view in self._views(self.grad).values():
            yield view[0] if self.lora is None else view

    @contextmanager
    def per_example(self, rows: int, slot: int = 0) -> Iterator[list[torch.Tensor]]:
        """Give each of ``rows`` rows its own view of a slot, without copying it.

        Yields:
            The leaves in the manifest's order, [rows, *shape] each; ``torch.autograd.grad`` of the rows' summed losses
            with respect to them is the gradient of every example apart (what DP-SGD clips and LESS compares).
        """
        if self.lora is None:
            raise ModelError("per-example gradients need adapters", fix="Set lora.rank.")
        before = [leaf for _, leaf in self._leaves()]
        leaves = [leaf[slot].detach().expand(rows, *leaf.shape[1:]).requires_grad_() for leaf in before]
        self._place(leaves)
        self.routing.set(torch.arange(rows, device=self.device))
        try:
            yield leaves
        finally:
            self._place(before)

    def _place(self, leaves: Sequence[torch.Tensor]) -> None:
        for entry, leaf in zip(self.manifest, leaves, strict=True):
            module, factor = entry.name.removeprefix(PEFT_PREFIX).rsplit(".lora_", 1)
            setattr(self._layers[module], factor[0], leaf)


def target_names(model: nn.Module, targets: Sequence[str]) -> list[str]:
    """Full names of the modules that carry an adapter, in the model's order.

    Args:
        targets: suffixes of module names as in PEFT; ``("default",)`` takes PEFT's choice for the architecture;
            ``("all-linear",)`` takes every linear layer except the output head.
    """
    if tuple(targets) == ("all-linear",):
        return [
            name for name, module in model.named_modules() if _is_linear(module) and name.partition(".")[0] not in HEADS
        ]
    if tuple(targets) == ("default",):
        from peft.utils import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING as DEFAULTS

        kind = str(model.config.model_type)  # type: ignore[union-attr]
        if kind not in DEFAULTS:
            raise ModelError(f"PEFT has no default adapter targets for {kind} models", fix="Name them: lora.targets.")
        targets = DEFAULTS[kind]
    modules = dict(model.named_modules())
    found: dict[str, None] = {}
    for target in targets:
        matches = [name for name in modules if name == target or name.endswith("." + target)]
        if not matches:
            kinds = sorted({name.rpartition(".")[2] for name, module in modules.items() if _is_linear(module)})
            what = f"no module of the model is called {target}"
            raise ModelError(what, fix=f"lora.targets may name: {', '.join(kinds)}.")
        found.update(dict.fromkeys(matches))
    return [name for name in modules if name in found]


def _is_linear(module: nn.Module) -> bool:
    return "Linear" in type(module).__name__ or is_conv1d(module)

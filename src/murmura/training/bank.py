"""One resident model with a slot of trainable tensors per site.

The base model is loaded once. Every adapter target becomes a ``BankLayer``; the factors of all layers of one slot lie
in one row of a flat float32 buffer ``flat[K, P]``, of which each layer's A and B are views; all A's come before all
B's, and these before DoRA's magnitudes, if there are any. So an optimiser has one tensor, a site's adapter is one row,
a norm per site is one reduction, and to train only one factor, or to clip the two apart, is a matter of columns.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from murmura.errors import ModelError
from murmura.finite import is_finite
from murmura.streams import Stream
from murmura.training.adapter import (
    MAGNITUDE,
    PEFT_PREFIX,
    State,
    crop,
    factor_of,
    fresh,
    is_same,
    rank_of,
    shapes_of,
    split_residual,
)
from murmura.training.config import CACHE_BYTES, LoraSpec
from murmura.training.frozen import frozen_below
from murmura.training.head import Head
from murmura.training.layer import BankLayer, Routing, in_out_features, is_conv1d
from murmura.training.passes import TokensPerPass, tokens_per_pass
from murmura.training.repeatable import repeatable, repeats
from murmura.training.states import StateCache
from murmura.training.targets import target_names

Factor = Literal["A", "B"]
_WIDEST = 512  # of all slots' ranks together, to be stacked


@dataclass(frozen=True)
class BufferEntry:
    """Where a tensor lies in a row of the buffer: columns ``start`` to ``start + prod(shape)``."""

    name: str
    shape: tuple[int, ...]
    start: int

    @property
    def stop(self) -> int:
        return self.start + math.prod(self.shape)

    @property
    def factor(self) -> str | None:
        """A or B, of an adapter's tensor; magnitudes go with B."""
        return factor_of(self.name)


class Bank:
    """The resident model and its slots.

    Args:
        model: a transformers causal or masked language model; it is changed in place, and its own dropout stays off.
        lora: the adapter's spec, or None to train all parameters (one slot only, model in float32).
        cache_bytes: how much of what the layers below all adapters compute is kept in memory. It changes no result
            beyond float rounding; 0: nothing is kept, and these layers go along in every pass.
        shared: a folder in which several runs keep it; see ``StateCache``.

    Attributes:
        states: what is kept.

    Raises:
        ModelError: a target that no module matches or that is not linear; full training of a model not in float32.
    """

    def __init__(
        self, model: Any, lora: LoraSpec | None, cache_bytes: int = CACHE_BYTES, shared: Path | None = None
    ) -> None:
        self.model, self.lora = model.eval(), lora
        self.routing = Routing()
        self.device = next(model.parameters()).device
        for parameter in model.parameters():
            parameter.requires_grad_(False)
        self._repeats = repeats(model, self.device)
        self.head, self.states = Head(model), StateCache(cache_bytes, shared)
        self._layers: dict[str, BankLayer] = {}
        self._parameters: dict[str, nn.Parameter] = {}
        self._untrained: State = {}
        self.manifest = self._inject(lora) if lora else self._adopt()
        self.head.adapted(self._layers)
        self.size = self.manifest[-1].stop
        self.ranks: list[int | None] = []
        self._has_residual: torch.Tensor | None = None
        self._shares: torch.Tensor | None = None
        self._measured: int | None = None  # the version of the buffer that the layers' norms are of
        self.flat = torch.zeros(0, self.size, device=self.device)
        self.grad = torch.zeros(0, self.size, device=self.device)

    # ---- building -----------------------------------------------------------------------------------------------

    def _inject(self, lora: LoraSpec) -> list[BufferEntry]:
        shapes, names = {}, target_names(self.model, lora.targets, lora.layers)
        self.head.frozen = frozen_below(self.head, names, self.states)
        for name in names:
            parent_name, _, child = name.rpartition(".")
            parent = self.model.get_submodule(parent_name)
            base = getattr(parent, child)
            wide_in, wide_out = in_out_features(base, name)
            layer = BankLayer(base, self.routing, lora.scale, lora.dropout)
            setattr(parent, child, layer)
            self._layers[name] = layer
            shapes[name] = shapes_of(lora, wide_in, wide_out)
        self.model.get_input_embeddings().register_forward_pre_hook(self._see_length)
        manifest, start = [], 0
        for part in next(iter(shapes.values())):
            for name, shape in shapes.items():
                manifest.append(BufferEntry(f"{PEFT_PREFIX}{name}{part}", shape[part], start))
                start = manifest[-1].stop
        return manifest

    def _see_length(self, module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        """Note how long the rows of a batch are, as they enter the model."""
        self.routing.length = inputs[0].shape[-1] if inputs else None

    def _adopt(self) -> list[BufferEntry]:
        manifest, start = [], 0
        for name, parameter in self.model.named_parameters():  # tied weights are named once
            if parameter.dtype != torch.float32:
                fix = "Set model.dtype = 'float32' and no quantization."
                raise ModelError(f"full-parameter training needs float32 weights, {name} is {parameter.dtype}", fix=fix)
            self._parameters[name] = parameter
            self._untrained[name] = parameter.detach().cpu()
            manifest.append(BufferEntry(name, tuple(parameter.shape), start))
            start = manifest[-1].stop
        return manifest

    @property
    def fan_in_fan_out(self) -> bool:
        """True when the adapted layers store their weight as [in, out]."""
        return any(is_conv1d(layer.base) for layer in self._layers.values())

    def per_pass(self, asked: TokensPerPass) -> int:
        """Padded tokens that go through this model at once; see ``tokens_per_pass``."""
        below = self.head.frozen.first if self.head.frozen else 0
        return tokens_per_pass(asked, self.model.config, self.device, below)

    # ---- slots --------------------------------------------------------------------------------------------------

    @property
    def slots(self) -> int:
        return int(self.flat.shape[0])

    def initial(self, stream: Stream) -> State:
        """A fresh start: A Kaiming-uniform with a = √5 (that is, U(−1/√in, 1/√in)), B zero, and as magnitudes the
        lengths of the weights' rows; full: the model itself."""
        if self.lora is None:
            return {name: tensor.clone() for name, tensor in self._untrained.items()}
        return fresh({entry.name: entry.shape for entry in self.manifest}, stream) | self._magnitudes()

    def _magnitudes(self) -> State:
        """DoRA's magnitudes before training, the lengths of the weights' rows; nothing without DoRA."""
        if self.lora is None or not self.lora.dora:
            return {}
        return {
            f"{PEFT_PREFIX}{name}{MAGNITUDE}": layer.base_squares.sqrt().cpu() for name, layer in self._layers.items()
        }

    @property
    def untrained(self) -> State:
        """What leaves the model as it was loaded, always the same object: a zero adapter, with the weights' own
        magnitudes if there are any; full: its own weights."""
        if not self._untrained:
            zeros = {entry.name: torch.zeros(entry.shape) for entry in self.manifest}
            self._untrained = zeros | self._magnitudes()
        return self._untrained

    def adds_nothing(self, state: State) -> bool:
        """Whether a state leaves the model as it was loaded: no B moves anything, and no magnitude is another; full:
        its weights are the model's."""
        if self.lora is None:
            return is_same(state, self.untrained)
        adapter, residual = split_residual(state)
        moved = any(bool(tensor.any()) for name, tensor in adapter.items() if ".lora_B." in name)
        own = {name: tensor for name, tensor in adapter.items() if name.endswith(MAGNITUDE)}
        return not residual and not moved and is_same(own, {name: self.untrained[name] for name in own})

    def load(self, states: Sequence[State]) -> None:
        """Fill the slots, one for each state.

        A state of a smaller rank is padded with zeros, which training leaves as they are. A state may come with a
        residual (see ``split_residual``): it is applied in that slot, never trained, and kept once for all slots.
        """
        if self.lora is None and len(states) != 1:
            raise ModelError("full-parameter training has one slot", fix="Train the sites one after the other.")
        if len(states) != self.slots:
            self.flat = torch.empty(len(states), self.size, device=self.device)
            self.grad = torch.empty(0, self.size, device=self.device)
            self._attach()
        parted = [split_residual(state) for state in states]
        self.ranks = [rank_of(adapter) for adapter, _ in parted]
        for row, (adapter, _) in zip(self.flat, parted, strict=True):
            row.copy_(self.pack(adapter))
        self._measured = None
        self._share([residual for _, residual in parted])

    def read(self, slot: int) -> State:
        """A copy of a slot's tensors on the CPU, of the rank that was loaded and without a residual."""
        state = self.unpack(self.flat[slot].detach().cpu().clone())
        rank = self._smaller_rank(slot)
        return state if rank is None else {name: tensor.clone() for name, tensor in crop(state, rank).items()}

    def _smaller_rank(self, slot: int) -> int | None:
        """The rank of a slot, where it is not the bank's."""
        rank = self.ranks[slot]
        return None if self.lora is None or rank == self.lora.rank else rank

    def pack(self, state: State) -> torch.Tensor:
        """A state as one float32 vector [P] on the CPU, in the manifest's order; zeros pad a smaller rank."""
        if state.keys() != {entry.name for entry in self.manifest}:
            odd = sorted(state.keys() ^ {entry.name for entry in self.manifest})[0]
            raise ModelError(f"the adapter does not fit this model: {odd} is in one of them only")
        vector, rank = torch.zeros(self.size), rank_of(state)
        places = self.unpack(vector)
        for name, place in (places if rank is None else crop(places, rank)).items():
            if place.shape != state[name].shape:
                what = f"{name} has shape {tuple(state[name].shape)}, this model needs {tuple(place.shape)}"
                fix = "Use the targets that the adapter was trained with, and one rank, at most lora.rank."
                raise ModelError(what, fix=fix)
            place.copy_(state[name])
        return vector

    def unpack(self, vector: torch.Tensor) -> State:
        """The inverse of ``pack``; the tensors are views of ``vector`` [P]."""
        return {entry.name: vector[entry.start : entry.stop].view(entry.shape) for entry in self.manifest}

    def padding(self, slot: int) -> torch.Tensor | None:
        """bool [P], true where a slot of smaller rank holds zeros of no meaning; None: nowhere."""
        rank = self._smaller_rank(slot)
        if rank is None:
            return None
        return self.pack(crop(self.unpack(torch.ones(self.size)), rank)).to(self.device) == 0

    def _share(self, residuals: Sequence[State]) -> None:
        """Hand the slots' one residual to the layers, and note which slots have it."""
        shared = next((residual for residual in residuals if residual), {})
        if any(residual and not is_same(residual, shared) for residual in residuals):
            raise ModelError("two sites come with different residuals", fix="Train them one after the other.")
        if shared and self.lora is not None and self.lora.dora:
            raise ModelError("a residual has no place beside DoRA's magnitudes", fix="Set lora.dora = false.")
        factors = {name: tensor.float().to(self.device) for name, tensor in shared.items()}
        for name, layer in self._layers.items():
            A, B = (factors.pop(f"{PEFT_PREFIX}{name}.residual_{factor}.weight", None) for factor in ("A", "B"))
            if (A is None) != (B is None):
                raise ModelError(f"the residual of {name} has one factor only")
            layer.residual = None if A is None or B is None else (A, B)
        if factors:
            raise ModelError(f"the residual does not fit this model: {min(factors)} belongs to no adapter")
        having = [bool(residual) for residual in residuals]
        self._has_residual = None if len(set(having)) < 2 else torch.tensor(having).float().to(self.device)

    def _attach(self) -> None:
        """Make every trainable tensor of the model a view of the buffer."""
        views = self._views(self.flat)
        if self.lora is not None:
            self._place(views)
            return
        for entry, view in zip(self.manifest, views, strict=True):
            self._parameters[entry.name].data = view[0]

    def _place(self, tensors: Sequence[torch.Tensor]) -> None:
        """Let the layers use these, in the manifest's order."""
        for entry, tensor in zip(self.manifest, tensors, strict=True):
            setattr(*self._place_of(entry), tensor)

    def _placed(self) -> list[torch.Tensor]:
        """What the model uses, in the manifest's order."""
        if self.lora is None:
            return list(self._parameters.values())
        return [getattr(*self._place_of(entry)) for entry in self.manifest]

    def _place_of(self, entry: BufferEntry) -> tuple[BankLayer, str]:
        module, tensor = entry.name.removeprefix(PEFT_PREFIX).rsplit(".lora_", 1)
        return self._layers[module], tensor[0]  # A, B, or m of magnitude_vector

    def _views(self, buffer: torch.Tensor) -> list[torch.Tensor]:
        slots = buffer.shape[0]
        return [buffer[:, e.start : e.stop].view(slots, *e.shape) for e in self.manifest]

    # ---- use ----------------------------------------------------------------------------------------------------

    def route(self, slots: torch.Tensor) -> None:
        """Send row i of the next batches to slot ``slots[i]``.

        Args:
            slots: int64 [rows].
        """
        slots = slots.to(self.device)
        self._measure()
        self.routing.set(slots, self._residual_of(slots))
        self.routing.shares = None if self._shares is None else self._shares[slots][:, None]

    def _measure(self) -> None:
        """With DoRA, let the layers know how long their slots' rows are, if the buffer has changed since: once for all
        passes of a training step, and once for all that follow a load."""
        if self.lora is None or not self.lora.dora or self._measured == self.flat._version:
            return
        with torch.autocast(self.device.type, enabled=False):
            for layer in self._layers.values():
                layer.measure()
        self._measured = self.flat._version

    @contextmanager
    def stacked(self) -> Iterator[None]:
        """Let the layers use all slots' factors side by side: for many passes of few tokens, with slots that stay.

        A row takes part in the other slots' products too, times zero, which costs little where few tokens are on their
        way and saves gathering factors row by row. It needs finite factors; others stay where they are.
        """
        lora = self.lora
        try:
            if lora and 1 < self.slots <= _WIDEST // lora.rank and is_finite(self.flat):
                for layer in self._layers.values():
                    layer.stack = layer.A.flatten(0, 1), layer.B.permute(1, 0, 2).flatten(1)
                own = torch.eye(self.slots, device=self.device).repeat_interleave(lora.rank, 1)
                self._shares = own * lora.scale
            yield
        finally:
            self._shares = self.routing.shares = None
            for layer in self._layers.values():
                layer.stack = None

    def _residual_of(self, slots: torch.Tensor) -> torch.Tensor | None:
        return None if self._has_residual is None else self._has_residual[slots][:, None, None]

    def trained(self, frozen: Factor | None = None) -> list[BufferEntry]:
        """The tensors that train while one factor, or none, is frozen; they lie side by side.

        Raises:
            ModelError: all parameters train, so there are no factors.
        """
        if frozen is None:
            return self.manifest
        if self.lora is None:
            raise ModelError(f"without an adapter there is no {frozen}", fix="Set model.trainable = 'adapter'.")
        return [entry for entry in self.manifest if entry.factor != frozen]

    def columns(self, frozen: Factor | None = None) -> slice:
        """Where they lie in a row of the buffer."""
        entries = self.trained(frozen)
        return slice(entries[0].start, entries[-1].stop)

    @contextmanager
    def trainable(self, frozen: Factor | None = None) -> Iterator[nn.Parameter]:
        """The columns that train as one parameter [K, P'] whose ``grad`` fills up during backward.

        Autograd adds in place to gradients that are there already, so giving each view a view of one gradient buffer
        gathers them all without a copy. Leaving the block detaches everything.
        """
        if self.grad.shape != self.flat.shape:
            self.grad = torch.empty_like(self.flat)
        self.grad.zero_()
        leaves = self._among(self._placed(), frozen)
        for leaf, gradient in zip(leaves, self._among(self._views(self.grad), frozen), strict=True):
            leaf.requires_grad_(True)
            leaf.grad = gradient[0] if self.lora is None else gradient
        parameter = nn.Parameter(self.flat[:, self.columns(frozen)])
        parameter.grad = self.grad[:, self.columns(frozen)]
        try:
            with repeatable(self.device, self._repeats), warnings.catch_warnings():
                # Autograd remarks that a strided gradient is slower to add to; here it is what saves the copies.
                warnings.filterwarnings("ignore", message="grad and param do not obey the gradient layout contract")
                yield parameter
        finally:
            self.routing.generators = None
            for leaf in leaves:
                leaf.requires_grad_(False)
                leaf.grad = None

    def _among(self, tensors: Sequence[torch.Tensor], frozen: Factor | None) -> list[torch.Tensor]:
        """Of tensors in the manifest's order, those that train."""
        chosen = set(self.trained(frozen))
        return [tensor for entry, tensor in zip(self.manifest, tensors, strict=True) if entry in chosen]

    @contextmanager
    def per_example(self, slots: torch.Tensor, frozen: Factor | None = None) -> Iterator[list[torch.Tensor]]:
        """Give each row of the next batch its own view of its slot; a copy is made only where slots are mixed.

        Args:
            slots: int64 [rows], the slot of each row.

        Yields:
            What trains, in the manifest's order, [rows, *shape] each; ``torch.autograd.grad`` of the rows' summed
            losses with respect to it is the gradient of every example apart (what DP-SGD clips and LESS compares).
        """
        if self.lora is None:
            raise ModelError("per-example gradients need adapters", fix="Set model.trainable = 'adapter'.")
        self._measure()
        before, rows, alone = self._placed(), len(slots), bool((slots == slots[0]).all())
        slots, norms = slots.to(self.device), {layer: layer.norm for layer in self._layers.values()}
        own = [
            (tensor[slots[0]].expand(rows, *tensor.shape[1:]) if alone else tensor[slots]).detach()
            for tensor in (tensor.detach() for tensor in before)
        ]
        self._place(own)
        for layer, norm in norms.items():
            layer.norm = None if norm is None else norm[slots]
        self.routing.set(torch.arange(rows, device=self.device), self._residual_of(slots))
        try:
            with repeatable(self.device, self._repeats):
                yield [tensor.requires_grad_() for tensor in self._among(own, frozen)]
        finally:
            self._place(before)
            for layer, norm in norms.items():
                layer.norm = norm

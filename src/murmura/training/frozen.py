"""The layers below the first adapter: what they compute for a record is computed once.

No adapter changes it, so training, scoring, attacks and measurements of all rounds can share it. It is computed record
by record, each alone: the rounding of a matrix product depends on how many rows it has, and what a record's states are
must not depend on its company, or on whether they were kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from murmura.training.adapter import fingerprint
from murmura.training.head import Head
from murmura.training.states import StateCache
from murmura.training.targets import first_adapted


class _Reached(Exception):
    """The first adapted layer was reached: what is above it is not wanted."""


class FrozenLayers:
    """The layers of a model below one of them.

    They are passed over by having each hand on what it was handed, and the first adapted layer take the states that
    are known. So whatever a model does beside its layers (embeddings, masks, positions) it does as always.

    Args:
        head: of the model, not adapted yet.
        layers: all its layers.
        first: index of the first one that has an adapter, above 0.
        cache: keeps the states.
    """

    def __init__(self, head: Head, layers: nn.ModuleList, first: int, cache: StateCache) -> None:
        self.first, self.cache = first, cache
        self._head = head
        self._made_by = self._digest(head.model, first) if cache.shared else ""
        self._given: torch.Tensor | None = None
        self._found: torch.Tensor | None = None
        self._is_reading = False
        self._hook = layers[first].register_forward_pre_hook(self._enter, with_kwargs=True)
        self._below: list[Any] = list(layers[:first])
        for layer in self._below:
            layer.forward = self._passing(layer.forward)

    def remove(self) -> None:
        """Leave the model as it was."""
        self._hook.remove()
        for layer in self._below:
            del layer.forward

    @torch.no_grad()
    def agrees(self) -> bool:
        """Whether the short way gives what the whole model gives, to the last bit."""
        ids = torch.tensor([[1, 2]], device=next(self._head.model.parameters()).device)
        mask = None if self._head.is_decoder else torch.ones_like(ids)
        whole = self._head.run(ids, mask)
        try:
            with self.known(ids, [2]):
                return torch.equal(self._head.run(ids, mask), whole)
        except (TypeError, ValueError, LookupError, AttributeError, RuntimeError):
            return False  # a layer is handed less than it needs, or tensors of another shape than it expects

    @contextmanager
    def known(self, ids: torch.Tensor, lengths: Sequence[int]) -> Iterator[None]:
        """Let the passes within begin at the first adapted layer.

        Args:
            ids: int64 [rows, longest], right-padded.
            lengths: tokens of each row.
        """
        self._given = self.states(ids, lengths)
        try:
            yield
        finally:
            self._given = None

    def states(self, ids: torch.Tensor, lengths: Sequence[int]) -> torch.Tensor:
        """What the first adapted layer gets of each row, [rows, longest, d] on their device; zeros for padding."""
        kind, device = self._kind(ids.device), ids.device
        records = [row[:length] for row, length in zip(ids.cpu().numpy(), lengths, strict=True)]
        found = [self.cache.get(record, kind, partial(self._read, record, device)) for record in records]
        states = found[0].new_zeros(*ids.shape, found[0].shape[-1])
        for row, own in zip(states, found, strict=True):
            row[: len(own)] = own
        return states.to(ids.device)

    @torch.no_grad()
    def _read(self, ids: np.ndarray, device: torch.device) -> torch.Tensor:
        """The states of one record, [n, d] on the CPU."""
        self._is_reading = True
        try:
            row = torch.from_numpy(ids)[None].to(device)
            self._head.run(row, None if self._head.is_decoder else torch.ones_like(row))
        except _Reached:
            assert self._found is not None
            return self._found[0].cpu()
        finally:
            self._is_reading, self._found = False, None
        raise AssertionError("a pass goes through all layers")

    def _kind(self, device: torch.device) -> str:
        """The precision that products have now; and where states are shared, what else they come of."""
        kind = "own"
        if torch.is_autocast_enabled(device.type):
            kind = str(torch.get_autocast_dtype(device.type)).removeprefix("torch.")
        return f"{kind}-{torch.get_num_threads()}-{self._made_by}" if self.cache.shared else kind

    @staticmethod
    def _digest(model: Any, first: int) -> str:
        """Of what states come of on one machine, beside tokens, precision and threads."""
        config = model.config
        said = [first, type(model).__name__, getattr(config, "_attn_implementation", None), config.to_json_string()]
        weights = fingerprint({k: v for k, v in model.state_dict().items() if isinstance(v, torch.Tensor)})
        device = next(model.parameters()).device
        return hashlib.sha256(f"{said} {device} {weights}".encode()).hexdigest()[:32]

    def _enter(self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Before the first adapted layer."""
        if self._is_reading:
            self._found = args[0] if args else kwargs["hidden_states"]
            raise _Reached
        if self._given is None:
            return None
        return ((self._given, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": self._given})

    def _passing(self, forward: Any) -> Any:
        """A layer's forward that hands on what it gets while the states above are known."""
        is_tuple = False

        def passing(*args: Any, **kwargs: Any) -> Any:
            nonlocal is_tuple
            if self._given is not None:
                handed = args[0] if args else kwargs["hidden_states"]
                return (handed,) if is_tuple else handed
            out = forward(*args, **kwargs)
            is_tuple = isinstance(out, tuple)
            return out

        return passing


def frozen_below(head: Head, names: Sequence[str], cache: StateCache) -> FrozenLayers | None:
    """What is below all of the named modules; None where that is nothing, or cannot be passed over.

    Some architectures hand more from layer to layer than hidden states (states of an earlier layer, keys and values
    that layers share); so the short way is tried once on two tokens, and used only where it gives what the model gives.

    Args:
        head: of the model, not adapted yet.
        names: of the modules that will carry adapters.
        cache: keeps the states; of no bytes, all is computed as always.
    """
    path, first = first_adapted(head.model, names)
    if not cache.limit or first == 0:
        return None
    below = FrozenLayers(head, head.model.get_submodule(path), first, cache)
    if below.agrees():
        return below
    below.remove()
    return None

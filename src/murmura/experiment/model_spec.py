"""The model of a run: what is known of it by its config and tokenizer, and its weights when they are first used."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from murmura import models
from murmura.errors import ModelError
from murmura.experiment.config import Experiment
from murmura.experiment.precision import device_name
from murmura.experiment.skeleton import OutOfReachError, config_and_tokenizer, skeleton_of
from murmura.experiment.start import adapter_to_begin_with
from murmura.models.declared import is_masked
from murmura.training.adapter import PEFT_PREFIX, State, shapes_of
from murmura.training.bank import Bank
from murmura.training.config import LoraSpec
from murmura.training.layer import in_out_features
from murmura.training.states import SHARED
from murmura.training.targets import first_adapted, target_names

if TYPE_CHECKING:
    import torch
    from torch import nn


@dataclass(frozen=True)
class ModelSpec:
    """A model that carries adapters.

    Args:
        experiment: whose model it is, with the device that it is on in this process.
        tokenizer: its own, which has a pad token.
        config: its own, as transformers reads it.
        masked: whether it fills in masks.
        parameters: of the base, tied ones counted once.
        state: the tensors of one slot, an adapter's or all, on the meta device.
        below: how many layers are below the first that has an adapter.
        base_bytes: what the frozen base takes in memory; 0 where all of it is trained, since the slot is the model.
        element_bytes: of one number of an activation.
        start: the adapter that training begins with; None for a fresh one.
    """

    experiment: Experiment
    tokenizer: Any
    config: Any
    masked: bool
    parameters: int
    state: State
    below: int
    base_bytes: int
    element_bytes: int
    start: State | None

    @property
    def trainable(self) -> int:
        """Parameters of one slot."""
        return sum(tensor.numel() for tensor in self.state.values())

    @property
    def device_name(self) -> str:
        """Where it runs, as torch names it, whether there is such a device here or not."""
        return device_name(self.experiment.model)

    @property
    def device(self) -> torch.device:
        """Where it runs.

        Raises:
            ModelError: there is no such device here.
        """
        return models.device_of(self.experiment.model.device)

    @cached_property
    def origin(self) -> tuple[str, str]:
        """Where it came from, and what an adapter's folder calls it."""
        return models.origin(self.experiment.model.name)

    @cached_property
    def bank(self) -> Bank:
        """The model itself: fetched if need be, and loaded, when it is first asked for.

        Raises:
            ModelError: it is unavailable, cannot be loaded, or cannot be adapted.
        """
        experiment, model = self.experiment, self.experiment.model
        options = model.load_dtype, model.device, model.quantization, self.tokenizer
        found = models.load(model.name, experiment.model_task, *options)
        lora = experiment.lora if model.trainable == "adapter" else None
        shared = os.environ.get(SHARED)
        return Bank(found.model, lora, experiment.run.cache_bytes, Path(shared) if shared else None)


def model_spec(experiment: Experiment, device: str | None = None, *, fetch: bool = True) -> ModelSpec:
    """What is known of the model of an experiment without its weights; it is built on torch's meta device.

    Args:
        device: where to; as the experiment says if not given.
        fetch: the whole model where config and tokenizer cannot be had without its weights.

    Raises:
        OutOfReachError: neither this machine nor the hub has config and tokenizer.
        ModelError: there is no such folder, no model of this kind in it, an adapter target that it lacks, or an adapter
            to begin with that does not fit.
    """
    import torch

    if device:
        model = experiment.model.model_copy(update={"device": device})
        experiment = experiment.model_copy(update={"model": model})
    model, lora = experiment.model, experiment.lora
    try:
        config, tokenizer = config_and_tokenizer(model.name)
    except OutOfReachError:
        if not fetch:
            raise
        models.resolve(model.name)
        config, tokenizer = config_and_tokenizer(model.name)
    masked = experiment.model_task == "either" and is_masked(config)
    skeleton = skeleton_of(model.name, config, "masked" if masked else "causal")
    dtype = getattr(torch, models.weights_dtype(model.load_dtype, device_name(model)))
    if model.trainable == "all":
        state, below, base_bytes = dict(skeleton.named_parameters()), 0, 0
    else:
        names = target_names(skeleton, lora.targets, lora.layers)
        state, below = _adapter(skeleton, names, lora), first_adapted(skeleton, names)[1]
        base_bytes = _base_bytes(skeleton, dtype, model.quantization)
    return ModelSpec(
        experiment=experiment,
        tokenizer=models.padded(tokenizer, model.name),
        config=config,
        masked=masked,
        parameters=sum(p.numel() for p in skeleton.parameters()),
        state=state,
        below=below,
        base_bytes=base_bytes,
        element_bytes=dtype.itemsize,
        start=_start(experiment, state),
    )


def _adapter(skeleton: nn.Module, names: list[str], lora: LoraSpec) -> State:
    """The tensors of an adapter, on the meta device."""
    import torch

    state = {}
    for name in names:
        wide_in, wide_out = in_out_features(skeleton.get_submodule(name), name)
        for part, shape in shapes_of(lora, wide_in, wide_out).items():
            state[f"{PEFT_PREFIX}{name}{part}"] = torch.empty(shape, device="meta")
    return state


def _start(experiment: Experiment, expected: State) -> State | None:
    """The adapter of ``model.adapter``.

    Args:
        expected: tensors of its shapes.
    """
    begun = adapter_to_begin_with(experiment)
    if begun is None:
        return None
    (state, spec), folder, lora = begun, experiment.model.adapter, experiment.lora
    fix = (
        "Give [lora] what the adapter was trained with (rank, alpha, targets, layers, dora), or another model.adapter."
    )
    odd = sorted(state.keys() ^ expected.keys())
    if odd:
        holder = "the adapter" if odd[0] in state else "an adapter of this model with these targets"
        raise ModelError(f"it does not fit: only {holder} has {odd[0]}", where=folder, fix=fix)
    for name, tensor in state.items():
        if tensor.shape != expected[name].shape:
            found, wanted = tuple(tensor.shape), tuple(expected[name].shape)
            raise ModelError(f"it does not fit: {name} is {found}, expected {wanted}", where=folder, fix=fix)
    if not math.isclose(spec.scale, lora.scale):
        what = f"its scale is {spec.scale:g}, that of [lora] is {lora.scale:g}"
        raise ModelError(what, where=folder, fix=fix)
    return state


def _base_bytes(model: nn.Module, dtype: torch.dtype, quantization: str | None) -> int:
    """Bytes of the frozen weights; bitsandbytes packs every linear layer but the output head."""
    whole = sum(p.numel() for p in model.parameters()) * dtype.itemsize
    if quantization is None:
        return whole
    head = model.get_output_embeddings()  # type: ignore[operator]
    packed = 0
    for module in model.modules():
        if type(module).__name__ in ("Linear", "Conv1D") and module is not head:
            packed += module.get_parameter("weight").numel()
    return int(whole - packed * (dtype.itemsize - (1.0 if quantization == "int8" else 0.5)))

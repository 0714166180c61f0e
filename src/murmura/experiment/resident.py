"""The resident model of a run as everybody needs to know it before its weights are used."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from murmura import models
from murmura.errors import ModelError
from murmura.experiment.config import Experiment
from murmura.experiment.outline import OutOfReachError, outline
from murmura.training.adapter import State, load_peft
from murmura.training.bank import Bank

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Resident:
    """A model that carries adapters.

    Args:
        tokenizer: its own.
        config: its own, as transformers reads it.
        masked: whether it fills in masks.
        source: where it came from.
        base: what an adapter's folder calls it.
        device: where it is, or will be.
        parameters: of the model, tied ones counted once.
        state: the tensors of one slot, an adapter's or all, on the meta device.
        start: the adapter that training begins with; None for a fresh one.
        bank: gives the model itself, always the same one.
    """

    tokenizer: Any
    config: Any
    masked: bool
    source: str
    base: str
    device: torch.device
    parameters: int
    state: State
    start: State | None
    bank: Callable[[], Bank]


def loaded(experiment: Experiment, device: str | None = None) -> Resident:
    """The model of an experiment.

    Args:
        device: where to; as the experiment says if not given.

    Raises:
        ModelError: it is unavailable, or cannot be adapted; or the adapter to begin with does not fit it.
    """
    import torch

    found, bank = _load(experiment, device)
    state = {entry.name: torch.empty(entry.shape, device="meta") for entry in bank.manifest}
    return Resident(
        found.tokenizer, bank.model.config, not bank.head.is_decoder, found.source, found.base, bank.device,
        parameters=sum(parameter.numel() for parameter in bank.model.parameters()),
        state=state,
        start=starting(experiment, state),
        bank=lambda: bank,
    )  # fmt: skip


def announced(experiment: Experiment, device: str | None = None) -> Resident:
    """The same for a run that may have no use for its weights: they are fetched and loaded when something asks for the
    bank, or fetched now where config and tokenizer cannot be had without them.

    Raises:
        ModelError: as of ``loaded``; what is wrong with weights alone is told when they are loaded.
    """
    model = experiment.model
    try:
        seen = outline(model, experiment.lora, experiment.model_task)
    except OutOfReachError:
        models.resolve(model.name)
        seen = outline(model, experiment.lora, experiment.model_task)
    source, base = models.origin(model.name)
    return Resident(
        models.padded(seen.tokenizer, model.name), seen.config, seen.masked, source, base,
        models.device_of(device or model.device), seen.parameters, seen.state, starting(experiment, seen.state),
        bank=cache(lambda: _load(experiment, device)[1]),
    )  # fmt: skip


def starting(experiment: Experiment, expected: State) -> State | None:
    """The adapter of ``model.adapter``.

    Args:
        expected: tensors of its shapes.

    Raises:
        ModelError: there is none, or it is not one of this model and ``[lora]``.
    """
    if experiment.model.adapter is None:
        return None
    folder, lora = Path(experiment.model.adapter), experiment.lora
    state, spec = load_peft(folder)
    fix = "Give [lora] the rank, alpha, targets and layers that the adapter was trained with, or another model.adapter."
    odd = sorted(state.keys() ^ expected.keys())
    if odd:
        holder = "the adapter" if odd[0] in state else "an adapter of this model with these targets"
        raise ModelError(f"it does not fit: only {holder} has {odd[0]}", where=str(folder), fix=fix)
    for name, tensor in state.items():
        if tensor.shape != expected[name].shape:
            found, wanted = tuple(tensor.shape), tuple(expected[name].shape)
            raise ModelError(f"it does not fit: {name} is {found}, expected {wanted}", where=str(folder), fix=fix)
    if not math.isclose(spec.scale, lora.scale):
        raise ModelError(
            f"its scale is {spec.scale:g}, that of [lora] is {lora.scale:g}", where=str(folder), fix=fix
        )  # fmt: skip
    return state


def _load(experiment: Experiment, device: str | None) -> tuple[models.Loaded, Bank]:
    model = experiment.model
    found = models.load(model.name, experiment.model_task, model.load_dtype, device or model.device, model.quantization)
    return found, Bank(
        found.model, experiment.lora if model.trainable == "adapter" else None, experiment.run.cache_bytes
    )

"""The resident model of a run as everybody needs to know it before its weights are used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from murmura import models
from murmura.experiment.config import Experiment
from murmura.experiment.outline import OutOfReachError, outline
from murmura.training.adapter import State
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
    bank: Callable[[], Bank]


def loaded(experiment: Experiment, device: str | None = None) -> Resident:
    """The model of an experiment.

    Args:
        device: where to; as the experiment says if not given.

    Raises:
        ModelError: it is unavailable, or cannot be adapted.
    """
    import torch

    found, bank = _load(experiment, device)
    return Resident(
        found.tokenizer, bank.model.config, not bank.head.is_decoder, found.source, found.base, bank.device,
        parameters=sum(parameter.numel() for parameter in bank.model.parameters()),
        state={entry.name: torch.empty(entry.shape, device="meta") for entry in bank.manifest},
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
        models.device_of(device or model.device), seen.parameters, seen.state,
        bank=cache(lambda: _load(experiment, device)[1]),
    )  # fmt: skip


def _load(experiment: Experiment, device: str | None) -> tuple[models.Loaded, Bank]:
    model = experiment.model
    found = models.load(model.name, experiment.model_task, model.load_dtype, device or model.device, model.quantization)
    return found, Bank(found.model, experiment.lora if model.trainable == "adapter" else None)

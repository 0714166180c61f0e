"""A model known by its config and tokenizer alone: what an adapter on it weighs, without its weights."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from murmura import models
from murmura.errors import ModelError
from murmura.experiment.config import ModelConfig
from murmura.experiment.precision import device_name
from murmura.models.quiet import line, quiet
from murmura.resources import KINDS, Kind
from murmura.training.adapter import PEFT_PREFIX, State
from murmura.training.config import LoraSpec
from murmura.training.layer import in_out_features
from murmura.training.targets import first_adapted, target_names

if TYPE_CHECKING:
    import torch
    from torch import nn


class OutOfReachError(ModelError):
    """The model seems to be named correctly, but is unavailable here and now."""


@dataclass(frozen=True)
class Outline:
    """Sizes of a model and of an adapter on it.

    Args:
        tokenizer: the model's own.
        config: the model's own, as transformers reads it.
        parameters: of the base, tied ones counted once.
        state: the tensors of one slot, an adapter's or all, on the meta device.
        base_bytes: what the frozen base takes in memory; 0 where all of it is trained, since the slot is the model.
        element_bytes: of one number of an activation.
        device: where it would run.
        masked: whether it fills in masks.
        below: how many layers are below the first that has an adapter.
    """

    tokenizer: Any
    config: Any
    parameters: int
    state: State
    base_bytes: int
    element_bytes: int
    device: str
    masked: bool
    below: int = 0

    @property
    def trainable(self) -> int:
        """Parameters of one slot."""
        return sum(tensor.numel() for tensor in self.state.values())


def outline(model: ModelConfig, lora: LoraSpec, wanted: Literal["causal", "either"]) -> Outline:
    """Build the model on torch's meta device, which has shapes and no numbers; fetches config and tokenizer at most.

    Raises:
        OutOfReachError: neither this machine nor the hub has config and tokenizer.
        ModelError: there is no such folder, no causal language model in it, or an adapter target that it lacks.
    """
    import torch

    config, tokenizer = config_and_tokenizer(model.name)
    masked = wanted == "either" and _is_masked(config)
    skeleton = skeleton_of(model.name, config, "masked" if masked else "causal")
    device = device_name(model)
    automatic = "bfloat16" if device.startswith("cuda") else "float32"
    dtype = getattr(torch, automatic if model.load_dtype == "auto" else model.load_dtype)
    parameters = sum(p.numel() for p in skeleton.parameters())
    if model.trainable == "all":
        return Outline(
            tokenizer, config, parameters, dict(skeleton.named_parameters()), 0, dtype.itemsize, device, masked
        )
    state, names = {}, target_names(skeleton, lora.targets, lora.layers)
    for name in names:
        wide_in, wide_out = in_out_features(skeleton.get_submodule(name), name)
        state[f"{PEFT_PREFIX}{name}.lora_A.weight"] = torch.empty(lora.rank, wide_in, device="meta")
        state[f"{PEFT_PREFIX}{name}.lora_B.weight"] = torch.empty(wide_out, lora.rank, device="meta")
    base = _base_bytes(skeleton, dtype, model.quantization)
    below = first_adapted(skeleton, names)[1]
    return Outline(tokenizer, config, parameters, state, base, dtype.itemsize, device, masked, below)


def config_and_tokenizer(name: str) -> tuple[Any, Any]:
    """As transformers reads them; of what is not on this machine, nothing else is fetched.

    Raises:
        OutOfReachError: neither this machine nor the hub has them.
        ModelError: there is no such folder, or they cannot be read.
    """
    from transformers import AutoConfig, AutoTokenizer

    alias = models.ALIASES.get(name)
    folder = Path(name).expanduser()
    is_folder = (folder / "config.json").is_file() or name.startswith((".", "~", os.sep))
    if is_folder:
        source = str(models.resolve(name))
    elif alias and (kept := models.cached(name)):
        source = str(kept)
    else:
        source = alias.hub if alias else name
    try:
        with quiet():
            return AutoConfig.from_pretrained(source), AutoTokenizer.from_pretrained(source)
    except (OSError, ValueError) as error:
        what = f"config and tokenizer of '{name}' are unavailable ({line(error).rstrip('.')})"
        if is_folder:
            raise ModelError(what) from error
        raise OutOfReachError(what, fix=f"'murmura models fetch {name}' gets the whole model.") from error


def skeleton_of(name: str, config: Any, kind: Kind) -> Any:
    """A model without numbers, on torch's meta device.

    Raises:
        ModelError: it is not of this kind.
    """
    import torch
    from transformers import AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM

    if kind == "causal" and _is_masked(config):  # transformers would build it, with attention to both sides
        declared = ", ".join(config.architectures)
        raise ModelError(f"is a masked language model ({declared}), not a causal one", where=name)
    auto: Any = {"encoder": AutoModel, "masked": AutoModelForMaskedLM, "causal": AutoModelForCausalLM}[kind]
    try:
        with torch.device("meta"), quiet():
            return auto.from_config(config)
    except (ValueError, RuntimeError) as error:
        raise ModelError(f"cannot be built as a {KINDS[kind]} ({line(error)})", where=name) from error


def _is_masked(config: Any) -> bool:
    return any(name.endswith("ForMaskedLM") for name in config.architectures or [])


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

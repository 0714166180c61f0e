"""From a name to a frozen model in memory, ready to carry adapters."""

from __future__ import annotations

import importlib.util
import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from murmura.errors import ModelError, MurmuraError
from murmura.models.declared import is_masked, named
from murmura.models.locate import locate
from murmura.models.quiet import line, quiet

if TYPE_CHECKING:
    from pathlib import Path

    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Task = Literal["causal", "masked"]
Wanted = Literal["causal", "masked", "either"]
Dtype = Literal["auto", "float32", "bfloat16", "float16"]
Quantization = Literal["int8", "4bit"]

DEVICES = "auto, cpu, cuda, cuda:1 ..., mps"
"""In words, what a device may be called. PyTorch knows more kinds, and most of them fail only when first used."""


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A frozen model in evaluation mode and its tokenizer; see `Located` for ``source`` and ``base``."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    name: str
    source: str
    base: str


def load(
    name: str,
    task: Wanted,
    dtype: Dtype = "auto",
    device: str = "auto",
    quantization: Quantization | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
) -> LoadedModel:
    """A frozen model to carry adapters, and its tokenizer.

    Evaluation mode, no parameter requires a gradient, attention by PyTorch's ``scaled_dot_product_attention`` where
    the architecture has it (the default of transformers). Where the tokenizer has no pad token, its end-of-sequence
    token becomes the pad token: tell padding from an end by the attention mask, never by the id. The padding side
    is left as it is.

    Args:
        name: See `resolve`.
        task: "causal" (predicts the next token), "masked" (fills in a mask), or whichever of the two the model is.
        dtype: See `weights_dtype`.
        device: "auto" is "cuda" where there is one, else "cpu"; or "cpu", "cuda", "cuda:1" ..., "mps".
        quantization: "int8" or "4bit" (NF4) with bitsandbytes; ``dtype`` is then what it computes in.
        tokenizer: Its own, where that is read already.

    Raises:
        ModelError: Unavailable, not loadable for this task, or lacking a part that is asked for.
    """
    import torch
    from transformers import AutoTokenizer

    place = device_of(device)
    if place.type == "cuda":
        # It plans anew for each length, while texts get longer token by token, and what it writes does not repeat.
        torch.backends.cuda.enable_cudnn_sdp(False)
    numbers, found = getattr(torch, weights_dtype(dtype, place.type)), locate(name)
    try:
        with quiet():
            kind_of_model = _task(found.folder, task)
            model = _weights(found.folder, kind_of_model, numbers, place, quantization)
            if tokenizer is None:
                tokenizer = AutoTokenizer.from_pretrained(found.folder)
    except MurmuraError:
        raise
    except Exception as error:  # whatever a library, or a file of somebody's own, does
        raise ModelError(f"cannot be loaded as a {task} language model: {line(error)}", where=name) from error
    padded(tokenizer, name)
    model.requires_grad_(False)
    return LoadedModel(model.eval(), tokenizer, name, found.source, found.base)


def weights_dtype(dtype: Dtype, device: str) -> str:
    """In which numbers weights are loaded: "auto" is bfloat16 on CUDA and float32 elsewhere.

    Args:
        device: As torch names it, with or without a number.
    """
    automatic = "bfloat16" if device.startswith("cuda") else "float32"
    return automatic if dtype == "auto" else dtype


def padded(tokenizer: PreTrainedTokenizerBase, name: str) -> PreTrainedTokenizerBase:
    """A model's tokenizer, which pads with its end-of-sequence token if it has no token for that.

    Raises:
        ModelError: it has neither.
    """
    if tokenizer.pad_token is None:
        if tokenizer.eos_token is None:
            raise ModelError("the tokenizer has neither a pad nor an end-of-sequence token", where=name)
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def _task(folder: Path, wanted: Wanted) -> Task:
    """What the model is to be loaded as, by what its config says it is."""
    from transformers import AutoConfig

    # transformers would load a masked model as a causal one too, with attention to both sides, and only warn.
    config = AutoConfig.from_pretrained(folder)
    masked = is_masked(config)
    if wanted == "causal" and masked:
        raise ValueError(f"it is a masked one ({named(config)})")
    if wanted == "either":
        return "masked" if masked else "causal"
    return wanted


def _weights(
    folder: Path, task: Task, dtype: torch.dtype, device: torch.device, quantization: Quantization | None
) -> PreTrainedModel:
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

    auto: Any = AutoModelForCausalLM if task == "causal" else AutoModelForMaskedLM
    options: dict[str, Any] = {"dtype": dtype, "device_map": {"": device}, "output_loading_info": True}
    if quantization is not None:
        options["quantization_config"] = quantized(quantization, dtype)
    model, report = auto.from_pretrained(folder, **options)
    if task == "masked" and not type(model).__name__.endswith("ForMaskedLM"):
        raise ValueError(f"it is a {type(model).__name__}, of which nothing here knows how it fills blanks")
    if report["missing_keys"]:
        raise ValueError(f"the checkpoint lacks {', '.join(sorted(report['missing_keys'])[:3])}")
    if quantization == "4bit":
        _leave_as_they_lie(model)
    return model


def _leave_as_they_lie(model: PreTrainedModel) -> None:
    """Keep bitsandbytes from rearranging weights of 4 bits for a processor with AVX-512 BF16, which it does in a first
    pass without gradients: through weights so arranged no gradient goes back, and nothing says so."""
    for module in model.modules():
        known: Any = module
        if hasattr(known, "support_avx512bf16_for_cpu"):
            known.support_avx512bf16_for_cpu = False


def quantized(quantization: Quantization, dtype: torch.dtype) -> object:
    """How transformers is asked for it: a ``BitsAndBytesConfig`` that computes in ``dtype``.

    Raises:
        ModelError: bitsandbytes is not installed.
    """
    if importlib.util.find_spec("bitsandbytes") is None:
        fix = "Install it: pip install 'murmura[quantization]'."
        raise ModelError(f"quantization '{quantization}' needs bitsandbytes", fix=fix)
    from transformers import BitsAndBytesConfig

    if quantization == "int8":
        # It computes in float16 whatever comes in, and says so at every product.
        logging.getLogger("bitsandbytes.autograd._functions").setLevel(logging.ERROR)
        return BitsAndBytesConfig(load_in_8bit=True)
    return BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype)


def is_device(name: str) -> bool:
    """Whether models run on devices of that kind; there may be none here."""
    return re.fullmatch(r"auto|(cpu|mps|cuda)(:\d{1,2})?", name) is not None


def device_of(name: str) -> torch.device:
    """The device that a user names; "auto" is "cuda" where there is one, else "cpu".

    Raises:
        ModelError: PyTorch knows none by this name, or sees none here.
    """
    import torch

    if not is_device(name):
        raise ModelError(f"'{name}' is no device that models run on", fix=f"Valid: {DEVICES}.")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    there = {
        "cpu": 1,
        "cuda": torch.cuda.device_count() if torch.cuda.is_available() else 0,
        "mps": int(torch.backends.mps.is_available()),
    }
    device = torch.device(name)
    if (device.index or 0) >= there[device.type]:
        number = "" if device.index is None else f" number {device.index}"
        what = f"device '{name}' is asked for, but PyTorch sees no {device.type.upper()} device{number}"
        raise ModelError(what, fix="Use device 'cpu'.")
    return device

"""SmolLM2 from a 4-bit GGUF file to a folder that transformers reads like any other."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from murmura.models.quiet import quiet
from murmura.progress import say


def dequantise(inside: Path, model: Path) -> None:
    """Turn SmolLM2's GGUF file into a float32 model folder.

    float32, because Q4_1 makes a weight as ``scale * q + minimum`` from half-precision numbers and a 4-bit q: the
    product alone has up to 15 significant bits, more than float16 (11) or bfloat16 (8) keep. In float32 the file
    holds what llama.cpp computes with; a loader that asks for bfloat16 rounds once, from the exact value.
    """
    import torch
    import transformers
    from safetensors.torch import save_file
    from tokenizers import pre_tokenizers

    say("Unpacking the 4-bit weights once; this takes about half a minute.")
    source = next(inside.glob("*.gguf"))
    options: dict[str, Any] = {"gguf_file": source.name, "dtype": torch.float32}
    if hasattr(transformers, "GgufConfig"):  # newer ones would keep the weights packed where they have a kernel
        options["quantization_config"] = transformers.GgufConfig(dequantize=True)
    with quiet():
        packed = transformers.AutoModelForCausalLM.from_pretrained(inside, **options)
        tokenizer = transformers.AutoTokenizer.from_pretrained(inside, gguf_file=source.name)
    # SmolLM2 cuts digits apart before anything else (the file says so: tokenizer.ggml.pre = smollm), but transformers
    # reads the cut of GPT-2. They differ on white space before a digit: a blank line and "1." is one token or two.
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    config = packed.config
    tokenizer.model_max_length = config.max_position_embeddings
    # save_pretrained refuses a model that came from GGUF, although these weights are plain float32.
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    config.architectures = [type(packed).__name__]
    tied = {"lm_head.weight"} if config.tie_word_embeddings else set()
    model.mkdir()
    weights = {name: tensor.contiguous() for name, tensor in packed.state_dict().items() if name not in tied}
    save_file(weights, model / "model.safetensors", metadata={"format": "pt"})
    config.save_pretrained(model)
    shutil.copymode(model / "config.json", model / "model.safetensors")  # save_file shuts out other users of a cache
    packed.generation_config.save_pretrained(model)
    tokenizer.save_pretrained(model)

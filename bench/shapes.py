"""Llama models of a given size with random weights, for speed alone: nothing is downloaded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path


@dataclass(frozen=True)
class Shape:
    layers: int
    hidden: int
    intermediate: int
    heads: int
    key_value_heads: int
    vocabulary: int


SHAPES = {
    "tiny": Shape(2, 64, 128, 4, 2, 512),
    "135m": Shape(30, 576, 1536, 9, 3, 49_152),
    "360m": Shape(32, 960, 2560, 15, 5, 49_152),
    "1b": Shape(16, 2048, 8192, 32, 8, 128_256),
    "3b": Shape(28, 3072, 8192, 24, 8, 128_256),
    "8b": Shape(32, 4096, 14_336, 32, 8, 128_256),
}


def shape(name: str, layers: int | None = None, hidden: int | None = None) -> Shape:
    """A named shape, deeper or wider if asked; what depends on the width goes with it, heads staying as wide."""
    found = SHAPES[name]
    if layers is not None:
        found = replace(found, layers=layers)
    if hidden is not None:
        each = found.hidden // found.heads
        groups = found.heads // found.key_value_heads
        if hidden % (each * groups):
            raise ValueError(f"--hidden must be a multiple of {each * groups} for the shape {name}")
        heads, wide = hidden // each, found.intermediate * hidden // found.hidden
        found = replace(found, hidden=hidden, intermediate=wide, heads=heads, key_value_heads=heads // groups)
    return found


def save_random(folder: Path, shape: Shape, dtype: str, device: str = "cpu") -> None:
    """Write a model folder with weights drawn from a fixed seed, on this device: a GPU takes seconds for billions."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.key_value_heads,
        tie_word_embeddings=True,
        pad_token_id=2,
    )  # the rest is LlamaConfig's own: 2,048 positions, texts begin with 1 and end with 2
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, dtype))
    try:
        with torch.device(device):
            model = LlamaForCausalLM(config)
    finally:
        torch.set_default_dtype(before)
    model.save_pretrained(folder)


def save_tokenizer(folder: Path, text: str = "") -> None:
    """Write a tokenizer into a model's folder; its ids are below 512.

    Args:
        text: words of it are tokens; else tokens are single bytes.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    special, alphabet = ["<pad>", "<s>", "</s>", "<mask>"], pre_tokenizers.ByteLevel.alphabet()
    core = Tokenizer(models.BPE())
    core.pre_tokenizer, core.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    options = {"special_tokens": special, "initial_alphabet": alphabet, "show_progress": False}
    core.train_from_iterator([text], trainers.BpeTrainer(vocab_size=512, **options))
    named = {"eos_token": "</s>", "pad_token": "<pad>", "mask_token": "<mask>"}
    PreTrainedTokenizerFast(tokenizer_object=core, **named).save_pretrained(folder)

"""Small models of many architectures, and prompts for them."""

import random
from functools import partial

import torch

from tests.conftest import make_gpt2, make_llama, sizes

LIMIT = 12
SLOTS = [0, 1, 2, 1, 0, 2]


def made(kind, tokenizer, **changes):
    """A small model of another architecture."""
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    ends = {"eos_token_id": tokenizer.eos_token_id, "bos_token_id": None}
    shape = sizes(tokenizer, layers=3, num_key_value_heads=2, head_dim=8, **ends)
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **shape | changes)).eval()


def phi3(tokenizer):
    """One whose positions are other ones beyond 32 tokens (LongRoPE)."""
    rope = {"rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [8.0] * 4}
    return made("phi3", tokenizer, rope_parameters=rope, original_max_position_embeddings=32)


FAMILIES = {
    "llama": (make_llama, ("q_proj", "v_proj", "down_proj")),
    "gpt2": (make_gpt2, ("c_attn", "c_fc")),
    "mistral": (partial(made, "mistral", sliding_window=7), ("q_proj", "v_proj")),  # all layers look at a window
    "gemma2": (partial(made, "gemma2", sliding_window=7, final_logit_softcapping=9.0), ("q_proj", "o_proj")),  # half do
    "qwen3": (partial(made, "qwen3"), ("k_proj", "up_proj")),
    "bloom": (partial(made, "bloom", n_layer=2, n_head=4), ("query_key_value",)),  # a bias in place of positions
    "mamba": (partial(made, "mamba", state_size=4), ("in_proj", "x_proj")),  # no keys and values at all
    "llama, dora": (make_llama, ("q_proj", "v_proj", "down_proj")),
    "gpt2, dora": (make_gpt2, ("c_attn", "c_fc")),
}


def prompts_of_different_lengths():
    rng = random.Random(0)
    return [[rng.randrange(10, 250) for _ in range(length)] for length in (3, 17, 8, 1, 11, 5)]


PROMPTS = prompts_of_different_lengths()

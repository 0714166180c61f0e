"""What a model's config says of it."""

from __future__ import annotations

from typing import Any


def is_masked(config: Any) -> bool:
    """Whether a model fills in masks. Some that do name no class in their config, or another one than that."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

    if any(name.endswith("ForMaskedLM") for name in config.architectures or []):
        return True
    # A model of such a kind looks to both sides unless it is a decoder, whichever class it is loaded as.
    made_for_it = MODEL_FOR_MASKED_LM_MAPPING_NAMES.get(config.model_type, "").endswith("ForMaskedLM")
    return made_for_it and not getattr(config, "is_decoder", False)


def named(config: Any) -> str:
    """The classes that it names, or its kind."""
    return ", ".join(config.architectures or [config.model_type])


def context_of(config: Any) -> int | None:
    """Most tokens of a text that a model was made for, or None where its config does not say.

    Positions by LongRoPE (Phi-3's models for 128k) are other ones for all texts of a pass as soon as one of them is
    longer than the original context. So that no text depends on its company, that is the most.
    """
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") == "longrope":
        return rope["original_max_position_embeddings"]
    return getattr(config, "max_position_embeddings", None) or getattr(config, "max_seq_len", None)  # MPT's word

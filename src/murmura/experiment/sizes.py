"""Sizes of a starter for PrE-Text that the machine at hand manages in minutes and not in days."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from typing import Any

from murmura.units import several

_PER_CORE = 128  # texts that a core writes, varies and trains on in a few minutes
_MOST = 50_000


def sizes(seeds: str) -> Mapping[str, Any]:
    """Options of the method with which a run takes some ten minutes on processor cores; none, and so the paper's, where
    there is a GPU.

    Args:
        seeds: where the texts come from that are expanded.
    """
    if _has_gpu():
        return {}
    written = {"method.samples": min(_MOST, _PER_CORE * _cores()), "method.sample_tokens": 48}
    if seeds != "voted":
        return written
    return {
        "method.rounds": 4,
        "method.population": min(2048, 32 * _cores()),
        "method.text_tokens": 40,
        "method.lookahead": 2,
        "method.variation": "continue",
        "method.variation_model": "smollm2-135m",
        **written,
    }


def machine() -> str:
    """What they are for, in words."""
    cores = _cores()
    return f"machine ({several(cores, 'core')}, no GPU)"


def _cores() -> int:
    return os.cpu_count() or 1


def _has_gpu() -> bool:
    """By NVIDIA's own tool: PyTorch would take seconds to say so."""
    return shutil.which("nvidia-smi") is not None

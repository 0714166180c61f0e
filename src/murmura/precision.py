"""In which numbers matrices are multiplied: bfloat16 where the device does that natively, forward and backward.

That is a matter of what a device has and never of a stopwatch, so that a machine always gives the same numbers. On a
processor without instructions for it PyTorch multiplies bfloat16 by code that was not made to be fast: with AVX2 alone
4 to 8 times as slowly as float32 forward, and 30 to 40 times backward.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import torch

Precision = Literal["auto", "float32", "bfloat16"]
DecodeDtype = Literal["auto", "model", "bfloat16"]

_AMPERE = (8, 0)
_INSTRUCTIONS = {"amx_bf16", "avx512_bf16", "bf16"}
"""AMX, AVX-512 BF16 and Arm's, as Linux calls them; each has products that both passes are made of."""
_CAPS = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
_CAPPED = {"sse41", "avx", "avx2", "avx2_vnni", "avx2_vnni_2", "avx512_core", "avx512_core_vnni"}
"""The most that oneDNN, which multiplies for PyTorch, may use: those of its levels that lack such instructions."""
_ROWS, _WIDTH = 32, 576  # of the product that is tried


def with_float64(device: torch.device) -> torch.device:
    """The device, or the processor where that has no float64, as Apple's GPUs have none."""
    import torch

    return torch.device("cpu") if device.type == "mps" else device


def in_bfloat16(asked: str, device: torch.device | str) -> bool:
    """Whether an option of this value has a device multiply in bfloat16."""
    return asked == "bfloat16" or (asked == "auto" and is_native(str(device)))


def products(model: Any, device: torch.device, asked: Precision) -> torch.autocast:
    """A context in which a model of transformers multiplies as asked; one in bfloat16 does so by itself."""
    import torch

    enabled = in_bfloat16(asked, device) and model.dtype != torch.bfloat16
    return torch.autocast(device.type, torch.bfloat16, enabled=enabled)


def is_native(device: str) -> bool:
    """Whether a device multiplies bfloat16 natively. A GPU that is not here is taken for one of today's.

    Args:
        device: as torch names it.
    """
    import torch

    kind, _, index = device.partition(":")
    if kind == "cuda":
        there = torch.cuda.is_available() and int(index or 0) < torch.cuda.device_count()
        return not there or gpu_multiplies(torch.cuda.get_device_capability(device))
    if kind != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported()) and processor_multiplies(_flags(), os.environ)


def gpu_multiplies(capability: tuple[int, int]) -> bool:
    """The same of a GPU of this compute capability: from Ampere on."""
    return capability >= _AMPERE


def processor_multiplies(flags: Collection[str], environment: Mapping[str, str]) -> bool:
    """The same of a processor.

    Args:
        flags: what it has, as Linux names it.
        environment: variables, of which some have libraries do with less than there is.
    """
    cap = next((environment[name].lower() for name in _CAPS if environment.get(name)), "")
    if cap in _CAPPED or environment.get("ATEN_CPU_CAPABILITY") in ("default", "avx2"):
        return False
    return not _INSTRUCTIONS.isdisjoint(flags)


@cache
def _flags() -> frozenset[str]:
    """Of this machine's first core; nothing where there is no Linux to tell them."""
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
            told = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    except OSError:
        told = ""
    return frozenset(told.partition(":")[2].split())


def slowdown(device: torch.device) -> float:
    """How many times as long as in float32 a small product takes in bfloat16, forward and backward, by a probe of some
    50 ms. It decides nothing; it is there to be told."""
    import torch

    times = [_seconds(device, dtype, repeats) for dtype, repeats in ((torch.float32, 8), (torch.bfloat16, 2))]
    return times[1] / times[0]


def _seconds(device: torch.device, dtype: torch.dtype, repeats: int) -> float:
    """Of the fastest of so many tries."""
    import torch

    weight = torch.ones(_WIDTH, _WIDTH, dtype=dtype, device=device)
    x = torch.ones(_ROWS, _WIDTH, dtype=dtype, device=device)
    took = []
    for _ in range(repeats):
        begun = time.perf_counter()
        found = (x @ weight.t()) @ weight
        found[0, 0].item()  # a GPU has finished
        took.append(time.perf_counter() - begun)
    return min(took)

"""What a run runs on: the machine, the versions, the memory."""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import resource
import sys
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from murmura.runs.schema import Environment, OtherModel

if TYPE_CHECKING:
    import torch

_PACKAGES = ("murmura", "torch", "transformers", "peft", "safetensors", "tokenizers", "numpy", "pydantic")


def environment(
    device: torch.device,
    model: str,
    parameters: int,
    trained: int,
    precision: tuple[str, str],
    resources: tuple[OtherModel, ...] = (),
    trained_at: Literal["sites", "server"] = "sites",
    adapter: str | None = None,
) -> Environment:
    """This machine, now; the rest is as ``Environment`` tells it, ``precision`` that of training and of writing."""
    import torch

    packages = _packages()
    machine = torch.cuda.get_device_name(device) if device.type == "cuda" else _processor()
    return Environment(
        murmura=packages.get("murmura"),
        python=platform.python_version(),
        torch=str(torch.__version__),
        platform=platform.platform(),
        cpu_count=os.cpu_count(),
        device=f"{device.type}: {machine}",
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        model=model,
        parameters=parameters,
        trained=trained,
        packages=packages,
        resources=resources,
        trained_at=trained_at,
        adapter=adapter,
        training_precision=precision[0],
        writing_precision=precision[1],
    )


def peak_memory(device: torch.device, *, mapped: bool = True) -> int:
    """Largest memory so far in bytes: on the GPU where the model is there, else of this process.

    Args:
        mapped: whether what is mapped from files counts, of this process (on Linux). Weights that are loaded as they
            lie in their file are, and libraries: all processes of a machine have one copy of these between them.
    """
    if device.type == "cuda":
        import torch

        return int(torch.cuda.max_memory_allocated(device))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else peak * 1024) - (0 if mapped else _mapped())


def return_freed_memory() -> None:
    """Return to the system what this process has freed. glibc keeps freed pages that lie between others, and as texts
    of other lengths need other sizes, that would grow from round to round. Other systems' allocators need no telling.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _mapped() -> int:
    """Bytes of files, and of what processes share, that are in this process's memory now; 0 where the system does not
    tell. A file that lies in memory itself (tmpfs) counts as shared."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    lines = (line for line in status.splitlines() if line.startswith(("RssFile:", "RssShmem:")))
    return 1024 * sum(int(line.split()[1]) for line in lines)


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


@functools.cache
def _packages() -> dict[str, str]:
    """Versions of what is installed, which takes a while to look up."""
    found = {}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found

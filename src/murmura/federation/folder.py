"""The run folder: what a run leaves behind, and the checks before it starts."""

from __future__ import annotations

import json
import os
import platform
import resource
import shutil
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from murmura.errors import CheckpointError

_PACKAGES = ("murmura", "torch", "transformers", "peft", "safetensors", "tokenizers", "numpy", "pydantic")
_MARGIN = 64 * 2**20  # bytes that metrics, report and logs may take


class RunFolder:
    """Paths of a run and how they are written: a file is replaced whole or not at all."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoint = path / "checkpoint"
        self.adapter = path / "adapter"

    @property
    def holds_run(self) -> bool:
        return (self.path / "config.toml").exists()

    def require_new(self) -> None:
        """Check, before anything is loaded, that no run is there.

        Raises:
            CheckpointError: one is.
        """
        if self.holds_run:
            raise CheckpointError(
                "this folder holds a run already", where=str(self.path),
                fix="Use --resume to go on with it, --overwrite to start over, or another run.folder.",
            )  # fmt: skip

    def prepare(self, *, resume: bool, overwrite: bool, needed: int) -> None:
        """Make the folder ready before any work.

        Args:
            resume: go on in a folder that holds a run; nothing in it is removed.
            overwrite: remove what is there, unless it is to be gone on with.
            needed: bytes that checkpoints and adapters will take.

        Raises:
            CheckpointError: the folder holds a run already, cannot be written, or the disk is too full.
        """
        if not resume and not overwrite:
            self.require_new()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            probe = self.path / ".writable"
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as error:
            raise CheckpointError(
                f"the run folder cannot be written ({error.strerror})", where=str(self.path), fix="Change run.folder."
            ) from error
        free = shutil.disk_usage(self.path).free
        if free < needed + _MARGIN:
            raise CheckpointError(
                f"the disk has {free / 2**20:.0f} MiB left, this run needs {(needed + _MARGIN) / 2**20:.0f} MiB",
                where=str(self.path), fix="Make room or change run.folder.",
            )  # fmt: skip
        if overwrite and not resume and self.holds_run:
            for item in self.path.iterdir():
                shutil.rmtree(item) if item.is_dir() else item.unlink()
        self.checkpoint.mkdir(exist_ok=True)

    def write_text(self, name: str, text: str) -> None:
        """Write a file so that readers see the old one or the new one."""
        partial = self.path / f".{name}.partial"
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, self.path / name)

    def write_json(self, name: str, value: Any) -> None:
        self.write_text(name, json.dumps(value, indent=1) + "\n")

    def write_metrics(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self.write_text("metrics.jsonl", "".join(json.dumps(row) + "\n" for row in rows))

    def write_disclosure(self, table: Sequence[Mapping[str, Any]]) -> None:
        self.write_json("disclosure.json", table)

    def write_environment(self, device: torch.device, parameters: int, trained: int) -> None:
        """Write down the machine, the versions, and how many of the model's parameters train."""
        packages = {}
        for name in _PACKAGES:
            try:
                packages[name] = version(name)
            except PackageNotFoundError:
                continue
        machine = torch.cuda.get_device_name(device) if device.type == "cuda" else _processor()
        self.write_json(
            "environment.json",
            {
                "murmura": packages.get("murmura"), "python": platform.python_version(), "torch": torch.__version__,
                "platform": platform.platform(), "cpu_count": os.cpu_count(), "device": f"{device.type}: {machine}",
                "started": datetime.now(UTC).isoformat(timespec="seconds"), "parameters": parameters,
                "trained": trained, "packages": packages,
            },
        )  # fmt: skip


def peak_memory(device: torch.device) -> int:
    """Largest memory so far in bytes: on the GPU where the model is there, else of this process."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else peak * 1024)


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()

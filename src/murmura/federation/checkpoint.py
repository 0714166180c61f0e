"""Everything a run needs to go on as if it had never stopped, written in one rename.

A checkpoint is a folder ``round-0003`` with ``server.safetensors`` (the server's payload), ``sites/NAME.safetensors``
(each site's store) and ``run.json``. It is written under another name and renamed when complete, so a run killed at any
moment finds the last whole one.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from murmura.errors import CheckpointError, RunError
from murmura.federation.messages import Payload, decode, encode


@dataclass(frozen=True)
class Checkpoint:
    """State after ``round`` rounds: the server's payload, the sites' stores, and the run's JSON (metrics, ledger)."""

    round: int
    server: Payload
    stores: dict[str, Payload]
    run: dict[str, Any]


def save(folder: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint and remove older ones.

    Raises:
        CheckpointError: the disk is full or the folder cannot be written; the checkpoint before is intact.
    """
    final = folder / f"round-{checkpoint.round:04d}"
    partial = folder / f".partial-{checkpoint.round:04d}"
    try:
        shutil.rmtree(partial, ignore_errors=True)
        (partial / "sites").mkdir(parents=True)
        _write(partial / "server.safetensors", encode(checkpoint.server))
        for name, store in checkpoint.stores.items():
            _write(partial / "sites" / _file(name), encode(store))
        _write(partial / "run.json", json.dumps({"stores": sorted(checkpoint.stores), **checkpoint.run}).encode())
        _sync(partial / "sites")
        _sync(partial)
        shutil.rmtree(final, ignore_errors=True)
        partial.rename(final)
        _sync(folder)
    except OSError as error:
        raise CheckpointError(
            f"the checkpoint could not be written ({error.strerror})", where=str(folder),
            fix="Make room or mend the rights, then start again with --resume; the checkpoint before is intact.",
        ) from error  # fmt: skip
    for old in folder.glob("round-*"):
        if old != final:
            shutil.rmtree(old, ignore_errors=True)


def latest(folder: Path) -> Checkpoint | None:
    """The last whole checkpoint, or None where there is none.

    Raises:
        CheckpointError: it is damaged.
    """
    found = {int(name[1]): path for path in folder.glob("round-*") if (name := re.fullmatch(r"round-(\d+)", path.name))}
    if not found:
        return None
    round, path = max(found.items())
    try:
        run = json.loads((path / "run.json").read_text())
        names = run.pop("stores")  # a store that is missing is an error, not an empty store
        stores = {name: decode((path / "sites" / _file(name)).read_bytes()) for name in names}
        return Checkpoint(round, decode((path / "server.safetensors").read_bytes()), stores, run)
    except (OSError, ValueError, KeyError, RunError) as error:
        raise CheckpointError(f"the checkpoint cannot be read ({error})", where=str(path), fix="Start over.") from error


def _file(site: str) -> str:
    return f"{quote(site, safe='')}.safetensors"


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

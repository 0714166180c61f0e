"""Everything the server needs to go on as if a run had never stopped, written in one rename.

A checkpoint is a folder ``round-0003`` with ``server.safetensors`` (the server's payload), ``run.json`` and
``SHA256SUMS``, which ``sha256sum -c`` understands. It is written under another name and renamed when complete, so a run
killed at any moment finds the last whole one. Two are kept: where the newest turns out to be damaged, the run goes on
from the one before. Nobody but their owner may read them.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from murmura import atomic
from murmura.errors import CheckpointError, RunError, explaining
from murmura.federation.wire import messages
from murmura.federation.wire.messages import Payload, decode
from murmura.runs import jsontext

_KEPT = 2
_SERVER, _RUN, _SUMS = "server.safetensors", "run.json", "SHA256SUMS"


@dataclass(frozen=True)
class Checkpoint:
    """State after ``round`` rounds.

    Args:
        round: the last one that was finished.
        server: the server's payload.
        run: JSON: metrics, ledger, and what the run was started with.
        damaged: of a checkpoint that was read, why newer ones were passed over, in words.
    """

    round: int
    server: Payload
    run: dict[str, Any]
    damaged: tuple[str, ...] = ()


def save(folder: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint, and remove all but it and the one before.

    Raises:
        CheckpointError: the disk is full or the folder cannot be written; the checkpoints before are intact.
    """
    final = folder / f"round-{checkpoint.round:04d}"
    partial = folder / f".partial-{checkpoint.round:04d}"
    fix = "then use --resume; the checkpoint before is intact"
    with explaining("the checkpoint could not be written", folder, fix):
        shutil.rmtree(partial, ignore_errors=True)
        atomic.make_private(partial)
        _write(partial, checkpoint)
        shutil.rmtree(final, ignore_errors=True)  # a damaged one
        partial.rename(final)
        atomic.sync(folder)
    prune(folder)


def _write(folder: Path, checkpoint: Checkpoint) -> None:
    messages.write(checkpoint.server, folder / _SERVER)
    atomic.sync(folder / _SERVER)
    atomic.write(folder / _RUN, jsontext.dumps(checkpoint.run).encode(), private=True)
    sums = "".join(f"{_sha256(folder / name)}  {name}\n" for name in (_SERVER, _RUN))
    atomic.write(folder / _SUMS, sums.encode(), private=True)
    atomic.sync(folder)


def _sha256(path: Path) -> str:
    """Of what has been written, as it is read again: it finds what is damaged from then on."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def prune(folder: Path, refused: Collection[int] = ()) -> None:
    """Remove the checkpoints of these rounds, and of the others all but the last and the one before."""
    found = _found(folder)
    others = [path for round, path in found if round not in refused]
    for old in [*(path for round, path in found if round in refused), *others[_KEPT:]]:
        shutil.rmtree(old, ignore_errors=True)


def last_saved(folder: Path) -> int | None:
    """The last round that is saved, whole or not; None where none is."""
    return next((round for round, _ in _found(folder)), None)


def latest(folder: Path, refused: Mapping[int, str] | None = None) -> Checkpoint | None:
    """The last checkpoint that is whole, or None where there never was one.

    Args:
        refused: rounds that are to be passed over as damaged ones are, and why.

    Raises:
        CheckpointError: all are damaged or refused, or may not be read.
    """
    damaged: list[str] = []
    for round, path in _found(folder):
        if refused and round in refused:
            damaged.append(refused[round])
            continue
        try:
            return _read(path, round, tuple(damaged))
        except PermissionError as error:
            what = f"the checkpoint cannot be read ({error.strerror})"
            fix = "Resume as the user who started the run, or mend the rights."
            raise CheckpointError(what, where=str(path), fix=fix) from error
        except (OSError, ValueError, KeyError, RecursionError, RunError) as error:
            damaged.append(f"the checkpoint of round {round} is damaged ({_why(error)})")
    if damaged:
        rounds = " nor ".join(str(round) for round, _ in _found(folder))
        what = f"the run cannot go back to round {rounds}: {'; '.join(dict.fromkeys(damaged))}"
        fix = "Bring one back from a copy, or start over with --overwrite."
        raise CheckpointError(what, where=str(folder), fix=fix)
    return None


def _read(path: Path, round: int, damaged: tuple[str, ...]) -> Checkpoint:
    lines = (path / _SUMS).read_text(encoding="utf-8").split("\n")
    sums = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}

    def read(name: str) -> bytes:
        data = (path / name).read_bytes()
        if hashlib.sha256(data).hexdigest() != sums.get(name):
            raise ValueError(f"{name} is not what was written")
        return data

    return Checkpoint(round, decode(read(_SERVER)), jsontext.loads(read(_RUN).decode()), damaged)


def _found(folder: Path) -> list[tuple[int, Path]]:
    """Rounds and folders of the checkpoints, the newest first."""
    named = ((re.fullmatch(r"round-(\d+)", path.name), path) for path in folder.glob("round-*"))
    return sorted(((int(name[1]), path) for name, path in named if name), reverse=True)


def _why(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return f"{Path(error.filename).name} is missing"
    return error.what if isinstance(error, RunError) else str(error)

"""Hidden states of records, kept so that none is computed twice: in memory up to a bound, beyond it on disk.

Runs of one comparison read the same records with the same layers. So they may share a folder, in which all states are.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch

from murmura import atomic
from murmura.runs.schema import STATES

_SPARE = 2**30  # bytes of the disk that are left to others
SHARED = "MURMURA_STATES"
"""The environment variable that names a folder for states of several runs. It is nobody's option: whoever sets it
removes the folder when those runs have ended, as ``murmura compare`` does."""


class StateCache:
    """Hidden states by the tokens that they are of.

    What is in it never decides a result: a state that is missing is computed in the same way, to the bit.

    Args:
        limit: most bytes in memory; those used least recently make room. 0: none are kept.
        shared: a folder for the states of several runs, in which all are kept; one's own for whoever started them.
    """

    def __init__(self, limit: int, shared: Path | None = None) -> None:
        self.limit, self.shared = limit, shared
        self.nbytes = 0
        self._held: OrderedDict[bytes, torch.Tensor] = OrderedDict()
        self._places: dict[bytes, Path] = {}

    def spill(self, sequences: Iterable[Sequence[int]], folder: Path) -> None:
        """Name the place on disk for states of these tokens that memory has no room for; others are not kept there.

        Args:
            sequences: token ids of each record.
            folder: its owner's; states are in ``STATES`` in it, until whoever made it removes that.
        """
        self._places |= {_digest(np.asarray(ids, np.int64)): folder / STATES for ids in sequences}

    def get(self, ids: np.ndarray, kind: str, compute: Callable[[], torch.Tensor]) -> torch.Tensor:
        """The states of one record, on the CPU.

        Args:
            ids: its tokens, int64 [n].
            kind: what else decides them, such as the precision; in a shared folder, all that does.
            compute: makes them.
        """
        owner = _digest(ids)
        key = owner + kind.encode()
        if key in self._held:
            self._held.move_to_end(key)
            return self._held[key]
        file = self._file(owner, kind)
        states = _read(file) if file else None
        if states is None:
            states = compute()
            if file and self.shared:
                _write(file, states)
        self._hold(key, states)
        return states

    def _hold(self, key: bytes, states: torch.Tensor) -> None:
        self._held[key] = states
        self.nbytes += states.nbytes
        while self.nbytes > self.limit:
            old, dropped = self._held.popitem(last=False)
            self.nbytes -= dropped.nbytes
            file = self._file(old[:_DIGEST], old[_DIGEST:].decode())
            if self.limit and file and not file.exists():
                _write(file, dropped)

    def _file(self, owner: bytes, kind: str) -> Path | None:
        place = self.shared or self._places.get(owner)
        return None if place is None else place / f"{owner.hex()}-{kind}.safetensors"


_DIGEST = 16  # bytes


def _digest(ids: np.ndarray) -> bytes:
    return hashlib.blake2b(ids.tobytes(), digest_size=_DIGEST).digest()


def _read(file: Path) -> torch.Tensor | None:
    """What is in a file; None where there is none, or nothing of use."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        return load(file.read_bytes())["states"]
    except (OSError, SafetensorError, KeyError):
        return None


def _write(file: Path, states: torch.Tensor) -> None:
    """Write states; where the disk is full they are not, and are computed anew when they are needed."""
    from safetensors.torch import save

    with suppress(OSError):
        for place in (file.parent.parent, file.parent):
            atomic.make_private(place)
        if shutil.disk_usage(file.parent).free < states.nbytes + _SPARE:
            return
        part = file.with_suffix(f".{os.getpid()}.part")
        part.write_bytes(save({"states": states}))
        part.replace(file)

"""Hidden states of records, kept so that none is computed twice: in memory up to a bound, beyond it on disk.

Runs of one comparison read the same records with the same layers. So they may share a folder for the states of these.
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
from murmura.runs.names import STATES

_SPARE = 2**30  # bytes of the disk that are left to others
ON_DISK = 8
"""How many times as much as is kept in memory a shared folder may hold."""
SHARED = "MURMURA_STATES"
"""The environment variable that names a folder for states of several runs. It is nobody's option: whoever sets it
removes the folder when those runs have ended, as ``murmura compare`` does."""


class StateCache:
    """Hidden states by the tokens that they are of.

    What is in it never decides a result: a state that is missing is computed in the same way, to the bit.

    Args:
        limit: most bytes in memory; those used least recently make room. 0: none are kept.
        shared: a folder for states that several runs read, one's own for whoever started them. It comes to ``ON_DISK``
            limits at most, and to a limit more for every further process that writes into it at the same time.
    """

    def __init__(self, limit: int, shared: Path | None = None) -> None:
        self.limit, self.shared = limit, shared
        self.nbytes = 0
        self._held: OrderedDict[bytes, torch.Tensor] = OrderedDict()
        self._places: dict[bytes, Path] = {}
        self._common: dict[bytes, Path] = {}
        self._granted, self._is_full = 0, False

    def spill(self, sequences: Iterable[Sequence[int]], folder: Path, *, common: bool = False) -> None:
        """Name the place on disk for states of these tokens that memory has no room for; others are not kept there.

        Args:
            sequences: token ids of each record.
            folder: its owner's; states are in ``STATES`` in it, until whoever made it removes that.
            common: other runs read them too: they go into the shared folder, if there is one and it has room for them.
        """
        owners = {_digest(np.asarray(ids, np.int64)) for ids in sequences}
        self._places |= dict.fromkeys(owners, folder / STATES)
        if common and self.shared:
            new = owners - self._common.keys()
            self._common |= dict.fromkeys(new, self.shared)
            for key, states in self._held.items():
                if key[:_DIGEST] in new:
                    self._share(key, states)

    def get(self, ids: np.ndarray, kind: str, compute: Callable[[], torch.Tensor]) -> torch.Tensor:
        """The states of one record, on the CPU.

        Args:
            ids: its tokens, int64 [n].
            kind: what else decides them, such as the precision; in a shared folder, all that does.
            compute: makes them.
        """
        key = _digest(ids) + kind.encode()
        if key in self._held:
            self._held.move_to_end(key)
            return self._held[key]
        states = next((found for file in self._files(key) if (found := _read(file)) is not None), None)
        if states is None:
            states = compute()
            self._share(key, states)
        self._hold(key, states)
        return states

    def _hold(self, key: bytes, states: torch.Tensor) -> None:
        self._held[key] = states
        self.nbytes += states.nbytes
        while self.nbytes > self.limit:
            old, dropped = self._held.popitem(last=False)
            self.nbytes -= dropped.nbytes
            files = self._files(old)
            if self.limit and files and not any(file.exists() for file in files):
                _write(files[-1], dropped)

    def _files(self, key: bytes) -> list[Path]:
        """Where these states may be on disk: in the shared folder, and in their owner's."""
        owner, kind = key[:_DIGEST], key[_DIGEST:].decode()
        places = [known[owner] for known in (self._common, self._places) if owner in known]
        return [place / f"{owner.hex()}-{kind}.safetensors" for place in places]

    # ---- what several runs share -------------------------------------------------------------------------------------

    def _share(self, key: bytes, states: torch.Tensor) -> None:
        """Let other runs have states that they read too."""
        if self.limit and key[:_DIGEST] in self._common and self._has_room(states.nbytes):
            _write(self._files(key)[0], states)

    def _has_room(self, nbytes: int) -> bool:
        """Whether the shared folder may take so much more. Other runs write into it too, so it is looked through again
        whenever as much was written as memory holds."""
        if nbytes > self._granted and not self._is_full:
            assert self.shared is not None
            self._granted = min(self.limit, ON_DISK * self.limit - _size(self.shared))
            self._is_full = nbytes > self._granted
        self._granted -= nbytes
        return not self._is_full


_DIGEST = 16  # bytes


def _digest(ids: np.ndarray) -> bytes:
    return hashlib.blake2b(ids.tobytes(), digest_size=_DIGEST).digest()


def _size(folder: Path) -> int:
    """Bytes of the files in it."""
    found = 0
    for file in folder.glob("*"):
        with suppress(OSError):  # it has its final name by now
            found += file.stat().st_size
    return found


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

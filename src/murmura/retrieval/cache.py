"""Vectors of public texts, kept on disk so that none is computed twice, whoever needs it and whatever was killed.

Two files for each encoder, which are only appended to: ``index`` has a text's hash and a checksum for each row of
``vectors``. A row that does not match its checksum, be it torn, damaged or of another encoder, is computed again.
Private texts have no place here: their hashes would tell who can read the cache what a site holds.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
from filelock import FileLock

from murmura.data.texts import text_hash
from murmura.errors import ModelError, explaining
from murmura.models.wheel import cache_root
from murmura.progress import bar, say
from murmura.retrieval.encoder import Encoder

INDEX, VECTORS, LOCK = "index", "vectors", ".lock"
_ROW = np.dtype([("hash", "S32"), ("check", "<u4")])
_AT_ONCE = 16_384  # texts in memory at a time

Vectors = npt.NDArray[np.float32]
Hashes = npt.NDArray[np.uint8]


class Cached:
    """An encoder of public texts that remembers. Its vectors are the encoder's own.

    Args:
        encoder: Of the texts.
        root: Folder to keep vectors in; our cache ($MURMURA_CACHE, else ~/.cache/murmura) if not given.
    """

    def __init__(self, encoder: Encoder, root: Path | None = None) -> None:
        self.encoder, self._root = encoder, root

    @cached_property
    def folder(self) -> Path:
        """Where the vectors of this encoder are; loads it."""
        return (self._root or cache_root() / "vectors") / self.encoder.fingerprint

    def embed(self, texts: Sequence[str]) -> Vectors:
        """As ``Encoder.embed``.

        Raises:
            ModelError: The encoder cannot be found or fetched, or the cache cannot be written.
        """
        hashes = np.frombuffer(b"".join(map(text_hash, texts)), np.uint8).reshape(len(texts), 32)
        _, first, again = np.unique(_comparable(hashes), return_index=True, return_inverse=True)
        vectors = np.empty((len(first), self.encoder.dimension), np.float32)
        self.fill(vectors, hashes[first], lambda rows: [texts[first[row]] for row in rows])
        return vectors[again]

    def fill(self, vectors: Vectors, hashes: Hashes, texts: Callable[[npt.NDArray[np.int64]], list[str]]) -> None:
        """Set each row of an array, which may be memory-mapped, to the vector of a text.

        Args:
            vectors: float32 [n, d].
            hashes: uint8 [n, 32], of the texts, all different.
            texts: Gives the texts of some rows.

        Raises:
            ModelError: As ``embed``.
        """
        fix = "or set MURMURA_CACHE to a writable folder"
        with explaining("the cache of vectors cannot be written", self.folder, fix, kind=ModelError):
            self.folder.mkdir(parents=True, exist_ok=True)
            missing = self._recall(vectors, hashes)
            with bar("encoding", len(hashes), done=len(hashes) - len(missing)) as progress:
                for first in range(0, len(missing), _AT_ONCE):
                    rows = missing[first : first + _AT_ONCE]
                    for batch, found in self.encoder.batches(texts(rows)):
                        vectors[rows[batch]] = found
                        self._append(hashes[rows[batch]], found)
                        progress.advance(len(batch))

    def _recall(self, vectors: Vectors, hashes: Hashes) -> npt.NDArray[np.int64]:
        """Fill in what is known; the rows that are not."""
        missing = np.ones(len(hashes), bool)
        if count := self._count():
            index = np.fromfile(self.folder / INDEX, _ROW, count)
            kept = np.memmap(self.folder / VECTORS, "<f4", "r", shape=(count, vectors.shape[1]))
            order = np.argsort(index["hash"], kind="stable")
            wanted, known = _comparable(hashes), index["hash"][order]
            place = np.searchsorted(known, wanted, side="right") - 1  # of equal ones the last, which is the mended one
            there = np.flatnonzero(known[place] == wanted)  # place −1 is the last, which is then another one
            for row, at in zip(there, order[place[there]], strict=True):
                vectors[row] = kept[at]
                missing[row] = self._checksum(hashes[row], kept[at]) != index["check"][at]
            if damaged := int(missing[there].sum()):
                say(f"{damaged} vectors in the cache are damaged, and are computed again ({self.folder})")
        return np.flatnonzero(missing)

    def _append(self, hashes: Hashes, vectors: Vectors) -> None:
        rows = np.empty(len(hashes), _ROW)
        rows["hash"] = _comparable(hashes)
        rows["check"] = [self._checksum(one, vector) for one, vector in zip(hashes, vectors, strict=True)]
        new = {VECTORS: vectors.astype("<f4", copy=False), INDEX: rows}
        with FileLock(self.folder / LOCK), ExitStack() as open_files:
            files = {name: open_files.enter_context((self.folder / name).open("ab")) for name in new}
            count = self._count()
            for name, written in new.items():
                files[name].truncate(count * written[0].nbytes)  # what a killed process began
                files[name].write(written.tobytes())

    def _count(self) -> int:
        """How many rows both files have whole."""
        widths = {VECTORS: 4 * self.encoder.dimension, INDEX: _ROW.itemsize}
        places = {self.folder / name: width for name, width in widths.items()}
        return min(place.stat().st_size // width if place.exists() else 0 for place, width in places.items())

    def _checksum(self, hash_: Hashes, vector: Vectors) -> int:
        """Of a vector that this encoder has given the text of this hash."""
        seen = self.encoder.fingerprint.encode() + hash_.tobytes()
        return zlib.crc32(vector.astype("<f4", copy=False).tobytes(), zlib.crc32(seen))


def _comparable(hashes: Hashes) -> npt.NDArray[np.bytes_]:
    """Hashes as elements that can be sorted and compared."""
    return np.ascontiguousarray(hashes).view("S32").reshape(len(hashes))

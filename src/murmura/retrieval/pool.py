"""A pool on disk: public records of several domains, and the vector of each, to search among.

=============  ====================================================================================
pool.json      ``Manifest``: encoder, domains, sources, and the size and digest of each other file
vectors.npy    float32 [n, d], each of length 1
hashes.npy     uint8 [n, 32], ``text_hash`` of each record's question
domain.npy     uint16 [n], index into the manifest's domains
records.jsonl  the records, one a line
starts.npy     int64 [n + 1], the byte at which each record begins, and the end
=============  ====================================================================================

Arrays are memory-mapped, so a pool may be larger than memory. Nothing in a pool is private; but what is missing from it
may be: see ``Manifest.without_private``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, ValidationError

from murmura.data.records import Instruction
from murmura.data.texts import text_hash
from murmura.errors import DataError, nearest
from murmura.progress import bar
from murmura.retrieval.encoder import Encoder

MANIFEST = "pool.json"
VECTORS, HASHES, DOMAIN, STARTS = "vectors.npy", "hashes.npy", "domain.npy", "starts.npy"
RECORDS = "records.jsonl"
VERSION = 1
WITHOUT_PRIVATE = (
    "private records were left out of this pool, and whoever has it and the files that it is made of can tell which"
)
_CHUNK = 1 << 22  # bytes read at a time


class _Told(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class File(_Told):
    """A file of the pool as it was written: its size in bytes, and its SHA-256 in hexadecimal."""

    bytes: int
    sha256: str

    @classmethod
    def of(cls, path: Path, read: Callable[[int], object] = lambda count: None) -> File:
        """A file as it is now.

        Args:
            read: is told how many bytes were read.
        """
        digest, size = hashlib.sha256(), 0
        with path.open("rb") as file:
            while part := file.read(_CHUNK):
                digest.update(part)
                size += len(part)
                read(len(part))
        return cls(bytes=size, sha256=digest.hexdigest())


class Source(_Told):
    """What became of the records of one source.

    Attributes:
        source: the file or Hugging Face id, as it was given.
        domain: what its records are about.
        sha256: of the file; None for a data set of the hub.
        records: how many are in the pool.
        repeated: how many are not, since their text was in the pool already.
        exclusions: how many are not, since their text is in a file of ``--without``, such as a held-out one.
        bad: how many could not be used.
    """

    source: str
    domain: str
    sha256: str | None
    records: int
    repeated: int
    exclusions: int
    bad: int


class Made(_Told):
    """The encoder that a pool's vectors are of: its name as it was given, and ``Encoder.fingerprint``."""

    name: str
    fingerprint: str


class Manifest(_Told):
    """What a pool holds.

    Attributes:
        files: every other file, by its name.
        without_private: whether records that somebody holds as private were left out (``--without-private``). Which
            they are, whoever has the sources can tell; so nothing that is drawn from such a pool is independent of
            private records. How many they are, and of what source, is in no count.
    """

    version: int
    encoder: Made
    dimension: int
    records: int
    domains: tuple[str, ...]
    sources: tuple[Source, ...]
    files: dict[str, File]
    without_private: bool = False


@dataclass(frozen=True, eq=False)
class Pool:
    """Public records and their vectors, n of them.

    Attributes:
        vectors: float32 [n, d], each of length 1, so that a dot product of two is a cosine.
        hashes: uint8 [n, 32]; ``hashes[row].tobytes()`` is ``text_hash`` of the record's question. No two are equal.
        domain: uint16 [n], index into ``domains``.
    """

    folder: Path
    manifest: Manifest
    vectors: npt.NDArray[np.float32]
    hashes: npt.NDArray[np.uint8]
    domain: npt.NDArray[np.uint16]
    _starts: npt.NDArray[np.int64]

    @classmethod
    def open(cls, folder: str | Path) -> Pool:
        """The pool in a folder. Sizes of files are checked, and what is in them by ``verify``.

        Raises:
            DataError: There is no pool, or it is damaged, or of another version of Murmura.
        """
        place = Path(folder)
        manifest = _manifest(place)
        for name, file in manifest.files.items():
            _check_size(place / name, file)
        n, d = manifest.records, manifest.dimension
        return cls(
            place,
            manifest,
            vectors=_array(place / VECTORS, np.float32, (n, d)),
            hashes=_array(place / HASHES, np.uint8, (n, 32)),
            domain=_array(place / DOMAIN, np.uint16, (n,)),
            _starts=_array(place / STARTS, np.int64, (n + 1,)),
        )

    def __len__(self) -> int:
        return self.manifest.records

    @property
    def domains(self) -> tuple[str, ...]:
        """Names of the domains."""
        return self.manifest.domains

    @property
    def encoder(self) -> Made:
        """Whose vectors these are."""
        return self.manifest.encoder

    @property
    def dimension(self) -> int:
        """d, the length of a vector."""
        return self.manifest.dimension

    def rows_of(self, domain: str) -> npt.NDArray[np.int64]:
        """The rows of a domain, ascending.

        Raises:
            DataError: The pool has no domain of that name.
        """
        if domain not in self.domains:
            fix = nearest(domain, self.domains)
            raise DataError(f"the pool has no domain '{domain}'", where=str(self.folder), fix=fix)
        return np.flatnonzero(self.domain == self.domains.index(domain))

    def records(self, rows: Sequence[int] | npt.NDArray[np.int64]) -> list[Instruction]:
        """The records in these rows, in the order asked for.

        Raises:
            IndexError: There is no such row.
            DataError: One cannot be read, or is not the one that was put there.
        """
        with (self.folder / RECORDS).open("rb") as file:
            return [self._record(file, int(row)) for row in rows]

    def verify(self) -> None:
        """Read every file to its end.

        Raises:
            DataError: One is not as it was written.
        """
        with bar("checking the pool", sum(file.bytes for file in self.manifest.files.values())) as progress:
            for name, file in self.manifest.files.items():
                if File.of(self.folder / name, progress.advance) != file:
                    raise damaged(self.folder / name, "it is not as it was written")

    def refuse_other(self, encoder: Encoder) -> None:
        """Refuse to be searched with another encoder's vectors; loads the encoder.

        Raises:
            DataError: The pool's vectors are another encoder's.
        """
        if encoder.fingerprint != self.encoder.fingerprint:
            ours, other = (of.fingerprint[:12] for of in (self.encoder, encoder))
            raise DataError(
                f"the pool's vectors are of the encoder '{self.encoder.name}' ({ours}, {self.dimension} numbers each), "
                f"and '{encoder.name}' is another one ({other}, {encoder.dimension} numbers each)",
                where=str(self.folder),
                fix=f"Use the pool's encoder, or build a pool with this one: --encoder {encoder.name}",
            )

    def _record(self, file: Any, row: int) -> Instruction:
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of a pool of {len(self)} records")
        start, end = (int(self._starts[one]) for one in (row, row + 1))
        file.seek(start)
        try:
            record = read_record(file.read(end - start))
        except (ValueError, TypeError, RecursionError):  # not JSON or not UTF-8; other fields; nested without end
            record = None
        if record is None or text_hash(record.question) != self.hashes[row].tobytes():
            raise damaged(self.folder / RECORDS, f"record {row} is not the one that was written")
        return record


def write_record(record: Instruction) -> bytes:
    """A record as a line of ``records.jsonl``."""
    fields = {"instruction": record.instruction, "input": record.input, "output": record.output}
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


def read_record(line: bytes) -> Instruction:
    """The inverse of ``write_record``.

    Raises:
        ValueError, RecursionError: It is not JSON in UTF-8, or nested too deeply.
        TypeError: It has other fields.
    """
    return Instruction(**json.loads(line))


def damaged(place: Path, why: str) -> DataError:
    """The error for a pool that cannot be used any more."""
    fix = "Build it again, with --overwrite: vectors that are in the cache are not computed again."
    return DataError(f"the pool is damaged: {why}", where=str(place), fix=fix)


def _manifest(folder: Path) -> Manifest:
    path = folder / MANIFEST
    try:
        told: Mapping[str, Any] = json.loads(path.read_bytes())
        if told.get("version") != VERSION:
            what = f"a pool of version {told.get('version')}; this Murmura reads version {VERSION}"
            raise DataError(what, where=str(path), fix="Build it again, with --overwrite.")
        return Manifest.model_validate_json(path.read_bytes())
    except OSError as error:
        what = f"there is no pool here: {MANIFEST} cannot be read ({error.strerror})"
        fix = "Build one: murmura pool build FILE... --out FOLDER"
        raise DataError(what, where=str(folder), fix=fix) from error
    except (ValueError, AttributeError, ValidationError, RecursionError) as error:
        raise damaged(path, "it cannot be understood") from error


def _check_size(path: Path, file: File) -> None:
    try:
        size = path.stat().st_size
    except OSError as error:
        raise damaged(path, f"it cannot be read ({error.strerror})") from error
    if size != file.bytes:
        raise damaged(path, f"it has {size:,} bytes, and {file.bytes:,} were written")


def _array(path: Path, dtype: type[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise damaged(path, "it is not an array") from error
    if array.dtype != dtype or array.shape != shape:
        raise damaged(path, f"it holds {array.dtype} {list(array.shape)} instead of {np.dtype(dtype)} {list(shape)}")
    return array

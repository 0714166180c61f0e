"""Making a pool of files of public records (``murmura pool build``).

Records are read first, so that whatever is wrong with them is told before anything is computed. Vectors come through
the cache: a build that was killed, and is started again, goes on where it was. The folder appears when all of it is
there.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from murmura.atomic import LEFT_BEHIND, replacing_folder, write
from murmura.data.files import stem
from murmura.data.folder import site_files
from murmura.data.hub import is_hub_id
from murmura.data.layout import BadRecord, ColumnLayout
from murmura.data.loading import one_by_one, split_of
from murmura.data.records import Instruction
from murmura.data.refusal import refusal
from murmura.data.texts import text_hash
from murmura.errors import DataError, explaining, nearest
from murmura.progress import bar
from murmura.retrieval import approximate
from murmura.retrieval import pool as files
from murmura.retrieval.cache import Cached
from murmura.retrieval.encoder import Encoder
from murmura.retrieval.pool import File, Made, Manifest, Pool, Source
from murmura.runs.card import CARD, TAG, is_made_here, is_tagged
from murmura.runs.locks import making
from murmura.units import count, listing

_MOST_DOMAINS = 2**16
_DATA = (files.VECTORS, files.HASHES, files.DOMAIN, files.STARTS, files.RECORDS)
_OURS = {files.MANIFEST, *_DATA, approximate.INDEX, approximate.ABOUT}
"""What a pool's files are called; a card, where it has one, says itself that it was written here."""
_MADE = f"---\ntags:\n{TAG}\n---\n\nRecords in this pool were left by a run: they tell of what that was made of.\n"


@dataclass(frozen=True)
class Origin:
    """A source of public records: a file or a Hugging Face id, and what its records are about."""

    source: str
    domain: str

    @classmethod
    def of(cls, text: str) -> Origin:
        """``DOMAIN=SOURCE``, or a source alone, whose domain is called like the file without its ending.

        Raises:
            DataError: The domain or the source is empty.
        """
        domain, equals, source = text.partition("=")
        if not equals or Path(text).exists():
            bare = Path(text.partition(":")[0]).name if is_hub_id(text) else stem(Path(text))
            domain, source = bare, text
        if not domain or not source:
            raise DataError(f"'{text}' is neither FILE nor DOMAIN=FILE", fix="For example: code=alpaca.jsonl")
        return cls(source, domain)


@dataclass(frozen=True)
class SourceOptions:
    """How sources are read.

    Attributes:
        fields: Field to column, where they differ: of all sources, or as ``DOMAIN.FIELD`` of those of one domain.
        split: The split of Hugging Face data sets; files that are read beside one have none.
        without: Files, or folders of them, with public records that the pool must not hold: those that models are to be
            measured on.
        without_private: The same with private records, such as sites' own. The manifest says that some were left out,
            and neither which files they were in nor how many.
        skip_bad: Leave out records that cannot be used, and count them.
    """

    fields: Mapping[str, str] = field(default_factory=dict)
    split: str = "train"
    without: Sequence[str] = ()
    without_private: Sequence[str] = ()
    skip_bad: bool = False

    def layout(self, domain: str | None = None) -> ColumnLayout[Instruction]:
        """Of the sources of a domain."""
        fields = {name: column for name, column in self.fields.items() if "." not in name}
        parts = [(*name.rpartition("."), column) for name, column in self.fields.items()]  # domains may have dots
        fields |= {name: column for whose, _, name, column in parts if whose == domain}
        return ColumnLayout.of(Instruction, fields, None, "--field {field}={column}")


def build(
    origins: Sequence[Origin],
    out: str | Path,
    encoder: Encoder,
    reading: SourceOptions | None = None,
    *,
    overwrite: bool = False,
    cache: Path | None = None,
) -> Pool:
    """Make a pool. Of records with the same text (``text_hash`` of their question) the first is kept.

    Args:
        out: A folder that does not exist, or with ``overwrite`` one that holds a pool, which is replaced in the end.
        cache: Folder to keep vectors in, as of ``Cached``.

    Raises:
        DataError: A source cannot be read or holds a bad record, none is left, or the folder cannot be written or holds
            something else.
        ModelError: The encoder cannot be found, or gives something that is no vector of length 1.
    """
    out = Path(out)
    told = explaining("the pool cannot be written", out, kind=DataError)
    with told, making(out, "building this pool", DataError) as place:
        _refuse_other_things(out, overwrite)
        with replacing_folder(place) as draft:
            reading = reading or SourceOptions()
            sources = _write_records(draft, origins, reading)
            _write_vectors(draft, Cached(encoder, cache))
            _write_manifest(draft, encoder, sources, without_private=bool(reading.without_private))
            if any(is_made_here(Path(source.source)) for source in sources):
                (draft / CARD).write_text(_MADE, encoding="utf-8")
    return Pool.open(out)


def _refuse_other_things(out: Path, overwrite: bool) -> None:
    """Refuse to replace what is no pool, and a pool with anything beside it that would be removed too."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    where = str(out)
    # A damaged pool is one, too: it is to be built again.
    if not (out / files.MANIFEST).is_file() or not any((out / name).is_file() for name in _DATA):
        raise DataError("there is something else here, and no pool", where=where, fix="Give another --out.")
    if not overwrite:
        raise DataError("there is a pool here", where=where, fix="Give another --out, or --overwrite to replace it.")
    ours = _OURS | ({CARD} if is_tagged(out / CARD) else set())
    if others := sorted(one.name for one in out.iterdir() if one.name not in ours and not one.match(LEFT_BEHIND)):
        what = f"--overwrite would remove {listing(others)}, which no pool has"
        raise DataError(what, where=where, fix="Move it away, or give another --out.")


class _Draft:
    """Records as they come, written to ``records.jsonl``; what the other files say of them is kept in memory, some 150
    bytes for each."""

    def __init__(self, exclusions: frozenset[bytes], private: frozenset[bytes]) -> None:
        self._left_out, self._private, self._seen = exclusions, private, set[bytes]()
        self.hashes, self.domain, self.starts = bytearray(), array("H"), array("q", [0])

    def offer(self, record: Instruction, domain: int) -> tuple[str, bytes]:
        """What becomes of a record, by a field of ``Source`` or as ``private``, and its line where it is kept."""
        digest = text_hash(record.question)
        if digest in self._left_out:
            return "exclusions", b""
        if digest in self._private:
            return "private", b""
        if digest in self._seen:
            return "repeated", b""
        self._seen.add(digest)
        line = files.write_record(record)
        self.hashes += digest
        self.domain.append(domain)
        self.starts.append(self.starts[-1] + len(line))
        return "records", line


def _write_records(folder: Path, origins: Sequence[Origin], reading: SourceOptions) -> tuple[Source, ...]:
    domains = list(dict.fromkeys(origin.domain for origin in origins))
    if len(domains) > _MOST_DOMAINS:
        raise DataError(f"{count(len(domains))} domains, and a pool has at most {count(_MOST_DOMAINS)}")
    _refuse_unread(origins, reading, domains)
    draft = _Draft(_hashes_of(reading, reading.without), _hashes_of(reading, reading.without_private))
    bad, sources, private = list[BadRecord](), list[Source](), 0
    with (folder / files.RECORDS).open("wb") as file, bar("reading", len(origins)) as progress:
        for origin in origins:
            became = dict.fromkeys(("records", "repeated", "exclusions", "private", "bad"), 0)
            layout = reading.layout(origin.domain)
            for record in one_by_one(origin.source, layout, split_of(origin.source, reading.split)):
                if isinstance(record, BadRecord):
                    bad.append(record)
                    became["bad"] += 1
                else:
                    what, line = draft.offer(record, domains.index(origin.domain))
                    file.write(line)
                    became[what] += 1
            if not any(became.values()):
                raise DataError("holds no records", where=origin.source, fix=f"{layout.expected} in each record.")
            private += became.pop("private")  # a count for each source would tell of private records
            digest = None if is_hub_id(origin.source) else File.of(Path(origin.source)).sha256
            sources.append(Source(source=origin.source, domain=origin.domain, sha256=digest, **became))
            progress.advance()
    usable = private + sum(source.records + source.repeated + source.exclusions for source in sources)
    if bad and not (reading.skip_bad and usable):
        raise refusal(bad, usable + len(bad), reading.layout().expected)
    if not draft.domain:
        raise DataError("no record is left for the pool", fix="Every one of them is in a file to leave out.")
    np.save(folder / files.HASHES, np.frombuffer(draft.hashes, np.uint8).reshape(-1, 32))
    np.save(folder / files.DOMAIN, np.array(draft.domain, np.uint16))
    np.save(folder / files.STARTS, np.array(draft.starts, np.int64))
    return tuple(sources)


def _refuse_unread(origins: Sequence[Origin], reading: SourceOptions, domains: Sequence[str]) -> None:
    """Refuse columns of a domain that is not there, and a split where nothing has one."""
    for name in reading.fields:
        domain, dot, _ = name.rpartition(".")
        if dot and domain not in domains:
            raise DataError(f"there is no domain '{domain}'", where=f"--field {name}", fix=nearest(domain, domains))
    places = [*(origin.source for origin in origins), *reading.without, *reading.without_private]
    if reading.split != "train" and not any(map(is_hub_id, places)):
        what = "none of the sources has a split: only Hugging Face data sets do"
        raise DataError(what, where=f"--split {reading.split}", fix="Leave it out.")


def _hashes_of(reading: SourceOptions, places: Sequence[str]) -> frozenset[bytes]:
    """Of the texts in these files, which the pool must not hold. Bad records are refused here whatever is skipped
    elsewhere: of a text that cannot be read nobody knows whether the pool has it."""
    hashes = set()
    for place in places:
        for file in site_files(place).values() if Path(place).is_dir() else [place]:
            for record in one_by_one(file, reading.layout(), split_of(str(file), reading.split)):
                if isinstance(record, BadRecord):
                    why = f"{record.why}; so the pool may hold its text"
                    fix = f"{record.fix or reading.layout().expected}. In a file to leave out no record is skipped."
                    raise DataError(why, where=str(record.where), fix=fix)
                hashes.add(text_hash(record.question))
    return frozenset(hashes)


def _write_vectors(folder: Path, cached: Cached) -> None:
    hashes = np.load(folder / files.HASHES, mmap_mode="r")
    starts = np.load(folder / files.STARTS, mmap_mode="r")
    shape = (len(hashes), cached.encoder.dimension)
    vectors = np.lib.format.open_memmap(folder / files.VECTORS, "w+", np.float32, shape)
    with (folder / files.RECORDS).open("rb") as file:

        def texts(rows: npt.NDArray[np.int64]) -> list[str]:
            found = []
            for row in rows:
                file.seek(starts[row])
                found.append(files.read_record(file.read(starts[row + 1] - starts[row])).question)
            return found

        cached.fill(vectors, hashes, texts)
    vectors.flush()


def _write_manifest(folder: Path, encoder: Encoder, sources: tuple[Source, ...], *, without_private: bool) -> None:
    manifest = Manifest(
        version=files.VERSION,
        encoder=Made(name=encoder.name, fingerprint=encoder.fingerprint),
        dimension=encoder.dimension,
        records=sum(source.records for source in sources),
        domains=tuple(dict.fromkeys(source.domain for source in sources)),
        sources=sources,
        files={name: File.of(folder / name) for name in _DATA},
        without_private=without_private,
    )
    write(folder / files.MANIFEST, (manifest.model_dump_json(indent=1) + "\n").encode())

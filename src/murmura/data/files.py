"""Reading rows from JSON lines, CSV, Excel and Parquet files, so that every fault names its file and line."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from murmura.data.excel import read_workbook
from murmura.data.layout import RECODE, BadRecord, ColumnLayout, FileRow, Place, Rows, is_blank, refuse_twins
from murmura.errors import DataError

if TYPE_CHECKING:
    import pyarrow

_SEPARATORS = (",", ";", "\t", "|")
_LARGEST_FIELD = 2**31 - 1
_GZIP = ".gz"
_ARRAY = "Make lines of an array with, for example: jq -c '.[]' OLD > NEW"
_BEGINNINGS = {
    b"PK\x03\x04": ("an Excel workbook or another archive", "Call a workbook NAME.xlsx, or unpack the archive."),
    b"PAR1": ("a Parquet file", "Call it NAME.parquet."),
    b"\x1f\x8b": ("packed by gzip", "Call it NAME.jsonl.gz or NAME.csv.gz, or unpack it."),
}


def ending(path: Path) -> str:
    """The end of a file's name that says of what type it is, in small letters: ``.csv``, or ``.csv.gz``."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    return "".join(suffixes[-2:] if suffixes[-1:] == [_GZIP] else suffixes[-1:])


def stem(path: Path) -> str:
    """A file's name without its ending."""
    return path.name[: len(path.name) - len(ending(path))]


def read_rows(path: Path, layout: ColumnLayout[Any]) -> Rows:
    """The rows of a file, in order; a record that cannot be read comes as ``BadRecord``.

    Raises:
        DataError: The file cannot be opened, is of an unknown type or not of the type that its name says, or lacks a
            column.
    """
    kind = ending(path)
    if kind not in READERS:
        raise DataError(f"unknown type of file '{kind}'", where=str(path), fix=f"Known: {', '.join(READERS)}.")
    try:
        yield from READERS[kind](path, layout)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError("not a gzip file, or a damaged or incomplete one", where=str(path)) from error
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})", where=str(path)) from error


def _open(path: Path) -> IO[bytes]:
    """A file to be read, unpacked if it is packed."""
    return cast(IO[bytes], gzip.open(path, "rb")) if path.suffix.lower() == _GZIP else path.open("rb")


def _read_json_lines(path: Path, layout: ColumnLayout[Any]) -> Rows:
    _refuse_other_types(path)
    seen: dict[str, None] = {}
    with _open(path) as file:  # bytes: text mode would also split at characters that JSON allows inside a string
        for number, raw in enumerate(file, start=1):
            line = (raw.removeprefix(codecs.BOM_UTF8) if number == 1 else raw).rstrip(b"\r\n")
            if not line.strip():
                continue
            row = _parse_json_line(line, Place(str(path), number))
            if isinstance(row, FileRow):
                seen |= dict.fromkeys(row.values)
            yield row
    if seen:
        layout.check_header(seen, str(path))


def _parse_json_line(line: bytes, where: Place) -> FileRow | BadRecord:
    try:
        value = json.loads(line.decode(), object_pairs_hook=_distinct)
    except UnicodeDecodeError as error:
        why = f"not UTF-8 (byte 0x{line[error.start]:02x}, number {error.start + 1} of the line)"
        return BadRecord(where, why, RECODE)
    except json.JSONDecodeError as error:
        what = f"not one JSON object a line ({error.msg} at column {error.colno})"
        return BadRecord(where, what, _ARRAY if line.lstrip().startswith(b"[") else "")
    except _TwiceError as error:
        return BadRecord(where, f"the key '{error}' stands there twice")
    except (ValueError, RecursionError):  # a number of thousands of digits, thousands of nested brackets
        return BadRecord(where, "JSON that cannot be read (a number too long, or nested too deeply)")
    if not isinstance(value, dict):
        kind, fix = ("an array", _ARRAY) if isinstance(value, list) else ("a single value", "")
        return BadRecord(where, f"not one JSON object a line, but {kind}", fix)
    return FileRow(where, value)


class _TwiceError(ValueError):
    """A JSON object has a key twice; of the two values Python would keep the last."""


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _TwiceError(next(key for key, times in Counter(key for key, _ in pairs).items() if times > 1))
    return found


def _read_csv(path: Path, layout: ColumnLayout[Any]) -> Rows:
    _refuse_other_types(path)
    limit = csv.field_size_limit(_LARGEST_FIELD)  # the module's own limit, 128 KiB, is shorter than a long document
    reader, start = None, 1
    try:
        separator = _separator(path, layout)
        with _open(path) as file:
            # strict: otherwise a lost quote would swallow the rest of the file.
            reader = csv.reader(_text(file), strict=True, delimiter=separator)
            header = _header(reader)
            if header is None:
                return
            named = [place for place, name in enumerate(header) if not is_blank(name)]
            names = [header[place] for place in named]
            refuse_twins(names, f"{path}:{reader.line_num}")
            layout.check_header(names, str(path))
            start = reader.line_num + 1
            for cells in reader:
                where, start = Place(str(path), start), reader.line_num + 1
                if not cells or (len(cells) > 1 and not any(map(str.strip, cells))):  # as Excel writes a blank row
                    continue
                if len(cells) == len(header):
                    yield FileRow(where, {header[place]: cells[place] for place in named})
                else:
                    yield BadRecord(where, f"{len(cells)} columns where the header has {len(header)}")
    except csv.Error as error:
        # A quote that is never closed takes in all that is behind it, so the line that tells is the one it began in.
        line = start if "unexpected end" in str(error) else reader.line_num if reader else 1
        fix = 'A quote inside a quoted field is written "".'
        raise DataError(f"broken quoting ({error})", where=f"{path}:{line}", fix=fix) from error
    finally:
        csv.field_size_limit(limit)


def _text(file: IO[bytes]) -> io.TextIOWrapper:
    """The text of a CSV file, without a mark of its encoding.

    surrogateescape keeps a wrong byte inside its field, so that one bad record does not spoil the file;
    ``ColumnLayout.read`` refuses the record.
    """
    return io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="")


def _separator(path: Path, layout: ColumnLayout[Any]) -> str:
    """What separates the columns: what makes most of the wanted ones out of the header. Excel writes semicolons where
    numbers have a decimal comma. Where none is wanted, what makes most columns, for the error to list them."""

    def fit(separator: str) -> tuple[int, int]:
        with _open(path) as file:
            try:
                header = _header(csv.reader(_text(file), strict=True, delimiter=separator)) or []
            except csv.Error:
                return 0, 0
        wanted = len(layout.wanted(header))
        return wanted, 0 if wanted else len(header)

    own = "\t" if ending(path).startswith(".tsv") else ","
    return max([own, *_SEPARATORS], key=fit)  # the first of those that fit alike


def _header(reader: Iterator[list[str]]) -> list[str] | None:
    """The first row with something in it: blank lines, those of separators alone, and Excel's ``sep=;`` may come before
    it."""
    nothing = "".join(_SEPARATORS) + " "
    return next((cells for cells in reader if "".join(cells).strip(nothing) not in ("", "sep=")), None)


def _read_parquet(path: Path, layout: ColumnLayout[Any]) -> Rows:
    import pyarrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as table:
            header = table.schema_arrow.names
            refuse_twins(header, str(path))
            layout.check_header(header, str(path))
            number = 0
            for batch in table.iter_batches(columns=layout.wanted(header)):
                for index in range(batch.num_rows):
                    number += 1
                    yield _parquet_row(batch, index, Place(str(path), number, "row"))
    except pyarrow.ArrowException as error:
        raise DataError("not a Parquet file, or a damaged one", where=str(path)) from error


def _parquet_row(batch: pyarrow.RecordBatch, index: int, where: Place) -> FileRow | BadRecord:
    try:
        return FileRow(where, {name: batch[name][index].as_py() for name in batch.schema.names})
    except UnicodeDecodeError:
        return BadRecord(where, "not UTF-8")


READERS: dict[str, Callable[[Path, ColumnLayout[Any]], Rows]] = {
    ".jsonl": _read_json_lines,
    ".ndjson": _read_json_lines,
    ".json": _read_json_lines,
    ".csv": _read_csv,
    ".tsv": _read_csv,
}
READERS |= {f"{kind}{_GZIP}": reader for kind, reader in READERS.items()}
READERS |= {".xlsx": read_workbook, ".xlsm": read_workbook, ".parquet": _read_parquet}


def _refuse_other_types(path: Path) -> None:
    """That a file is of another type than its name says is not a fault of single records: none could be read; nor could
    they from UTF-16."""
    with _open(path) as file:
        beginning = file.read(4)
    start = beginning[:2]
    for known, (what, fix) in _BEGINNINGS.items():
        if beginning.startswith(known):
            raise DataError(f"by its contents this is {what}, whatever it is called", where=str(path), fix=fix)
    if start in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        found = "utf-16"
    elif b"\0" in start:  # no mark, but half of a letter; a text begins with no NUL
        found = "utf-16be" if start[0] == 0 else "utf-16le"
    else:
        return
    fix = f"Save the file as UTF-8, for example: iconv -f {found} -t utf-8 OLD > NEW"
    raise DataError("the file is UTF-16, expected UTF-8", where=str(path), fix=fix)

"""Records from files and from the hub: one file for all sites, one file a site, or a column that names the site."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic

from murmura.data.files import read_rows
from murmura.data.folder import site_files
from murmura.data.hub import is_hub_id, read_hub_rows
from murmura.data.layout import RENAMING, BadRecord, BadValueError, ColumnLayout, FileRow, Place, Rows
from murmura.data.records import R
from murmura.data.refusal import SKIP, indented, refusal
from murmura.errors import DataError, nearest, nearest_file
from murmura.units import listing, several

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # two letters, unlike a drive; a path has lost its second slash


@dataclass(frozen=True, slots=True)
class LoadedRecords(Generic[R]):
    """What a source held.

    Attributes:
        records: The usable records, in the source's order.
        sites: The site of each record, where a site column was named.
        users: The person that each record is about, where a user column was named.
        places: Where each record is.
        bad: Where and why a record cannot be used.
        source: Where all this was read.
        expected: What a record must hold, in words.
    """

    records: list[R]
    sites: list[str] | None
    places: list[Place]
    bad: list[BadRecord]
    source: str
    expected: str
    users: list[str] | None = None


def scan(
    source: str | Path,
    kind: type[R],
    *,
    fields: Mapping[str, str] | None = None,
    site_column: str | None = None,
    user_column: str | None = None,
    split: str = "train",
    renaming: str = RENAMING,
) -> LoadedRecords[R]:
    """Read everything, whether it can be used or not.

    Args:
        source: A JSONL (``.jsonl``, ``.ndjson``, ``.json`` with one object a line), CSV or TSV file, packed
            (``.gz``) or not; an Excel (``.xlsx``) or Parquet file; or a Hugging Face id, ``owner/name`` or
            ``owner/name:configuration``.
        kind: What each row is: ``Instruction``, ``Labelled``, ``Document`` or ``Preference``.
        fields: Field to column, where they differ: ``{"instruction": "question"}``.
        site_column: The column that names the owner of a record (a user, a clinic).
        user_column: The column that names the person that a record is about.
        split: The split of a hub data set. A file has none.
        renaming: As of ``ColumnLayout``.

    Raises:
        DataError: The source cannot be read or lacks a column.
    """
    layout = ColumnLayout.of(kind, fields, site_column, renaming, user_column)
    return scan_columns(source, layout, split)


def scan_columns(source: str | Path, layout: ColumnLayout[R], split: str = "train") -> LoadedRecords[R]:
    """``scan`` for columns that are known already.

    Raises:
        DataError: As ``scan``.
    """
    with closing(_rows(source, split, layout)) as rows:
        return _collect(rows, layout, str(source))


def one_by_one(source: str | Path, layout: ColumnLayout[R], split: str = "train") -> Iterator[R | BadRecord]:
    """What ``scan_columns`` collects, for sources that need not fit into memory.

    Raises:
        DataError: As ``scan``.
    """
    with closing(_rows(source, split, layout)) as rows:
        for row in rows:
            found = _checked(row, layout)
            yield found if isinstance(found, BadRecord) else found[0]


def load_records(
    source: str | Path,
    kind: type[R],
    *,
    fields: Mapping[str, str] | None = None,
    split: str = "train",
    skip_bad: bool = False,
    renaming: str = RENAMING,
    check: Callable[[R, Mapping[str, str]], R] | None = None,
    what: str = "record",
    remedy: str = SKIP,
) -> LoadedRecords[R]:
    """Read records, at least one.

    Args:
        skip_bad: Drop unusable records and list them in ``LoadedRecords.bad``, instead of refusing them all together.
        check: As for ``ColumnLayout``.
        what: What messages call a record; the others as ``scan``.
        remedy: What else to do about bad ones.

    Returns:
        the records, with the place of each.

    Raises:
        DataError: The source cannot be read or lacks a column; there is a bad record, all of them together; or none
            can be used.
    """
    layout = replace(ColumnLayout.of(kind, fields, None, renaming), check=check)
    loaded = scan_columns(source, layout, split)
    require_usable([loaded], skip_bad=skip_bad, what=what, remedy=remedy)
    return loaded


def split_of(source: str, split: str) -> str:
    """What to read of a source: a file has no splits."""
    return "train" if Path(source).exists() else split


def require_usable(
    sources: Sequence[LoadedRecords[Any]], *, skip_bad: bool, what: str = "record", remedy: str = SKIP
) -> None:
    """Check that there is something to use in sources that were scanned.

    Args:
        skip_bad: Bad records and sources without any record are no mistake, as long as one record can be used.
        what: What messages call a record.
        remedy: As of ``refusal``.

    Raises:
        DataError: There is a bad record or a source that holds none, all bad ones together; or none can be used.
    """
    bad = [record for loaded in sources for record in loaded.bad]
    empty = [loaded for loaded in sources if not loaded.records and not loaded.bad]
    usable = sum(len(loaded.records) for loaded in sources)
    if skip_bad and usable:
        return
    if bad:
        raise refusal(bad, usable + len(bad), sources[0].expected, what, remedy)
    if empty:
        more = " To leave out sites without records: --skip-bad." if usable else ""
        raise DataError(f"holds no {what}s", where=empty[0].source, fix=f"{empty[0].expected} in each {what}.{more}")


def refuse_alike(sites: Iterable[str], column: str, source: str) -> None:
    """Refuse names of sites that a column tells apart by capitals alone, as a folder refuses two such files, since a
    site's name becomes a folder's. Blanks around a name were left out as it was read.

    Args:
        sites: the site of each record.

    Raises:
        DataError: There are such, with the number of records of each.
    """
    counts, alike = Counter(sites), dict[str, list[str]]()
    for name in sorted(counts):
        alike.setdefault(name.casefold(), []).append(name)
    lines = [
        listing([f"'{name}' ({several(counts[name], 'record')})" for name in names])
        for names in alike.values()
        if len(names) > 1
    ]
    if lines:
        what = f"names of sites in column '{column}' differ in capitals alone"
        what = f"{what}: {lines[0]}" if len(lines) == 1 else f"{what}:{indented(lines)}"
        fix = "Write each site's name in one way only; a site's name becomes a folder's, which some systems do not tell"
        raise DataError(what, where=source, fix=f"{fix} apart by capitals.")


def scan_sites(
    folder: str | Path,
    kind: type[R],
    *,
    fields: Mapping[str, str] | None = None,
    of_sites: Mapping[str, Mapping[str, str]] | None = None,
    user_column: str | None = None,
    ignore: Sequence[str] = (),
) -> dict[str, LoadedRecords[R]]:
    """``scan`` every file of a folder with one file per site.

    Args:
        of_sites: Site to what of ``fields`` is otherwise in its file.
        ignore: As ``site_files``; the others as ``scan``.

    Returns:
        Site to records, sites in alphabetical order.

    Raises:
        DataError: As ``scan`` and ``site_files``; or a site is not in the folder.
    """
    files, own = site_files(folder, ignore), of_sites or {}
    for name in own:
        if name not in files:
            what = f"columns are named for site '{name}', which has no file here (data.sites.fields)"
            raise DataError(what, where=str(folder), fix=nearest(name, files))
    return {
        name: scan(
            file,
            kind,
            fields={**(fields or {}), **own.get(name, {})},
            user_column=user_column,
            renaming=_renaming(name) if len(files) > 1 else RENAMING,
        )
        for name, file in files.items()
    }


def _renaming(site: str) -> str:
    """As of ``ColumnLayout``, where another site's file may have the column as it is called."""
    key = json.dumps(site, ensure_ascii=False).replace("{", "{{").replace("}", "}}")
    return f"{RENAMING}, or in this site's file alone sites.{RENAMING.replace(' = ', f'.{key} = ', 1)}"


def _rows(source: str | Path, split: str, layout: ColumnLayout[R]) -> Rows:
    if is_hub_id(str(source)):
        return read_hub_rows(str(source), split, layout)
    path = Path(source)
    if path.is_dir():
        raise DataError("a folder where a file is expected", where=str(source), fix="For a folder use one file a site.")
    if not path.exists():
        raise _no_file(source)
    if not path.is_file():
        fix = "Write what it gives to a file first: records are read more than once."
        raise DataError("no ordinary file, but a pipe or a device", where=str(source), fix=fix)
    if split != "train":
        raise DataError(f"a file has no split '{split}'", where=str(source), fix="Only hub data sets have splits.")
    return read_rows(path, layout)


def _collect(rows: Rows, layout: ColumnLayout[R], source: str) -> LoadedRecords[R]:
    records: list[R] = []
    sites: list[str] = []
    users: list[str] = []
    places: list[Place] = []
    bad: list[BadRecord] = []
    for row in rows:
        found = _checked(row, layout)
        if isinstance(found, BadRecord):
            bad.append(found)
            continue
        record, site, user = found
        records.append(record)
        places.append(row.where)
        if site is not None:
            sites.append(site)
        if user is not None:
            users.append(user)
    by_site, by_user = (sites if layout.site_column else None), (users if layout.user_column else None)
    return LoadedRecords(records, by_site, places, bad, source, layout.expected, by_user)


def _checked(row: FileRow | BadRecord, layout: ColumnLayout[R]) -> tuple[R, str | None, str | None] | BadRecord:
    if isinstance(row, BadRecord):
        return row
    try:
        record, site = layout.read(row.values)
        return record, site, layout.user(row.values)
    except BadValueError as error:
        return BadRecord(row.where, str(error), error.fix)


def _no_file(source: str | Path) -> DataError:
    path = Path(source)
    if _ADDRESS.match(str(source)):
        fix = "Download it first, and give the file's path. Data sets of the Hugging Face hub are read by owner/name."
        return DataError("an address, not a file on this disk", where=str(source), fix=fix)
    if path.is_symlink():
        return DataError("a link that leads nowhere", where=str(path), fix=f"It points to {path.readlink()}.")
    if "~" in path.parts:
        return DataError("there is no such file", where=str(path), fix="Write '~' out: the path of your home folder.")
    neighbours = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    expected = "Expected a file." if path.is_absolute() else "Expected a file, or a Hugging Face id: owner/name."
    fix = nearest_file(path.name, neighbours) or expected
    return DataError("there is no such file", where=str(path), fix=fix)

"""Reading files only to report what is wrong with them (``murmura data check``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from murmura.data.folder import entries, require_ignored
from murmura.data.layout import BadRecord, ColumnLayout, Place
from murmura.data.loading import refuse_alike, scan_columns
from murmura.data.records import Record
from murmura.errors import DataError

_RENAMING = "--field {field}={column}"


@dataclass(frozen=True, slots=True)
class Repeat:
    """A record that already occurs elsewhere. Whether that is wrong depends on what the files are for: a site may
    own a record twice, but a held-out one must not be a site's too."""

    where: Place
    first: Place

    @property
    def why(self) -> str:
        return f"the same as {self.first}"


@dataclass(frozen=True)
class Checked:
    """What was found in a file.

    Attributes:
        file: As it was given.
        records: How many can be used.
        bad: Those that cannot.
        repeats: Usable ones that stand in this file, or in one before it, already.
        fault: Why the file as a whole is of no use, or None.
        ignored: Whether it was not read, since it is no site's.
        unread: Columns that hold no field.
    """

    file: str
    records: int
    bad: Sequence[BadRecord]
    repeats: Sequence[Repeat]
    fault: str | None
    ignored: bool = False
    unread: Sequence[str] = ()

    @property
    def usable(self) -> bool:
        """Whether a run would take the file as it is."""
        return not self.bad and self.fault is None


def check(
    sources: Iterable[str],
    kind: type[Any],
    fields: Mapping[str, str] | None = None,
    site_column: str | None = None,
    ignore: Sequence[str] = (),
    user_column: str | None = None,
) -> list[Checked]:
    """Read files to the end, whatever is wrong with them. Of folders, all that no site can be made of has a fault.

    Args:
        sources: Files, folders with one file a site, or Hugging Face ids.
        kind: What each row is.
        fields: Field to column, where they differ.
        site_column: The column that names the owner of a record.
        ignore: Names, or patterns of them, of what folders hold besides.
        user_column: The column that names the person that a record is about.

    Raises:
        DataError: ``fields`` names no field of ``kind``; a folder holds nothing, or two files of one site; or nothing
            in the folders is called like one of ``ignore``.
    """
    found: list[Checked] = []
    first: dict[object, Place] = {}
    layout = ColumnLayout.of(kind, fields, site_column, _RENAMING, user_column)
    folders = {source: entries(source, ignore) for source in sources if Path(source).is_dir()}
    if ignore and all(Path(source).exists() for source in sources):  # what is missing is the graver mistake
        if not folders:
            what = "only folders hold files to ignore, and none is given"
            raise DataError(what, where=", ".join(sources), fix="Leave the files out.")
        require_ignored([*folders.values()], ignore, ", ".join(folders))
    for source in sources:
        held = folders.get(source)
        files = [source] if held is None else [*held.sites.values(), *held.others]
        found += [_check(str(file), layout, first) for file in files]
        found += [Checked(str(file), 0, [], [], None, ignored=True) for file in (held.ignored if held else [])]
    return found


def repeats(
    records: Sequence[Record], places: Sequence[Place], first: dict[object, Place] | None = None
) -> list[Repeat]:
    """The records that stand somewhere before already.

    Args:
        first: Where each of some other records stands first; these records are added to it.
    """
    first = {} if first is None else first
    found = []
    for record, place in zip(records, places, strict=True):
        earlier = first.setdefault(record.identity, place)
        if earlier is not place:
            found.append(Repeat(place, earlier))
    return found


def _check(file: str, layout: ColumnLayout[Any], first: dict[object, Place]) -> Checked:
    unread: list[str] = []
    try:
        loaded = scan_columns(file, replace(layout, unread=unread.extend))
    except DataError as error:
        return Checked(file, 0, [], [], str(error))
    fault = None if loaded.records or loaded.bad else f"{file}: holds no records"
    try:
        refuse_alike(loaded.sites or [], layout.site_column or "", file)
    except DataError as error:
        fault = str(error)
    twice = repeats(loaded.records, loaded.places, first)
    return Checked(file, len(loaded.records), loaded.bad, twice, fault, unread=unread)

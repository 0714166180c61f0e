"""Reading rows of an Excel workbook. A cell counts as what a CSV file would hold of it: a number is its text."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from xml.parsers import expat

from murmura.data.layout import BadRecord, ColumnLayout, FileRow, Place, Rows, is_blank, refuse_twins
from murmura.errors import DataError
from murmura.units import listing

_TOLD = 3  # of merged ranges


@dataclass(frozen=True)
class _Sheet:
    """What a sheet holds.

    Attributes:
        rows: Those that are not blank, by number from 1.
        merged: Ranges of cells that are one cell, as Excel writes them: ``B2:B4``.
    """

    rows: list[tuple[int, list[Any]]]
    merged: list[str]


def read_workbook(path: Path, layout: ColumnLayout[Any]) -> Rows:
    """The rows of the only sheet that holds anything, in order, by their numbers in Excel.

    Raises:
        DataError: It is no workbook, a damaged or an encrypted one, more than one of its sheets hold something, cells
            to be read are merged, or a column is missing.
    """
    sheets = _sheets(path)
    if len(sheets) > 1:
        names = listing([f"'{name}'" for name in sheets])
        fix = "Keep the records in a file of one sheet."
        raise DataError(f"several sheets hold something: {names}", where=str(path), fix=fix)
    for sheet in sheets.values():
        yield from _records(sheet, layout, path)


def _records(sheet: _Sheet, layout: ColumnLayout[Any], path: Path) -> Rows:
    (first, named), *rest = sheet.rows
    header = {place: str(name) for place, name in enumerate(named) if not is_blank(name)}
    names = list(header.values())
    wanted = {place: name for place, name in header.items() if name in layout.wanted(names)}
    _refuse_merged(sheet, wanted, path)
    refuse_twins(names, f"{path}: row {first}")
    layout.check_header(names, str(path))
    for number, cells in rest:
        where = Place(str(path), number, "row")
        values = {name: cells[place] if place < len(cells) else None for place, name in wanted.items()}
        wrong = [name for name, value in values.items() if isinstance(value, _Error)]
        yield BadRecord(where, f"'{wrong[0]}' is an error of Excel's") if wrong else FileRow(where, values)


def _refuse_merged(sheet: _Sheet, wanted: Collection[int], path: Path) -> None:
    """Of merged cells only the first has a value, and the others would be read as blank.

    Args:
        wanted: places of the columns that are read, from 0.

    Raises:
        DataError: cells of these columns are, into one with a value; or a title stands where names of columns should.
    """
    from openpyxl.utils.cell import range_boundaries

    (first, _), (last, _), cells = sheet.rows[0], sheet.rows[-1], dict(sheet.rows)
    found = []
    for merged in sheet.merged:
        left, top, right, bottom = range_boundaries(merged)
        value = dict(enumerate(cells.get(top, []), start=1)).get(left)
        lost = [place + 1 for place in wanted if left <= place + 1 <= right and (top < bottom or place + 1 > left)]
        is_title = not wanted and top <= first <= bottom
        if (lost or is_title) and not is_blank(value) and top <= last and bottom >= first:
            found.append((top, left, merged))
    if found:
        ranges = [merged for _, _, merged in sorted(found)]
        what = f"merged cells ({listing(ranges, _TOLD)}), of which only the first has a value"
        fix = "Unmerge them in Excel and fill each cell."
        fix += f" Row {first}, the first that is not blank, must hold the name of each column in a cell of its own."
        raise DataError(what, where=str(path), fix=fix)


def _sheets(path: Path) -> dict[str, _Sheet]:
    """The sheets that hold anything, by name."""
    from openpyxl.reader.excel import ExcelReader

    with path.open("rb") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about styles and validations, which are not read
        try:
            reader = ExcelReader(file, read_only=True, data_only=True)  # by which `load_workbook` reads
            reader.read()
            parts = {sheet.name: rel.target for sheet, rel in reader.parser.find_sheets()}
            found = {sheet.title: list(_rows(sheet)) for sheet in reader.wb.worksheets}
            merged = {}
            for name in found:
                with reader.archive.open(parts[name]) as part:
                    merged[name] = _merged(part)
        except Exception as error:  # of a damaged file: whatever zipfile, the XML parser or openpyxl stumbles over
            fix = "Open it in Excel and save it again, as .xlsx without a password or as CSV UTF-8."
            raise DataError("not an Excel workbook, or a damaged or encrypted one", where=str(path), fix=fix) from error
    return {name: _Sheet(rows, merged[name]) for name, rows in found.items() if rows}


def _rows(sheet: Any) -> Iterator[tuple[int, list[Any]]]:
    sheet.reset_dimensions()  # which some programs write wrong, and rows and columns beyond them would not be read
    for number, cells in enumerate(sheet.iter_rows(), start=1):
        values = [_value(cell) for cell in cells]
        if not all(map(is_blank, values)):
            yield number, values


def _merged(part: IO[bytes]) -> list[str]:
    """The merged ranges of a sheet, which openpyxl passes over where it does not load all of it."""
    found: list[str] = []
    parser = expat.ParserCreate(namespace_separator=" ")

    def begin(name: str, attributes: dict[str, str]) -> None:
        if name.endswith(" mergeCell"):
            found.append(attributes["ref"])

    parser.StartElementHandler = begin
    parser.ParseFile(part)
    return found


class _Error(str):
    """What stands in a cell in place of a value, such as #REF!"""


def _value(cell: Any) -> Any:
    from openpyxl.utils.escape import unescape

    value = cell.value
    if isinstance(value, str):
        return _Error(value) if cell.data_type == "e" else unescape(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(int(value)) if value == int(value) else repr(value)
    return value

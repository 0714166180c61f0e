"""Reading rows of an Excel workbook. A cell counts as what a CSV file would hold of it: a number is its text."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from murmura.data.layout import BadRecord, ColumnLayout, FileRow, Place, Rows, is_blank, refuse_twins
from murmura.errors import DataError
from murmura.units import listing


def read_workbook(path: Path, layout: ColumnLayout[Any]) -> Rows:
    """The rows of the only sheet that holds anything, in order, by their numbers in Excel.

    Raises:
        DataError: It is no workbook, a damaged or an encrypted one, more than one of its sheets hold something, or a
            column is missing.
    """
    sheets = _sheets(path)
    if len(sheets) > 1:
        names = listing([f"'{name}'" for name in sheets])
        fix = "Keep the records in a file of one sheet."
        raise DataError(f"several sheets hold something: {names}", where=str(path), fix=fix)
    for rows in sheets.values():
        yield from _records(rows, layout, path)


def _records(rows: list[tuple[int, list[Any]]], layout: ColumnLayout[Any], path: Path) -> Rows:
    (first, named), *rest = rows
    header = {place: str(name) for place, name in enumerate(named) if not is_blank(name)}
    names = list(header.values())
    refuse_twins(names, f"{path}: row {first}")
    layout.check_header(names, str(path))
    wanted = {place: name for place, name in header.items() if name in layout.wanted(names)}
    for number, cells in rest:
        where = Place(str(path), number, "row")
        values = {name: cells[place] if place < len(cells) else None for place, name in wanted.items()}
        wrong = [name for name, value in values.items() if isinstance(value, _Error)]
        yield BadRecord(where, f"'{wrong[0]}' is an error of Excel's") if wrong else FileRow(where, values)


def _sheets(path: Path) -> dict[str, list[tuple[int, list[Any]]]]:
    """The rows of each sheet that are not blank, by number from 1; sheets without any are left out."""
    import openpyxl

    with path.open("rb") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about styles and validations, which are not read
        try:
            book = openpyxl.load_workbook(file, read_only=True, data_only=True)
            found = {sheet.title: list(_rows(sheet)) for sheet in book.worksheets}
        except Exception as error:  # of a damaged file: whatever zipfile, the XML parser or openpyxl stumbles over
            fix = "Open it in Excel and save it again, as .xlsx without a password or as CSV UTF-8."
            raise DataError("not an Excel workbook, or a damaged or encrypted one", where=str(path), fix=fix) from error
    return {name: rows for name, rows in found.items() if rows}


def _rows(sheet: Any) -> Iterator[tuple[int, list[Any]]]:
    sheet.reset_dimensions()  # which some programs write wrong, and rows and columns beyond them would not be read
    for number, cells in enumerate(sheet.iter_rows(), start=1):
        values = [_value(cell) for cell in cells]
        if not all(map(is_blank, values)):
            yield number, values


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

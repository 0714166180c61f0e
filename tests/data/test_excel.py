"""Workbooks read as the CSV files that could be saved of them, and nothing of them goes unread without a word."""

import datetime
import zipfile

import pytest
from openpyxl import Workbook

from murmura.data.files import read_rows
from murmura.data.layout import BadRecord, ColumnLayout, FileRow, Place
from murmura.data.loading import scan
from murmura.data.records import Document, Instruction, Labelled
from murmura.errors import DataError

TEXT = ColumnLayout.of(Document, None, None)


def rows(path, layout=TEXT):
    return list(read_rows(path, layout))


@pytest.fixture
def workbook(tmp_path):
    """Write sheets, each a list of rows, to a workbook."""

    def write(*sheets, name="site.xlsx", merged=()):
        book = Workbook()
        book.remove(book.active)
        for cells in sheets:
            sheet = book.create_sheet()
            for row in cells:
                sheet.append(row)
            for cells in merged:
                sheet.merge_cells(cells)
        book.save(tmp_path / name)
        return tmp_path / name

    return write


def test_rows_are_called_by_their_numbers_in_excel_and_only_used_columns_are_read(workbook):
    path = workbook([[], [None, " "], ["id", "text"], [7, "a\nb"], [None, None], [8, None], [9, "c"]], [[]])
    assert rows(path) == [
        FileRow(Place(str(path), 4, "row"), {"text": "a\nb"}),
        FileRow(Place(str(path), 6, "row"), {"text": None}),
        FileRow(Place(str(path), 7, "row"), {"text": "c"}),
    ]


def test_a_cell_counts_as_the_text_that_a_csv_file_holds_of_it(workbook):
    path = workbook([["text", "label"], [42, 1], [0.5, 2.0], ["_x005F_a_x000D_", "3"]])
    found = scan(path, Labelled)
    assert found.records == [Labelled("42", "1"), Labelled("0.5", "2"), Labelled("_a\r", "3")]
    assert found.bad == []


def test_what_is_no_text_is_bad_by_its_row(workbook):
    day = datetime.datetime(2026, 11, 22)
    path = workbook([["text", "n"], [day, 1], [True, 1], ["=1/0", 1], [None, 1], ["fine", "#REF!"]])
    found = scan(path, Document)
    assert [(str(bad.where), bad.why) for bad in found.bad] == [
        (f"{path}: row 2", "'text' is of type datetime, not text"),
        (f"{path}: row 3", "'text' is of type bool, not text"),
        (f"{path}: row 4", "record without 'text'"),  # a formula of which no program has saved the value
        (f"{path}: row 5", "record without 'text'"),
    ]
    assert found.records == [Document("fine")]


def test_an_error_of_excel_is_no_text(workbook):
    path = workbook([["text"], ["#REF!"], ["a"]])
    assert rows(path)[0] == BadRecord(Place(str(path), 2, "row"), "'text' is an error of Excel's")


def test_rows_and_columns_beyond_what_the_sheet_says_of_its_size_are_read(workbook, tmp_path):
    """Some programs write that a sheet has one cell, whatever it has."""
    path, wrong = workbook([["id", "text"], [1, "a"], [2, "b"]]), tmp_path / "wrong.xlsx"
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(wrong, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            new.writestr(name, content.replace(b'<dimension ref="A1:B3"', b'<dimension ref="A1"'))
        assert b'ref="A1:B3"' in old.read("xl/worksheets/sheet1.xml")
    assert [row.values["text"] for row in rows(wrong)] == ["a", "b"]


def test_two_sheets_that_hold_something_are_refused(workbook):
    path = workbook([["text"], ["a"]], [[]], [["text"], ["b"]])
    with pytest.raises(DataError, match="'Sheet' and 'Sheet2'") as error:
        rows(path)
    assert error.value.where == str(path)


def test_faults_of_the_header(workbook):
    with pytest.raises(DataError, match=r"no column 'output'.*Did you mean 'outputs'"):
        rows(workbook([["instruction", "outputs"], ["a", "b"]]), ColumnLayout.of(Instruction, None, None))
    with pytest.raises(DataError, match="two columns are called 'text'"):
        rows(workbook([["text", None, "text"], ["a", "b", "c"]]))
    assert rows(workbook([["text", None], ["a", "a remark in a column without a name"]]))[0].values == {"text": "a"}
    assert rows(workbook([[]])) == []


LABELLED = [
    ["id", "text", "label", "note"],
    *([n, f"text {n}", "good", "a remark"] for n in range(1, 4)),
    [4, "last", "bad"],
]


@pytest.mark.parametrize(
    ("merged", "told"),
    [
        (
            ["C2:C4"],
            r"merged cells \(C2:C4\), of which only the first has a value.*Unmerge them.*Row 1, the first that",
        ),
        (["A3:B3"], r"\(A3:B3\)"),  # beside a column that is not read
        (["A2:C2", "B3:B4", "D2:D4"], r"\(A2:C2 and B3:B4\)"),
        (["B2:C2", "B3:C3", "B4:C4", "B5:C5"], r"\(B2:C2, B3:C3, B4:C4 and 1 more\)"),
        (["A1:D1"], r"\(A1:D1\)"),  # a title above the names of columns
    ],
)
def test_merged_cells_whose_values_would_be_lost_are_refused(workbook, merged, told):
    path = workbook(LABELLED, merged=merged)
    with pytest.raises(DataError, match=told) as error:
        rows(path, ColumnLayout.of(Labelled, None, None))
    assert error.value.where == str(path)


def test_merged_cells_that_are_not_read_lose_nothing(workbook):
    path = workbook(LABELLED, [[]], merged=["D2:D4", "B9:C12", "C2:D2", "D1:E1"])
    assert [record.label for record in scan(path, Labelled).records] == ["good", "good", "good", "bad"]


def test_a_text_that_looks_like_a_merge_is_none(workbook):
    path = workbook([["text"], ['<mergeCell ref="A1:A2"/>']])
    assert scan(path, Document).records == [Document('<mergeCell ref="A1:A2"/>')]


@pytest.mark.parametrize("content", [b"this is no workbook", b"", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600)])
def test_what_is_no_workbook_is_refused(tmp_path, content):
    path = tmp_path / "site.xlsx"
    path.write_bytes(content)
    with pytest.raises(DataError, match="not an Excel workbook, or a damaged or encrypted one"):
        rows(path)


def test_a_damaged_workbook_is_refused(workbook, tmp_path):
    path, cut = workbook([["text"], ["a"]]), tmp_path / "cut.xlsx"
    for part, kept in (("xl/worksheets/sheet1.xml", 200), ("xl/workbook.xml", 0)):
        with zipfile.ZipFile(path) as old, zipfile.ZipFile(cut, "w") as new:
            for name in old.namelist():
                if name != part or kept:
                    new.writestr(name, old.read(name)[: kept if name == part else None])
        with pytest.raises(DataError, match="not an Excel workbook"):
            rows(cut)

"""Every fault of a file, with the place where the user finds it."""

import csv
import gzip
import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from murmura.data.files import ending, read_rows, stem
from murmura.data.layout import RECODE, BadRecord, BadValueError, ColumnLayout, FileRow, Place
from murmura.data.records import Document, Instruction
from murmura.errors import DataError

TEXT = ColumnLayout.of(Document, None, None)


def rows(path, layout=TEXT):
    return list(read_rows(path, layout))


def texts(path):
    return [row.values["text"] for row in rows(path)]


@pytest.fixture
def table(tmp_path):
    def write(content, name="site.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


# JSON lines


def test_json_lines_count_blank_lines_and_keep_line_separators_inside_strings(jsonl):
    path = jsonl({"text": "a"}, b"", '{"text": "b\u2028c"}'.encode(), b'{"text": "d"}\r')
    assert rows(path) == [
        FileRow(Place(str(path), 1), {"text": "a"}),
        FileRow(Place(str(path), 3), {"text": "b\u2028c"}),
        FileRow(Place(str(path), 4), {"text": "d"}),
    ]


def test_a_byte_order_mark_is_no_part_of_the_first_record(jsonl, table):
    assert texts(jsonl(b'\xef\xbb\xbf{"text": "a"}')) == ["a"]
    assert texts(table(b"\xef\xbb\xbftext\na\n")) == ["a"]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b'{"text": "b"', "not one JSON object a line (Expecting ',' delimiter at column 13)"),
        (b"[", "not one JSON object a line (Expecting value at column 2)"),
        (b'[{"text": "b"}]', "not one JSON object a line, but an array"),
        (b'"b"', "not one JSON object a line, but a single value"),
        (b'{"text": "b", "text": "B"}', "the key 'text' stands there twice"),
        (b'{"text": "b", "more": {"n": 1, "m": 2, "n": 1}}', "the key 'n' stands there twice"),
        (b'{"text": "caf\xe9"}', "not UTF-8 (byte 0xe9, number 14 of the line)"),
        (b"[" * 100_000, "JSON that cannot be read (a number too long, or nested too deeply)"),
        (b'{"n": ' + b"1" * 5000 + b"}", "JSON that cannot be read (a number too long, or nested too deeply)"),
    ],
)
def test_a_bad_json_line_does_not_stop_the_lines_after_it(jsonl, line, why):
    path = jsonl({"text": "a"}, line, {"text": "c"})
    first, bad, last = rows(path)
    assert (str(bad.where), bad.why) == (f"{path}:2", why)
    array = "Make lines of an array" if line[:2] in (b"[", b"[{") else ""
    assert bad.fix.startswith(array) and (bad.fix == (RECODE if why.startswith("not UTF-8") else "") or array)
    assert (first.values, last.values) == ({"text": "a"}, {"text": "c"})


def test_a_named_column_that_never_occurs_is_a_misspelling(jsonl):
    path = jsonl({"instruction": "a", "context": "b", "output": "c"})
    with pytest.raises(DataError, match=r"no column 'contxt'.*Did you mean 'context'"):
        rows(path, ColumnLayout.of(Instruction, {"input": "contxt"}, None))


# CSV


def test_csv_rows_are_called_by_the_line_they_begin_on(table):
    path = table('text,n\n"two\nlines",1\n\nb,2\n')
    assert rows(path) == [
        FileRow(Place(str(path), 2), {"text": "two\nlines", "n": "1"}),
        FileRow(Place(str(path), 5), {"text": "b", "n": "2"}),
    ]


def test_tabs_separate_a_tsv_file(table):
    assert texts(table("text\tn\na, b\t1\n", name="site.tsv")) == ["a, b"]


def test_a_csv_row_of_the_wrong_width_is_bad(table):
    path = table("text,n\na,1\nb\nc,2,3\nd,4\n")
    found = rows(path)
    assert [type(row) for row in found] == [FileRow, BadRecord, BadRecord, FileRow]
    assert found[1] == BadRecord(Place(str(path), 3), "1 columns where the header has 2")
    assert str(found[2].where) == f"{path}:4"


def test_a_wrong_byte_in_a_csv_field_stays_in_its_field(table):
    path = table(b"text,n\ncaf\xe9,1\nb,2\n")
    assert [row.values["n"] for row in rows(path)] == ["1", "2"]
    with pytest.raises(BadValueError, match="'text' is not valid UTF-8") as error:
        TEXT.read(rows(path)[0].values)
    assert "iconv -f cp1252 -t utf-8" in error.value.fix


def test_a_lost_quote_is_refused_and_does_not_swallow_the_file(table):
    path = table('text\na\n"b\nc\nd\n')
    with pytest.raises(DataError, match=r"broken quoting .*\"\"") as error:
        rows(path)
    assert error.value.where == f"{path}:3"  # where the quote begins, not where the file ends


@pytest.mark.parametrize(
    ("beginning", "type"), [(b"PK\x03\x04rest", "workbook"), (b"PAR1rest", "Parquet"), (b"\x1f\x8brest", "gzip")]
)
@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_a_file_of_another_type_than_its_name_says_is_refused_as_a_whole(tmp_path, beginning, type, name):
    (tmp_path / name).write_bytes(beginning)
    with pytest.raises(DataError, match=f"by its contents this is .*{type}.*, whatever it is called"):
        rows(tmp_path / name)


def test_a_field_may_be_longer_than_the_csv_modules_limit(table):
    before = csv.field_size_limit()
    long = "x" * (before + 1)
    assert texts(table(f"text\n{long}\n")) == [long]
    assert csv.field_size_limit() == before


def test_csv_faults_of_the_header(table):
    with pytest.raises(DataError, match=r"no column 'text'.*Did you mean 'texts'"):
        rows(table("texts\na\n"))
    with pytest.raises(DataError, match="two columns are called 'text'"):
        rows(table("text,text\na,b\n"))
    assert rows(table("")) == rows(table("\n,,\n")) == []


@pytest.mark.parametrize("separator", [",", ";"])
def test_columns_without_a_name_are_not_read(table, separator):
    """Spreadsheets export some at the end; of a workbook they are not read either."""
    path = table("text,n,, \na,1,,\nb,2,a remark,\nc,3\n".replace(",", separator))
    first, second, short = rows(path)
    assert (first.values, second.values) == ({"text": "a", "n": "1"}, {"text": "b", "n": "2"})
    assert short == BadRecord(Place(str(path), 4), "2 columns where the header has 4")
    assert [row.values for row in rows(table(",text\n0,a\n"))] == [{"text": "a"}]


def test_blank_lines_may_stand_before_a_csv_header(table):
    path = table("\n ,\ntext,n\na,1\n")
    assert rows(path) == [FileRow(Place(str(path), 4), {"text": "a", "n": "1"})]


@pytest.mark.parametrize("separator", [",", ";"])
def test_excels_line_on_what_separates_is_no_header(table, separator):
    path = table(f"sep={separator}\r\nn{separator}text\r\n1{separator}a\r\n")
    assert rows(path) == [FileRow(Place(str(path), 3), {"n": "1", "text": "a"})]


@pytest.mark.parametrize("name", ["site.csv", "site.tsv"])
@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_the_header_tells_what_separates_the_columns(table, separator, name):
    """Excel writes semicolons, and a mark of the encoding, where numbers have a decimal comma."""
    lines = ["id{0}text", '1{0}"a, b; c\td|e"', "2{0}f"]
    path = table(b"\xef\xbb\xbf" + "\r\n".join(lines).format(separator).encode(), name)
    assert [row.values for row in rows(path)] == [{"id": "1", "text": "a, b; c\td|e"}, {"id": "2", "text": "f"}]


def test_a_missing_column_is_told_with_those_that_another_separator_makes(table):
    with pytest.raises(DataError, match=r"no column 'text'.*Valid: answer, question\."):
        rows(table("question;answer\na;b\n"))


def test_a_row_of_separators_alone_is_a_blank_line(table):
    assert texts(table("text;id\r\na;1\r\n;\r\nb;2\r\n ; \r\n")) == ["a", "b"]


def test_commas_in_a_single_column_do_not_separate(table):
    assert texts(table('text\n"a; b, c"\n')) == ["a; b, c"]


def test_a_column_that_the_user_named_may_have_a_separator_in_its_name(table):
    path = table("note;id\na;1\n")
    assert rows(path, ColumnLayout.of(Document, {"text": "note;id"}, None)) == [
        FileRow(Place(str(path), 2), {"note;id": "a;1"})
    ]


# Parquet


def test_parquet_rows_are_counted_from_one_and_only_used_columns_are_read(tmp_path):
    path = tmp_path / "site.parquet"
    pq.write_table(pa.table({"id": [7, 8, 9], "text": ["a", None, "c"]}), path, row_group_size=2)
    assert rows(path) == [
        FileRow(Place(str(path), 1, "row"), {"text": "a"}),
        FileRow(Place(str(path), 2, "row"), {"text": None}),
        FileRow(Place(str(path), 3, "row"), {"text": "c"}),
    ]


def test_parquet_faults(tmp_path):
    path = tmp_path / "site.parquet"
    path.write_bytes(b"this is not Parquet")
    with pytest.raises(DataError, match="not a Parquet file"):
        rows(path)
    pq.write_table(pa.table({"body": ["a"]}), path)
    with pytest.raises(DataError, match=r"no column 'text'.*Valid: body\."):
        rows(path)


def test_a_parquet_string_that_is_not_utf8_is_a_bad_record(tmp_path):
    path = tmp_path / "site.parquet"
    offsets, data = pa.py_buffer(b"\0\0\0\0\x01\0\0\0\x02\0\0\0"), pa.py_buffer(b"a\xe9")
    pq.write_table(pa.table({"text": pa.StringArray.from_buffers(2, offsets, data)}), path)
    assert rows(path) == [
        FileRow(Place(str(path), 1, "row"), {"text": "a"}),
        BadRecord(Place(str(path), 2, "row"), "not UTF-8"),
    ]


# All types


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16le", "utf-16be"])
def test_a_utf16_file_is_refused_as_a_whole(jsonl, table, encoding):
    for path in (jsonl('{"text": "a"}'.encode(encoding)), table("text\na\n".encode(encoding))):
        with pytest.raises(DataError, match=rf"UTF-16, expected UTF-8\. .*iconv -f {encoding} -t utf-8"):
            rows(path)


def test_an_unknown_type_of_file_names_the_known_ones(table):
    for name, kind in (("site.ods", ".ods"), ("site.parquet.gz", ".parquet.gz"), ("site.gz", ".gz"), ("site", "")):
        with pytest.raises(DataError, match=rf"unknown type of file '{re.escape(kind)}'.*\.jsonl.*\.parquet"):
            rows(table("", name=name))


@pytest.mark.parametrize("name", ["site.csv", "site.tsv", "site.jsonl", "site.ndjson", "site.json"])
def test_a_packed_file_reads_like_the_file_in_it(table, name):
    content = '{"text": "a"}\n{"text": "b"}\n' if "json" in name else "text,id\na,1\nb,2\n"
    plain, packed = table(content, name), table(gzip.compress(content.encode()), f"{name.upper()}.GZ")
    assert [(row.where.number, row.values) for row in rows(packed)] == [
        (row.where.number, row.values) for row in rows(plain)
    ]
    assert str(rows(packed)[0].where).startswith(f"{packed}:")
    with pytest.raises(DataError, match="UTF-16"):
        rows(table(gzip.compress(content.encode("utf-16")), f"{name}.gz"))


def test_a_packed_file_that_is_damaged_is_refused_as_a_whole(table):
    """What an interrupted copy has left would otherwise be taken for all there is."""
    line = json.dumps({"text": "".join(map(str, range(20_000)))}).encode()
    whole = gzip.compress(line + b"\n" + line)
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 0xFF
    for content in (whole[:-20], whole[: len(whole) // 2], bytes(damaged), line):
        path = table(content, "site.jsonl.gz")
        with pytest.raises(DataError, match="not a gzip file, or a damaged or incomplete one") as error:
            rows(path)
        assert error.value.where == str(path)


@pytest.mark.parametrize(
    ("name", "kind", "bare"),
    [("a.csv", ".csv", "a"), ("a.v2.JSONL", ".jsonl", "a.v2"), ("a.b.csv.gz", ".csv.gz", "a.b"), ("a", "", "a")],
)
def test_the_ending_of_a_name(name, kind, bare):
    assert (ending(Path(name)), stem(Path(name))) == (kind, bare)


def test_a_file_that_cannot_be_opened(tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        rows(tmp_path / "absent.jsonl")

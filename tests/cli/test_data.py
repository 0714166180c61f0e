import json

import pyarrow
import pytest
from openpyxl import Workbook
from pyarrow import parquet
from typer.testing import CliRunner

from murmura.cli import MISTAKE, app
from tests.experiment.small import record, write_lines

GOOD = record("heart", 0)


@pytest.fixture
def check():
    return lambda *words: CliRunner().invoke(app, ["data", "check", *map(str, words)])


def test_good_files_end_well(check, tmp_path):
    path = write_lines(tmp_path / "site.jsonl", [GOOD, record("heart", 1)])
    done = check(path)
    assert (done.exit_code, done.stdout) == (0, f"{path}: 2 usable, 0 bad, 0 repeated\n")


def test_all_that_is_bad_is_listed_and_the_exit_code_says_so(check, tmp_path):
    site = write_lines(tmp_path / "site.jsonl", [GOOD, *[{"instruction": "explain"}] * 12])
    held_out = write_lines(tmp_path / "heldout.jsonl", [GOOD])
    done = check(site, held_out, tmp_path / "absent.jsonl")
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    assert lines[0] == f"{site}: 1 usable, 12 bad, 0 repeated"
    assert [line.split(": ")[0] for line in lines[1:13]] == [f"  {site}:{n}" for n in range(2, 14)]
    assert lines[13].endswith("If another column holds it: --field output=COLUMN.")
    assert lines[14:16] == [f"{held_out}: 1 usable, 0 bad, 1 repeated", f"  {held_out}:1: the same as {site}:1"]
    assert "absent.jsonl: there is no such file" in lines[16]


def test_other_kinds_and_columns(check, tmp_path):
    path = tmp_path / "notes.csv"
    path.write_bytes(b"note,verdict\nplain,good\ncaf\xe9,good\n")
    done = check(path, "--kind", "labelled", "--field", "text=note", "--field", "label=verdict")
    assert done.exit_code == 1
    assert f"  {path}:3: 'note' is not valid UTF-8" in done.stdout and "iconv -f cp1252" in done.stdout
    assert check(path, "--kind", "labelled").exit_code == 1


def test_whoever_looks_for_a_column_is_told_of_the_kind_the_encoding_and_the_other_files(check, tmp_path):
    path = tmp_path / "notes.csv"
    path.write_text("note,patient\nplain,1\n")
    assert "The kind 'labelled' or 'document' has it." in check(path, "--field", "text=note").stderr
    labelled = ["--kind", "labelled", "--field", "text=note"]
    assert "must be called so in every file" in check(path, *labelled, "--user-column", "person").stdout
    path.write_bytes("note,größe\nplain,1\n".encode("latin-1"))
    done = check(path, *labelled, "--field", "label=größe")
    assert "'größe'" in done.stdout and "not valid UTF-8" in done.stdout and "iconv -f cp1252" in done.stdout
    path.write_bytes("note,größe\nplain,1\n".encode())
    assert check(path, *labelled, "--field", "label=größe").exit_code == 0


def test_a_column_that_is_not_read_may_be_called_anything(check, tmp_path):
    path = tmp_path / "notes.csv"
    path.write_bytes("instruction;output;Prüfer\na;b;c\n".encode("cp1252"))
    done = check(path)
    assert done.exit_code == 0, done.output
    assert "columns that are not read: 'Pr\\udcfcfer'" in done.stdout


def test_a_field_may_be_left_out(check, tmp_path):
    path = write_lines(tmp_path / "site.jsonl", [GOOD | {"input": 3}])
    assert check(path).exit_code == 1
    assert check(path, "--field", "input=").exit_code == 0
    done = check(path, "--field", "output=")
    assert done.exit_code == MISTAKE and "'output' is given no column, and every record needs it" in done.stderr


def table(path, row):
    """Write a table of one row, in the type of file that the path's ending says."""
    if path.suffix == ".jsonl":
        write_lines(path, [row])
    elif path.suffix == ".csv":
        path.write_text(f"{','.join(row)},\n{','.join(row.values())},\n")
    elif path.suffix == ".parquet":
        parquet.write_table(pyarrow.Table.from_pylist([row]), path)
    else:
        book = Workbook()
        book.active.append([*row, None])
        book.active.append([*row.values(), "a remark"])
        book.save(path)


@pytest.mark.parametrize("ending", ["jsonl", "csv", "xlsx", "parquet"])
def test_columns_that_nothing_reads_are_told(check, tmp_path, ending):
    path = tmp_path / f"site.{ending}"
    table(path, {"context": "c", "instruction": "a", "clinic": "north", "output": "b"})
    done = check(path)
    head = f"{path}: 1 usable, 0 bad, 0 repeated\n"
    assert (done.exit_code, done.stdout) == (0, f"{head}  columns that are not read: 'context' and 'clinic'\n")
    assert check(path, "--field", "input=context", "--site-column", "clinic").stdout == head
    assert check(path, "--field", "input=context", "--user-column", "clinic").stdout == head
    assert "'patient'" in check(path, "--user-column", "patient").stdout


def test_of_many_columns_that_nothing_reads_some_are_named(check, tmp_path):
    path = write_lines(tmp_path / "site.jsonl", [GOOD | {f"c{n}": n} for n in range(40)])
    assert "  columns that are not read: 'c0', 'c1', 'c2', 'c3', 'c4' and 35 more\n" in check(path).stdout
    assert len(json.loads(check(path, "--json").stdout)["files"][0]["unread"]) == 40


def test_owners_whom_capitals_alone_tell_apart_are_told(check, tmp_path):
    rows = [record("heart", n) | {"clinic": name} for n, name in enumerate(["north", "North", "south", ""])]
    path = write_lines(tmp_path / "site.jsonl", rows)
    done = check(path, "--site-column", "clinic")
    alike, head, bad = done.stdout.splitlines()[:3]
    assert alike.startswith(f"{path}: names of sites in column 'clinic' differ in capitals alone: 'North' (1 record)")
    assert (done.exit_code, head, bad) == (1, f"{path}: 3 usable, 1 bad, 0 repeated", f"  {path}:4: 'clinic' is empty")


def test_an_address_is_told_in_full(check):
    done = check("https://x.y/z.jsonl")
    assert done.exit_code == 1 and done.stdout.startswith("https://x.y/z.jsonl: an address, not a file on this disk. ")


def test_json_has_the_same(check, tmp_path):
    path = write_lines(tmp_path / "site.jsonl", [GOOD, {"instruction": "a", "output": ""}, GOOD | {"note": ""}])
    done = check(path, "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout) == {
        "files": [
            {
                "file": str(path),
                "records": 2,
                "fault": None,
                "ignored": False,
                "unread": ["note"],
                "bad": [{"file": str(path), "line": 2, "reason": "'output' is empty"}],
                "repeated": [{"file": str(path), "line": 3, "reason": f"the same as {path}:1"}],
            }
        ]
    }


def test_mistakes_are_told_as_such(check, tmp_path):
    path = write_lines(tmp_path / "site.jsonl", [GOOD])
    for words, message in (
        (["--field", "output"], "'output' is not FIELD=COLUMN"),
        (["--field", "=output"], "'=output' is not FIELD=COLUMN"),
        (["--field", "a=b"], "not a field"),
    ):
        done = check(path, *words)
        assert done.exit_code == MISTAKE and message in done.stderr


def test_a_site_whose_file_cannot_be_read_is_told_of(check, tmp_path):
    write_lines(tmp_path / "sites" / "north.jsonl", [GOOD])
    (tmp_path / "sites" / "west.ods").write_bytes(b"")
    done = check(tmp_path / "sites")
    assert done.exit_code == 1 and "west.ods: unknown type of file '.ods'" in done.stdout
    done = check(tmp_path / "sites", "--ignore", "*.ods")
    assert done.exit_code == 0 and "west.ods: ignored, no site's file" in done.stdout

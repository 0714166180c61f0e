"""What is told of files before a run."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from murmura.data.check import check
from murmura.data.records import Document, Instruction, Labelled
from murmura.errors import DataError

GOOD = {"instruction": "Explain", "output": "A rise"}
OTHER = {"instruction": "Explain", "output": "A fall"}


def told(records):
    return [f"{record.where}: {record.why}" for record in records]


def test_everything_bad_and_repeated_is_told(jsonl):
    path = jsonl(GOOD, b"{", {"instruction": "Explain"}, OTHER, GOOD)
    [found] = check([str(path)], Instruction)
    assert (found.file, found.records, found.fault, found.usable) == (str(path), 3, None, False)
    assert [line.partition(" (")[0] for line in told(found.bad)] == [
        f"{path}:2: not one JSON object a line",
        f"{path}:3: record without 'output'",
    ]
    assert told(found.repeats) == [f"{path}:5: the same as {path}:1"]


def test_a_record_of_an_earlier_file_is_a_repeat(jsonl, tmp_path):
    site, held_out = jsonl(GOOD, name="site.jsonl"), jsonl(OTHER, GOOD, name="heldout.jsonl")
    first, second = check([str(site), str(held_out)], Instruction)
    assert first.repeats == [] and first.usable and second.usable
    assert told(second.repeats) == [f"{held_out}:2: the same as {site}:1"]


def test_a_record_that_differs_in_white_space_or_unicode_s_form_is_a_repeat(jsonl, tmp_path):
    table = tmp_path / "site.csv"
    table.write_bytes('instruction,output\na,"one\r\ntwo"\nb , one\nc,e\u0301\nC,e\n'.encode())
    rows = [("a", "one\ntwo"), ("b", "one"), ("c", "\u00e9")]
    other = jsonl(*({"instruction": asked, "output": said} for asked, said in rows), name="heldout.jsonl")
    alone, repeated = check([str(table), str(other)], Instruction)
    assert (len(alone.repeats), len(repeated.repeats)) == (0, 3)


def test_labelled_texts_are_the_same_whatever_their_labels(jsonl):
    path = jsonl({"text": "a", "label": "good"}, {"text": "a"}, {"text": "b"})
    assert told(check([str(path)], Labelled)[0].repeats) == [f"{path}:2: the same as {path}:1"]


def test_every_type_of_file_kind_of_record_and_mapping(tmp_path):
    csv, parquet = tmp_path / "a.csv", tmp_path / "b.parquet"
    csv.write_text("note,owner\nplain,x\n,x\nlast,\n")
    pq.write_table(pa.table({"note": ["one", None], "owner": ["x", "y"]}), parquet)
    found = check([str(csv), str(parquet)], Document, {"text": "note"}, "owner")
    assert [told(one.bad) for one in found] == [
        [f"{csv}:3: 'note' is empty", f"{csv}:4: 'owner' is empty"],
        [f"{parquet}: row 2: record without 'note' (it has 'owner')"],
    ]


def test_a_file_of_no_use_does_not_keep_the_others_from_being_read(jsonl, tmp_path):
    empty, good = jsonl(name="empty.jsonl"), jsonl(GOOD, name="good.jsonl")
    lacking = jsonl({"instruction": "a", "answer": "b"}, name="lacking.jsonl")
    paths = [str(tmp_path / "absent.jsonl"), str(empty), str(lacking), str(good)]
    found = check(paths, Instruction)
    assert [one.usable for one in found] == [False, False, False, True]
    for one, fault in zip(found, ("no such file", "holds no records", "no column 'output'"), strict=False):
        assert one.fault.startswith(one.file) and fault in one.fault


def test_a_folder_stands_for_its_sites(jsonl, tmp_path):
    paths = [jsonl(GOOD, name="b.jsonl"), jsonl(OTHER, name="a.jsonl")]
    about = tmp_path / "README.md"
    about.write_text("about the sites")
    found = check([str(tmp_path)], Instruction)
    assert [one.file for one in found] == [*sorted(map(str, paths)), str(about)]
    assert [(one.usable, one.ignored) for one in found] == [(True, False), (True, False), (True, True)]


def test_of_a_folder_what_no_site_can_be_made_of_is_a_fault(jsonl, tmp_path):
    jsonl(GOOD, name="b.jsonl")
    (tmp_path / "west.ods").write_bytes(b"")
    (tmp_path / "east").mkdir()
    found = {one.file.rpartition("/")[2]: one for one in check([str(tmp_path)], Instruction)}
    assert [found[name].usable for name in ("b.jsonl", "west.ods", "east")] == [True, False, False]
    assert "unknown type of file '.ods'" in found["west.ods"].fault and "a folder" in found["east"].fault
    ignoring = check([str(tmp_path)], Instruction, ignore=["*.ods", "east"])
    assert [one.ignored for one in ignoring] == [False, True, True] and all(one.usable for one in ignoring)


def test_a_name_to_ignore_that_nothing_has_is_a_mistake_of_the_whole_call(jsonl, tmp_path):
    east, west = tmp_path / "east", tmp_path / "west"
    for folder in (east, west):
        folder.mkdir()
    (east / "a.jsonl").write_text(jsonl(GOOD).read_text())
    (west / "b.jsonl").write_text(jsonl(OTHER).read_text())
    (west / "notes.ods").write_bytes(b"")
    both = [str(east), str(west)]
    assert sum(one.ignored for one in check(both, Instruction, ignore=["*.ods"])) == 1
    with pytest.raises(DataError, match=r"nothing here is called 'notes\.odt', to ignore\. Did you mean 'notes\.ods'"):
        check(both, Instruction, ignore=["notes.odt"])
    with pytest.raises(DataError, match="only folders hold files to ignore, and none is given"):
        check([str(jsonl(GOOD))], Instruction, ignore=["*.ods"])
    (missing,) = check([str(tmp_path / "nowhere.jsonl")], Instruction, ignore=["*.ods"])
    assert "nowhere.jsonl" in missing.fault


def test_a_mapping_of_no_field_is_a_mistake_of_the_whole_call(jsonl):
    with pytest.raises(DataError, match="'answer' is not a field of Instruction records"):
        check([str(jsonl(GOOD))], Instruction, {"answer": "output"})

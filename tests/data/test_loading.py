import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from murmura.data.loading import load_records, refuse_alike, require_usable, scan, scan_sites
from murmura.data.records import Document, Instruction, Labelled
from murmura.errors import DataError

GOOD = {"instruction": "Explain", "input": "a fever", "output": "A rise in ..."}


def load_sites(folder, kind=Instruction, fields=None, skip_bad=False):
    sites = scan_sites(folder, kind, fields=fields)
    require_usable(list(sites.values()), skip_bad=skip_bad)
    return sites


def test_the_same_records_from_every_type_of_file(jsonl, tmp_path):
    rows = [GOOD, {"instruction": 'Say "hello",\nplease', "input": None, "output": "hello"}]
    expected = [Instruction("Explain", "a fever", "A rise in ..."), Instruction('Say "hello",\nplease', "", "hello")]
    csv = tmp_path / "site.csv"
    csv.write_text(
        'instruction,input,output\nExplain,a fever,A rise in ...\n"Say ""hello"",\nplease",,hello\n', encoding="utf-8"
    )
    parquet = tmp_path / "site.parquet"
    pq.write_table(pa.Table.from_pylist(rows), parquet)
    for path in (jsonl(*rows), csv, parquet, str(parquet)):
        loaded = load_records(path, Instruction)
        assert loaded.records == expected
        assert loaded.sites is None
        assert loaded.bad == []


def test_other_kinds_and_renamed_fields(jsonl):
    path = jsonl({"review": "dull", "stars": 1}, {"review": "fine", "stars": "2"})
    assert load_records(path, Labelled, fields={"text": "review", "label": "stars"}).records == [
        Labelled("dull", "1"),
        Labelled("fine", "2"),
    ]
    assert load_records(path, Document, fields={"text": "review"}).records == [Document("dull"), Document("fine")]


def test_a_record_without_output_names_file_line_what_is_expected_and_the_way_round(jsonl):
    path = jsonl(GOOD, {"question": "Explain", "answer": "A rise"})
    with pytest.raises(DataError) as error:
        load_records(path, Instruction)
    assert error.value.where == f"{path}:2"
    assert error.value.what == "record without 'instruction' (it has 'question', 'answer')"
    assert error.value.fix == (
        "Expected 'instruction' and 'output', and where needed 'input'. "
        "If another column holds it: fields = {instruction = 'COLUMN'}. "
        "To leave them out and count them: --skip-bad."
    )


@pytest.mark.parametrize(
    "line", [b'{"instruction": "a", "output": ""}', b"{broken", b'{"instruction": "caf\xe9", "output": "b"}']
)
def test_bad_records_stop_the_load_or_are_dropped_and_counted(jsonl, line):
    path = jsonl(GOOD, line, GOOD, line)
    with pytest.raises(
        DataError, match=rf"(?s)2 of 4 records cannot be used:\n  {path}:2: .*\n  {path}:4: .*--skip-bad"
    ):
        load_records(path, Instruction)
    loaded = load_records(path, Instruction, skip_bad=True)
    assert len(loaded.records) == 2
    assert [str(bad.where) for bad in loaded.bad] == [f"{path}:2", f"{path}:4"]


def test_a_key_that_some_records_spell_otherwise_is_told_by_its_line(jsonl):
    other = {"instruction": "c", "Input": "ctx", "output": "d"}
    with pytest.raises(DataError, match=r"record without 'input', but with 'Input'\. Call it 'input'") as error:
        load_records(path := jsonl(GOOD, other), Instruction)
    assert error.value.where == f"{path}:2"
    with pytest.raises(DataError, match="no column 'input', but one called 'Input'"):
        load_records(jsonl(other, other), Instruction)
    several = {"instruction": "c", "inputs": ["ctx"], "output": "d"}  # another column, which other rows may have too
    assert load_records(jsonl(GOOD, GOOD | {"inputs": []}, several), Instruction).records[2].input == ""


def test_what_is_expected_is_said_once(jsonl):
    path = jsonl(GOOD, {"question": "Explain", "answer": "A rise"}, {"instruction": "a", "output": ""})
    with pytest.raises(DataError) as error:
        load_records(path, Instruction)
    assert error.value.fix.count("Expected") == error.value.fix.count("If another column") == 1


def test_all_bad_records_are_told_at_once_the_first_ten_by_line(jsonl):
    path = jsonl(GOOD, *[{"instruction": "a", "output": ""}] * 11, b"{", GOOD)
    with pytest.raises(DataError) as error:
        load_records(path, Instruction)
    first, *lines, last = str(error.value).splitlines()
    assert first == "12 of 14 records cannot be used:"
    assert lines == [f"  {path}:{n}: 'output' is empty" for n in range(2, 12)] + ["  ... and 2 more"]
    assert last == (
        "Expected 'instruction' and 'output', and where needed 'input'. To leave them out and count them: --skip-bad."
    )


def test_a_csv_record_in_the_wrong_encoding_is_named_by_its_line(tmp_path):
    path = tmp_path / "site.csv"
    path.write_bytes(b"text\nplain\ncaf\xe9\n")
    with pytest.raises(DataError, match=rf"{path}:3: 'text' is not valid UTF-8\. .*iconv -f cp1252.*--skip-bad"):
        load_records(path, Document)
    [bad] = load_records(path, Document, skip_bad=True).bad
    assert (str(bad.where), bad.why) == (f"{path}:3", "'text' is not valid UTF-8")


def test_a_label_that_is_a_boolean_is_named_by_its_line(jsonl):
    path = jsonl({"text": "a", "label": "yes"}, {"text": "b", "label": True})
    with pytest.raises(DataError, match=rf"{path}:2: 'label' is of type bool.*Write it as text.*--skip-bad"):
        load_records(path, Labelled)


def test_a_file_without_a_usable_record_is_refused(jsonl):
    with pytest.raises(DataError, match=r"holds no records\. Expected 'instruction' and 'output'"):
        load_records(jsonl(), Instruction)
    with pytest.raises(DataError, match=r"holds no records"):
        load_records(jsonl(b"", b" "), Instruction)
    path = jsonl(b"{", {"instruction": "a", "output": ""})
    with pytest.raises(DataError, match=rf"none of the 2 records can be used:\n  {path}:1: not one JSON"):
        load_records(path, Instruction, skip_bad=True)
    with pytest.raises(DataError, match="no column 'output'"):
        load_records(jsonl({"instruction": "a", "answer": "b"}), Instruction, skip_bad=True)


def test_a_user_column_gives_sites(jsonl):
    rows = [GOOD | {"clinic": name, "output": str(n)} for n, name in enumerate(["skin", "heart", "skin"])]
    loaded = scan(jsonl(*rows), Instruction, site_column="clinic")
    assert loaded.sites == ["skin", "heart", "skin"]


def test_sites_that_capitals_alone_tell_apart_are_refused():
    names = ["North", "south", "north", "NORTH", "north", "east"]
    told = r"^a\.csv: names of sites in column 'clinic' differ in capitals alone: 'NORTH' \(1 record\), 'North' "
    with pytest.raises(DataError, match=told + r"\(1 record\) and 'north' \(2 records\)\. Write each"):
        refuse_alike(names, "clinic", "a.csv")
    with pytest.raises(DataError, match=r"(?s)alone:\n  'EAST' .* and 'east' .*\n  'NORTH'.*\nWrite each"):
        refuse_alike([*names, "EAST"], "clinic", "a.csv")
    refuse_alike(["north", "south", "north"], "clinic", "a.csv")


def test_sites_stay_beside_their_records_when_some_are_dropped(jsonl):
    path = jsonl(GOOD | {"clinic": "a"}, GOOD, b"{", GOOD | {"clinic": "b"})
    loaded = scan(path, Instruction, site_column="clinic")
    assert loaded.sites == ["a", "b"]
    assert loaded.bad[0].why.startswith("record without 'clinic'")


def test_sources_that_are_not_there(jsonl, tmp_path):
    jsonl(GOOD, name="clinic.jsonl")
    with pytest.raises(DataError, match=r"there is no such file\. Did you mean 'clinic.jsonl'"):
        load_records(tmp_path / "clinics.jsonl", Instruction)
    with pytest.raises(DataError, match=r"there is no such file.*owner/name"):
        load_records("imdb", Instruction)
    with pytest.raises(DataError, match=r"there is no such file\. Write '~' out"):
        load_records("~/imdb.jsonl", Instruction)
    with pytest.raises(DataError, match="a folder where a file is expected"):
        load_records(tmp_path, Instruction)
    with pytest.raises(DataError, match="a file has no split 'test'"):
        load_records(tmp_path / "clinic.jsonl", Instruction, split="test")
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "moved.jsonl")
    with pytest.raises(DataError, match=r"a link that leads nowhere\. It points to .*moved\.jsonl"):
        load_records(tmp_path / "link.jsonl", Instruction)


@pytest.mark.parametrize(
    "source", ["https://x.y/z.jsonl", "http://x.y/a", "s3://bucket/z.csv", "hf://datasets/a/b.csv"]
)
def test_an_address_is_to_be_downloaded_first(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=rf"^{source}: an address, .* disk\. Download it first.*by owner/name"):
        load_records(source, Instruction)
    with pytest.raises(DataError, match="an address, not a file"):
        load_records(Path(source), Instruction)
    with pytest.raises(DataError, match="there is no such file"):
        load_records("c:/absent.jsonl", Instruction)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(DataError, match="no ordinary file, but a pipe or a device"):
        load_records(tmp_path / "pipe.jsonl", Instruction)


def test_one_file_a_site(jsonl, tmp_path):
    jsonl(GOOD, name="skin.jsonl")
    jsonl(GOOD, GOOD, b"{", name="heart.v2.JSONL")
    (tmp_path / "README.md").write_text("about the clinics")
    (tmp_path / ".hidden.jsonl").write_text("{")
    sites = load_sites(tmp_path, skip_bad=True)
    assert list(sites) == ["heart.v2", "skin"]
    assert [len(loaded.records) for loaded in sites.values()] == [2, 1]
    assert [len(loaded.bad) for loaded in sites.values()] == [1, 0]
    with pytest.raises(DataError, match=r"heart\.v2\.JSONL:3"):
        load_sites(tmp_path)
    jsonl(GOOD, b"{", name="skin.jsonl")
    with pytest.raises(DataError, match=r"(?s)2 of 5 records cannot be used:.*heart\.v2\.JSONL:3.*skin\.jsonl:2"):
        load_sites(tmp_path)


def test_fields_hold_for_every_site(jsonl, tmp_path):
    for name in ("a.jsonl", "b.jsonl"):
        jsonl({"note": "one"}, name=name)
    sites = load_sites(tmp_path, Document, fields={"text": "note"})
    assert {name: loaded.records for name, loaded in sites.items()} == {"a": [Document("one")], "b": [Document("one")]}


@pytest.mark.parametrize("twin", ["skin.csv", "SKIN.json"])
def test_two_files_of_one_site_are_refused(jsonl, tmp_path, twin):
    jsonl(GOOD, name="skin.jsonl")
    (tmp_path / twin).write_text("instruction,output\na,b\n")
    with pytest.raises(DataError, match=r"both name the site"):
        load_sites(tmp_path)


def test_an_empty_site_is_refused_by_name_or_has_no_records(jsonl, tmp_path):
    jsonl(GOOD, name="skin.jsonl")
    jsonl(name="heart.jsonl")
    with pytest.raises(DataError, match=r"heart\.jsonl: holds no records\. .*--skip-bad"):
        load_sites(tmp_path)
    found = load_sites(tmp_path, skip_bad=True)
    assert {name: len(loaded.records) for name, loaded in found.items()} == {"heart": 0, "skin": 1}
    jsonl(name="skin.jsonl")
    with pytest.raises(DataError, match=r"heart\.jsonl: holds no records\. .* in each record\.$"):
        load_sites(tmp_path, skip_bad=True)
    jsonl(b"{", name="skin.jsonl")
    with pytest.raises(DataError, match=r"skin\.jsonl:1: not one JSON"):
        load_sites(tmp_path, skip_bad=True)


def test_folders_without_sites(tmp_path):
    with pytest.raises(DataError, match=r"no site's file.*Expected one file a site: \.jsonl"):
        load_sites(tmp_path)
    with pytest.raises(DataError, match="there is no such folder"):
        load_sites(tmp_path / "absent")
    file = tmp_path / "a.jsonl"
    file.write_text("")
    with pytest.raises(DataError, match=r'not a folder.*data\.sites\.by = "column".*data\.sites\.by = "partition"'):
        load_sites(file)


def test_columns_of_single_sites(tmp_path):
    (tmp_path / "a.csv").write_text("instruction,answer\nExplain,A rise\n")
    (tmp_path / "b c.csv").write_text("Frage,answer\nWarum?,Darum.\n")
    options = {"kind": Instruction, "fields": {"output": "answer"}}
    sites = scan_sites(tmp_path, of_sites={"b c": {"instruction": "Frage"}}, **options)
    assert sites["a"].records == [Instruction("Explain", "", "A rise")]
    assert sites["b c"].records == [Instruction("Warum?", "", "Darum.")]
    with pytest.raises(DataError, match="for site 'bc', which has no file") as error:
        scan_sites(tmp_path, of_sites={"bc": {}}, **options)
    assert error.value.fix == "Did you mean 'b c'?"


def test_the_way_round_for_one_site_of_several(tmp_path):
    (tmp_path / "a.csv").write_text("instruction,output\nExplain,A rise\n")
    (tmp_path / "b {c}.csv").write_text("Frage,output\nWarum?,Darum.\n")
    with pytest.raises(DataError) as error:
        scan_sites(tmp_path, Instruction)
    columns = "fields = {instruction = 'COLUMN'}"
    assert (
        f"{columns}, or in this site's file alone sites.{columns}".replace("sites.fields", 'sites.fields."b {c}"')
        in error.value.fix
    )
    (tmp_path / "a.csv").unlink()
    with pytest.raises(DataError) as error:
        scan_sites(tmp_path, Instruction)
    assert "alone" not in error.value.fix

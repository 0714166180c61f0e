"""Nothing in a folder of sites goes unread without a word."""

import os

import pytest

from murmura.data.folder import entries, site_files
from murmura.errors import DataError


@pytest.fixture
def folder(tmp_path):
    def make(*names):
        for name in names:
            path = tmp_path / name
            if name.endswith("/"):
                path.mkdir()
            else:
                path.write_text("x")
        return tmp_path

    return make


def test_every_type_that_is_read_is_a_site_by_its_name_without_the_ending(folder):
    place = folder("b.jsonl", "A.csv.gz", "c.v2.XLSX", "d.parquet", "e.jsonl.GZ", "f.tsv")
    assert list(site_files(place)) == ["A", "b", "c.v2", "d", "e", "f"]


def test_a_folder_of_nearly_that_name_is_proposed(folder):
    place = folder("clinics/", "clinic.csv")
    with pytest.raises(
        DataError, match=r"clinic: there is no such folder\. Did you mean 'clinics'\? Expected a folder"
    ):
        entries(place / "clinic")
    with pytest.raises(DataError, match=r"there is no such folder\. Expected"):
        entries(place / "wards")


def test_whatever_cannot_be_read_is_refused_by_name(folder):
    place = folder("north.jsonl", "west.ods", "east/", "south.parquet.gz", "notes")
    with pytest.raises(DataError) as error:
        site_files(place)
    assert error.value.where == str(place)
    assert error.value.what.splitlines()[1:] == ["  east/", "  notes", "  south.parquet.gz", "  west.ods"]
    assert "data.sites.ignore = ['east', 'notes', 'south.parquet.gz', 'west.ods']" in error.value.fix


def test_a_folder_called_like_a_file_is_none(folder):
    with pytest.raises(DataError, match=r"1 entry .*\n  west\.csv/"):
        site_files(folder("north.jsonl", "west.csv/"))


def test_what_is_ignored_is_said(folder, capsys):
    place = folder("north.jsonl", "west.ods", "old/", "held-out.csv", "README.md", "LICENSE")
    found = site_files(place, ["*.ODS", "old", "held-out.csv"])
    assert list(found) == ["north"]
    said = capsys.readouterr().err
    assert all(name in said for name in ("west.ods", "old", "held-out.csv", "README.md", "LICENSE"))
    with pytest.raises(
        DataError, match=r"nothing here is called 'heldout\.csv', to ignore\. Did you mean 'held-out.csv'"
    ):
        site_files(place, ["*.ods", "old", "heldout.csv"])


def test_what_systems_leave_behind_is_nobodys_file(folder, capsys):
    place = folder("north.xlsx", "~$north.xlsx", ".DS_Store", ".old.csv", "Thumbs.db", "desktop.ini")
    found = entries(place)
    assert (list(found.sites), found.ignored, found.others) == (["north"], [], [])
    site_files(place)
    assert capsys.readouterr().err == ""


def test_files_of_a_site_whose_name_stands_in_two_forms_are_refused(folder):
    with pytest.raises(DataError, match="both name the site 'K\u00f6ln'"):
        site_files(folder("K\u00f6ln.jsonl", "Ko\u0308ln.jsonl"))


def test_a_packed_file_and_a_plain_one_of_one_site_are_refused(folder):
    with pytest.raises(DataError, match=r"'west\.csv' and 'west\.jsonl\.gz' both name the site 'west'"):
        site_files(folder("west.csv", "west.jsonl.gz"))


def test_a_name_that_is_no_text_is_told(folder):
    with pytest.raises(DataError, match=r"the name of this file is not in UTF-8\. Rename it"):
        site_files(folder(os.fsdecode("müd.csv".encode("latin-1"))))


def test_a_folder_of_nothing_but_what_cannot_be_read(folder):
    with pytest.raises(DataError, match=r"west\.ods"):
        site_files(folder("west.ods"))

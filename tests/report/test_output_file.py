"""A file that a user asked for is there whole, or the one before it is."""

import os

import pytest

from murmura.errors import CheckpointError, ConfigError
from murmura.report.output_file import replacing, require_own


def write(path, text):
    with replacing(path, "the list", "--list") as stream:
        stream.write(text)


def test_a_file_is_replaced_and_its_folder_made(tmp_path):
    path = tmp_path / "some" / "folder" / "list.csv"
    for text in ("one\r\n", "né\n"):
        write(path, text)
        assert path.read_bytes() == text.encode()
    assert [one.name for one in path.parent.iterdir()] == ["list.csv"]


def test_what_stops_half_way_leaves_what_was_there(tmp_path):
    path = tmp_path / "list.csv"
    write(path, "before")
    with pytest.raises(KeyError), replacing(path, "the list", "--list") as stream:
        stream.write("half")
        raise KeyError
    assert path.read_text() == "before"
    assert [one.name for one in tmp_path.iterdir()] == ["list.csv"]


@pytest.mark.parametrize("place", ["file/list.csv", "folder"])
def test_a_place_where_no_file_can_be_is_told_before_any_work(tmp_path, place):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    with (
        pytest.raises(CheckpointError, match=r"the list cannot be written \(.*\)\. Give another --list\."),
        replacing(tmp_path / place, "the list", "--list"),
    ):
        pytest.fail("this is the work")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["file", "folder"]


def test_a_pipe_is_left_alone(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CheckpointError, match=r"the list cannot be written \(it is a device or a pipe"):
        write(tmp_path / "pipe", "text")
    assert (tmp_path / "pipe").is_fifo()


def test_what_went_wrong_with_another_file_is_not_blamed_on_this_one(tmp_path):
    missing = tmp_path / "model" / "weights"
    with pytest.raises(FileNotFoundError, match="weights"), replacing(tmp_path / "a.csv", "the table", "--out"):
        missing.read_bytes()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", ["--out", "--markdown", "--sheet"])
@pytest.mark.parametrize("text", ["[run]\nname = 'a'\n", '{"instruction": "x"}\n', "# Notes\n"])
def test_only_a_report_is_replaced(tmp_path, option, text):
    place = tmp_path / "named"
    require_own({option: place})
    place.write_text(text)
    with pytest.raises(ConfigError, match="is not a report"):
        require_own({option: place})
    page = '\n<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    for mine in ("- **My own list**\n", page):
        place.write_text(mine)
        with pytest.raises(ConfigError, match="is not a report"):
            require_own({option: place})
    told = "- **Which is better?** FedAvg"
    place.write_text(told if option == "--markdown" else f'{page}<meta name="generator" content="murmura">\n')
    require_own({option: place})


def test_two_options_do_not_name_one_file(tmp_path):
    with pytest.raises(ConfigError, match="--out and --sheet name the same file"):
        require_own({"--out": tmp_path / "a.html", "--sheet": tmp_path / "b" / ".." / "a.html"})

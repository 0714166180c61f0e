"""A file that is killed at any byte, grows, and is read in the samples' order."""

import errno
import json

import pytest

from murmura.errors import CheckpointError
from murmura.synthesis import answers
from murmura.synthesis.answers import Answers, Texts

ASKED = {"set of seeds": "abc", "generator": {"top_p": 0.9}, "stream": [0, "expand"]}
LINES = [
    {"sample": 3, "attempt": 0, "text": "½ of\u2028it", "finished": True},
    {"sample": 0, "attempt": 0, "fault": "empty"},
    {"sample": 1, "attempt": 0, "text": "two", "finished": False},
    {"sample": 0, "attempt": 1, "text": "one", "finished": True},
    {"sample": 2, "attempt": 0, "fault": "too_short"},
]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "texts.jsonl"
    kept = Answers(path, ASKED, 4)
    kept.add(LINES[:3])
    kept.add(LINES[3:])
    return path


def state(kept):
    return kept.missing(3).tolist(), [kept.attempts(sample) for sample in kept.missing(3)], kept.texts, kept.faults


def test_what_was_answered_is_known_again(path):
    found = state(Answers(path, ASKED, 4))
    assert found == ([2], [1], 3, {"empty": 1, "too_short": 1})
    assert Answers(path, ASKED, 4).missing(1).tolist() == []
    assert list(Texts(path, 4)) == [LINES[3]["text"], LINES[2]["text"], LINES[0]["text"]]
    texts = Texts(path, 4)
    assert (len(texts), texts[-1], texts[:2]) == (3, LINES[0]["text"], [LINES[3]["text"], LINES[2]["text"]])
    assert texts.finished.tolist() == [True, False, True]
    with pytest.raises(IndexError):
        Texts(path, 4)[3]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_process_may_be_killed_at_any_byte(path, tmp_path):
    """What is whole stays, what is not is cut off, and when the rest has been added the file is what it was."""
    data, lines = path.read_bytes(), [ASKED, *LINES]
    ends = [sum(len(part) + 1 for part in data.split(b"\n")[:count]) for count in range(1, len(lines) + 1)]
    torn, expected = tmp_path / "torn.jsonl", state(Answers(path, ASKED, 4))
    for size in range(len(data) + 1):
        torn.write_bytes(data[:size])
        kept = Answers(torn, ASKED, 4)
        whole = max(sum(end <= size for end in ends), 1)
        assert torn.read_bytes() == data[: ends[whole - 1]]
        kept.add(LINES[whole - 1 :])
        assert torn.read_bytes() == data
        assert state(kept) == expected


def test_a_line_that_is_being_written_is_not_read(path):
    with path.open("a") as stream:
        stream.write('{"sample": 2, "attempt": 1, "te')
    assert len(Texts(path, 4)) == 3


def test_there_may_be_more_samples_than_last_time_or_fewer(path):
    assert Answers(path, ASKED, 6).missing(3).tolist() == [2, 4, 5]
    fewer = Answers(path, ASKED, 2)
    assert (fewer.missing(3).tolist(), fewer.texts, len(Texts(path, 2))) == ([], 2, 2)


def test_texts_that_were_begun_with_something_else_are_left_alone(path):
    before = path.read_bytes()
    other = ASKED | {"set of seeds": "xyz", "generator": {"top_p": 1.0}}
    with pytest.raises(
        CheckpointError, match=r"with another generator and another set of seeds\. Move it away"
    ) as caught:
        Answers(path, other, 4)
    assert caught.value.where == str(path) and path.read_bytes() == before


DAMAGED = ["", "{}", "[1]", "nothing", '{"sample": 1, "attempt": 0}', '{"sample": 1, "text": "a"}', '{"sample": 1']


@pytest.mark.parametrize("line", DAMAGED)
def test_a_damaged_line_is_told_with_its_number(path, line):
    lines = path.read_text().split("\n")
    lines[2] = line
    path.write_text("\n".join(lines))
    with pytest.raises(CheckpointError, match=rf"{path}:3: the line is damaged\. Take it out"):
        Answers(path, ASKED, 4)
    with pytest.raises(CheckpointError, match="the line is damaged"):
        Texts(path, 4)


def test_a_disk_that_is_full_costs_nothing(path, monkeypatch):
    kept, before = Answers(path, ASKED, 4), path.read_bytes()

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(answers.os, "fsync", full)
    with pytest.raises(CheckpointError, match=r"cannot be kept \(No space left on device\)\. Free some space, then"):
        kept.add([{"sample": 2, "attempt": 1, "text": "three", "finished": True}])
    monkeypatch.undo()
    assert path.read_bytes() == before
    kept.add([{"sample": 2, "attempt": 1, "text": "three", "finished": True}])
    assert len(Texts(path, 4)) == 4
    with pytest.raises(CheckpointError, match="cannot be kept"):
        Answers(path.parent, ASKED, 4)
    with pytest.raises(CheckpointError, match="cannot be read"):
        Texts(path.parent / "nowhere", 4)


def test_lines_are_json_that_anybody_can_read(path):
    assert [json.loads(line) for line in path.read_text().split("\n")[:-1]] == [ASKED, *LINES]

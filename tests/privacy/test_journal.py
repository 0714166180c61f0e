"""A journal's lines are on the disk before anything relies on them, and none is lost unnoticed."""

import errno
import hashlib
import json

import pytest

from murmura import atomic
from murmura.errors import CheckpointError, PrivacyError
from murmura.privacy.journal import Journal

LINES = [{"plan": {"steps": 3}}, {"round": 1, "spent": []}, {"round": 2, "spent": [{"rate": 0.1}]}]


@pytest.fixture
def path(tmp_path):
    journal = Journal(tmp_path / "privacy" / "site-a")
    for line in LINES:
        journal.append(line)
    return journal.path


def test_what_was_added_is_there_in_its_order(path):
    again = Journal(path)
    assert again.lines == LINES
    again.append({"round": 3})
    assert Journal(path).lines == [*LINES, {"round": 3}]


def test_one_without_a_file(tmp_path):
    journal = Journal()
    journal.append({"round": 1})
    assert journal.lines == [{"round": 1}]
    assert Journal(tmp_path / "none").lines == [] and not (tmp_path / "none").exists()


def test_nobody_but_the_owner_may_read_it(path):
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_line_is_synced_before_append_returns(path, monkeypatch):
    journal, synced = Journal(path), []
    monkeypatch.setattr("os.fsync", lambda descriptor: synced.append(path.read_bytes().count(b"\n")))
    journal.append({"round": 3})
    assert synced == [4]


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_a_line_that_was_never_finished_is_taken_off(path, cut):
    """The process ended while it wrote; what the line tells of has not left."""
    path.write_bytes(path.read_bytes()[:-cut])
    again = Journal(path)
    assert again.lines == LINES[:2]
    again.append(LINES[2])
    assert Journal(path).lines == LINES


@pytest.mark.parametrize("line", [1, 2, 3])
@pytest.mark.parametrize("place", [0, 8, 20])
def test_one_flipped_bit_is_noticed_and_its_line_named(path, line, place):
    whole = path.read_bytes().split(b"\n")
    damaged = bytearray(whole[line - 1])
    damaged[place] ^= 1
    path.write_bytes(b"\n".join([*whole[: line - 1], bytes(damaged), *whole[line:]]))
    with pytest.raises(PrivacyError, match=rf"site-a:{line}: the privacy ledger is damaged or was edited"):
        Journal(path)


def rewritten(path, lines):
    """The file as somebody writes it who knows how lines are chained."""
    head, text = "", ""
    for line in map(json.dumps, lines):
        head = hashlib.sha256(f"{head} {line}".encode()).hexdigest()
        text += f"{head} {line}\n"
    path.write_text(text)


EDITS = {
    "a line is changed": [LINES[0], {"round": 1, "spent": [{"rate": 0.9}]}, LINES[2]],
    "two change places": [LINES[0], LINES[2], LINES[1]],
    "one is taken out": [LINES[0], LINES[2]],
    "the last is cut off": LINES[:2],
    "all are gone": [],
}


@pytest.mark.parametrize("edited", EDITS.values(), ids=EDITS)
def test_lines_that_were_edited_by_hand_are_refused(path, edited):
    """Each line as it was written, with its own digest: the chain is broken, except at the end."""
    own = dict(zip(map(json.dumps, LINES), path.read_text().splitlines(), strict=True))
    anchor = Journal(path).anchor
    path.write_text("".join(own.get(json.dumps(line), f"{'0' * 64} {json.dumps(line)}") + "\n" for line in edited))
    with pytest.raises(PrivacyError, match=r"was edited|had 3 when the run was last saved"):
        Journal(path).check(anchor)


@pytest.mark.parametrize("edited", EDITS.values(), ids=EDITS)
def test_a_chain_that_was_made_anew_does_not_end_where_the_anchor_is(path, edited):
    journal = Journal(path)
    rewritten(path, LINES)
    Journal(path).check(journal.anchor)
    rewritten(path, edited)
    with pytest.raises(PrivacyError, match=r"lines were others when the run was last saved|had 3 when"):
        Journal(path).check(journal.anchor)


def test_lines_after_an_anchor_are_no_matter(path):
    before = Journal(path).anchor
    journal = Journal(path)
    journal.append({"round": 3})
    journal.check(before)
    Journal(path).check(before)
    with pytest.raises(PrivacyError, match="had 4 when"):
        rewritten(path, LINES)
        Journal(path).check(journal.anchor)


def test_peeking_leaves_a_line_alone_that_another_process_is_writing(path):
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    peeked = Journal.peek(path)
    assert peeked.lines == LINES[:2] and path.read_bytes() == whole[:-5]
    assert peeked.anchor == {"lines": 2, "head": whole.split(b"\n")[1].split()[0].decode()}
    before_any = path.with_name("not begun")
    assert Journal.peek(before_any).lines == [] and not before_any.exists()


def test_a_line_that_cannot_be_written_stops_what_it_tells_of(path, monkeypatch):
    journal = Journal(path)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(atomic, "append", full)
    with pytest.raises(CheckpointError, match=r"cannot be written \(No space left"):
        journal.append({"round": 3})
    assert journal.lines == LINES


def test_a_first_line_that_was_never_finished_is_dropped(tmp_path):
    file = tmp_path / "new.journal"
    file.write_bytes(b'abcdef {"plan"')
    journal = Journal(file)
    for line in LINES:
        journal.append(line)
    assert Journal(file).lines == LINES


def test_one_that_may_not_be_read_is_not_an_empty_one(tmp_path):
    with pytest.raises(OSError, match="too long"):
        Journal.peek(tmp_path / ("n" * 300))
    assert Journal.peek(tmp_path / "none").lines == []

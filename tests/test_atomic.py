"""Files are written whole, or what was there before is left."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from murmura import atomic


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_replaced_and_no_draft_is_left(tmp_path):
    for text in (b"one", b"two"):
        with atomic.replacing(tmp_path / "a") as stream:
            stream.write(text)
        assert (tmp_path / "a").read_bytes() == text
    assert names(tmp_path) == ["a"]


def test_a_file_that_cannot_be_written_stays_as_it_was(tmp_path, monkeypatch):
    atomic.write(tmp_path / "a", b"before")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        atomic.write(tmp_path / "a", b"after")
    assert (tmp_path / "a").read_bytes() == b"before"
    assert names(tmp_path) == ["a"]


def test_what_stops_half_way_leaves_what_was_there(tmp_path):
    (tmp_path / "a").write_bytes(b"before")
    with pytest.raises(KeyboardInterrupt), atomic.replacing(tmp_path / "a") as stream:
        stream.write(b"half")
        raise KeyboardInterrupt
    assert (tmp_path / "a").read_bytes() == b"before"
    assert names(tmp_path) == ["a"]


def test_nothing_is_renamed_before_it_is_on_the_disk(tmp_path, monkeypatch):
    done, fsync, replace = [], os.fsync, os.replace
    monkeypatch.setattr("os.fsync", lambda descriptor: (done.append("sync"), fsync(descriptor)))
    monkeypatch.setattr("os.replace", lambda *paths: (done.append("rename"), replace(*paths)))
    with atomic.replacing(tmp_path / "a") as stream:
        stream.write(b"x")
    assert done == ["sync", "rename", "sync"]  # the file, its name, its folder


def test_a_draft_is_found_by_its_pattern(tmp_path):
    atomic.draft_of(tmp_path / "a.json").touch()
    assert len(list(tmp_path.glob(atomic.LEFT_BEHIND))) == 1


@pytest.mark.parametrize(("private", "rights"), [(True, 0o600), (False, 0o644)])
def test_rights(tmp_path, private, rights):
    before = os.umask(0o022)
    try:
        atomic.write(tmp_path / "a", b"x", private=private)
        (tmp_path / "folder").mkdir()
        atomic.make_private(tmp_path / "folder")
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == rights
    assert (tmp_path / "folder").stat().st_mode & 0o777 == 0o700


def test_a_line_that_could_not_be_added_leaves_the_others(tmp_path, monkeypatch):
    path = tmp_path / "ledger" / "lines"
    atomic.append(path, b"one\n")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
        patch.setattr(atomic.os, "fsync", full)
        atomic.append(path, b"tw")
    assert path.read_bytes() == b"one\n"
    atomic.append(path, b"two\n")
    assert path.read_bytes() == b"one\ntwo\n"


def fill(folder, text):
    (folder / "deep").mkdir()
    (folder / "deep" / "weights").write_text(text)
    (folder / "config").write_text(text)


def test_a_folder_is_replaced_whole(tmp_path):
    for text in ("one", "two"):
        with atomic.replacing_folder(tmp_path / "sites" / "a") as draft:
            fill(draft, text)
            assert len(list((tmp_path / "sites").glob(atomic.LEFT_BEHIND))) == 1
        assert names(tmp_path / "sites") == ["a"]
        assert (tmp_path / "sites" / "a" / "deep" / "weights").read_text() == text


@pytest.mark.parametrize("renames", [0, 1])
def test_a_folder_that_cannot_be_replaced_stays(tmp_path, monkeypatch, renames):
    """Stopped while it is written, or after the earlier one was moved out of the way."""
    with atomic.replacing_folder(tmp_path / "a") as draft:
        fill(draft, "before")
    rename = atomic.Path.rename

    def stopped(path, target):
        if path == atomic.draft_of(tmp_path / "a"):
            raise OSError(28, "No space left on device")
        return rename(path, target)

    if renames:
        monkeypatch.setattr(atomic.Path, "rename", stopped)
    with pytest.raises(OSError, match="No space left"), atomic.replacing_folder(tmp_path / "a") as draft:
        fill(draft, "after")
        if not renames:
            raise OSError(28, "No space left on device")
    assert (tmp_path / "a" / "deep" / "weights").read_text() == "before"
    assert names(tmp_path) == ["a"]


def test_no_folder_takes_its_place_before_its_files_are_on_the_disk(tmp_path, monkeypatch):
    synced, sync = [], atomic.sync
    monkeypatch.setattr(atomic, "sync", lambda path: synced.append(path.name) or sync(path))
    with atomic.replacing_folder(tmp_path / "a") as draft:
        fill(draft, "x")
        assert not synced
    assert {"deep", "weights", "config", draft.name} <= set(synced[:-1])
    assert synced[-1] == tmp_path.name


def test_what_killed_processes_left_is_cleared_and_what_they_moved_aside_is_put_back(tmp_path):
    """And nothing else, least of all drafts of others whose names begin like this one."""
    others = [".a.b.7.partial", ".ab.7.partial", ".a.x.partial", "a.7.partial", "..a.b.7.partial"]
    for name in (".a.7.partial", "..a.8.partial", *others):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    (tmp_path / ".a.9.partial").write_text("a file")
    atomic.clear_drafts(tmp_path / "a")
    assert names(tmp_path) == sorted([*others, "a"])
    assert (tmp_path / "a" / "file").read_text() == "..a.8.partial"
    (tmp_path / "..a.8.partial").mkdir()
    atomic.clear_drafts(tmp_path / "a")
    assert names(tmp_path) == sorted([*others, "a"])
    assert (tmp_path / "a" / "file").exists()


def test_a_new_file_belongs_to_whom_the_old_one_belonged(tmp_path, monkeypatch):
    path, given, real = tmp_path / "members.json", [], Path.stat
    atomic.write(path, b"old")
    theirs = SimpleNamespace(st_uid=os.getuid() + 1, st_gid=7)
    monkeypatch.setattr(Path, "stat", lambda self, **how: theirs if self == path else real(self, **how))
    monkeypatch.setattr(os, "chown", lambda draft, *owner: given.append((draft.read_bytes(), *owner)))
    atomic.write(path, b"new", private=True)
    assert given == [(b"new", theirs.st_uid, theirs.st_gid)]

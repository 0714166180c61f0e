"""A run that is started over keeps the one before until a round is saved, whenever its process is killed."""

from __future__ import annotations

import os
import threading

import pytest

from murmura.errors import CheckpointError
from murmura.runs import RunFolder, before, locks
from murmura.runs.before import Before
from murmura.runs.locks import LOCK, acquire, alone

OLD = {
    "config.toml": "old", "metrics.jsonl": "old", "private/a/privacy.journal": "spent",
    "checkpoint/round-0002/run.json": "old",
}  # fmt: skip
NEW = {"config.toml": "new", "environment.json": "new", "private/b/store.journal": "new", "sites.json": "new"}
SAVED = {"checkpoint/round-0000/run.json": "new"}
CHANGES = ("rename", "unlink", "rmdir", "mkdir", "fsync")


FSYNC = os.fsync


class Killed(BaseException):
    """What no code of ours catches: as after a kill, nothing is put right."""


def write(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def contents(folder):
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def story(folder, saved):
    """A run is started over, and saves a round or fails before."""
    new = Before(folder)
    new.set_aside()
    write(folder, NEW)
    if not saved:
        new.put_back()
        return
    write(folder, SAVED)
    new.discard()


def killed_at(step, work, monkeypatch):
    """Do some work, and be killed at its n-th change to the disk; returns whether there was so much to do."""
    count = 0

    def counting(real):
        def change(*args, **options):
            nonlocal count
            count += 1
            if count == step:
                raise Killed
            return None if real is FSYNC else real(*args, **options)

        return change

    with monkeypatch.context() as patch:
        for name in CHANGES:
            patch.setattr(os, name, counting(getattr(os, name)))
        try:
            work()
        except Killed:
            return True
    return False


def stands(folder, old):
    """That one of the two runs is there, whole, and nothing else."""
    assert contents(folder) == (OLD if old else NEW | SAVED)
    assert not (folder / ".before").exists()


@pytest.mark.parametrize("saved", [False, True])
def test_one_of_the_two_runs_is_whole_whenever_the_process_is_killed(tmp_path, monkeypatch, saved, capsys):
    step, more = 0, True
    while more:
        step, again, rest = step + 1, step % 5, True
        while rest:  # killed a second time, while the first is put right
            folder, again = tmp_path / f"{step}-{again}", again + 5
            write(folder, OLD)
            more = killed_at(step, lambda folder=folder: story(folder, saved), monkeypatch)
            was_saved = (folder / "checkpoint" / "round-0000" / "run.json").exists()
            rest = killed_at(again, Before(folder).settle, monkeypatch)
            Before(folder).settle()
            stands(folder, old=not was_saved)
    assert step > 20
    said = capsys.readouterr().err
    assert "the one before is back in its place" in said
    assert ("the one before is gone" in said) == saved


def test_without_an_earlier_run_nothing_happens(tmp_path, capsys):
    write(tmp_path, NEW)
    for work in (Before(tmp_path).settle, Before(tmp_path).discard):
        work()
    assert contents(tmp_path) == NEW and not capsys.readouterr().err


def test_nobody_else_may_look_into_what_is_set_aside(tmp_path):
    write(tmp_path, OLD)
    Before(tmp_path).set_aside()
    assert (tmp_path / ".before").stat().st_mode & 0o777 == 0o700


def test_files_that_cannot_be_moved_stay_where_they_are(tmp_path, monkeypatch):
    write(tmp_path, OLD)
    real, calls = os.rename, []

    def busy(source, target, **options):
        calls.append(source)
        if len(calls) == 3:
            raise OSError(16, "Device or resource busy")
        real(source, target, **options)

    monkeypatch.setattr(os, "rename", busy)
    with pytest.raises(CheckpointError, match=r"cannot be moved \(Device or resource busy\)"):
        Before(tmp_path).set_aside()
    stands(tmp_path, old=True)


def test_a_file_that_came_in_between_is_not_written_over(tmp_path, monkeypatch):
    write(tmp_path, OLD)
    assert killed_at(4, Before(tmp_path).set_aside, monkeypatch)
    write(tmp_path, {"config.toml": "mine"})
    with pytest.raises(CheckpointError, match="exists too"):
        Before(tmp_path).settle()
    assert contents(tmp_path)["config.toml"] == "mine" and contents(tmp_path)[".before/config.toml"] == "old"


def test_a_folder_of_that_name_which_no_run_made_is_left_alone(tmp_path):
    write(tmp_path, {**OLD, ".before/thesis.txt": "years of work"})
    for resume in (False, True):
        with (
            pytest.raises(CheckpointError, match="cannot be moved"),
            RunFolder(tmp_path).opened(resume=resume, overwrite=not resume),
        ):
            pytest.fail("opened")
    assert contents(tmp_path) == {**OLD, ".before/thesis.txt": "years of work", ".lock": ""}
    assert before.FOLDER == ".before"


def test_nothing_is_moved_while_a_worker_of_the_earlier_run_writes(tmp_path, monkeypatch):
    """Nor is a new run undone while one of its own does."""
    write(tmp_path, OLD)
    monkeypatch.setattr(locks, "_PATIENCE", 0.01)
    orphan = acquire(tmp_path / "private" / "a")
    with pytest.raises(CheckpointError, match="another process is working with what site a keeps"):
        Before(tmp_path).set_aside()
    assert contents(tmp_path) == {**OLD, f"private/a/{LOCK}": ""}
    monkeypatch.setattr(locks, "_PATIENCE", 10)
    threading.Timer(0.1, orphan.release).start()
    Before(tmp_path).set_aside()
    assert not (tmp_path / "private").exists()
    write(tmp_path, NEW)
    monkeypatch.setattr(locks, "_PATIENCE", 0.01)
    orphan = acquire(tmp_path / "private" / "b")
    with pytest.raises(CheckpointError, match="site b"):
        Before(tmp_path).settle()
    assert (tmp_path / "private" / "b" / "store.journal").read_text() == "new"
    orphan.release()
    Before(tmp_path).settle()
    assert contents(tmp_path) == {**OLD, f"private/a/{LOCK}": ""}


def test_what_was_written_until_then_is_moved_too(tmp_path, monkeypatch):
    write(tmp_path, OLD)
    (tmp_path / "private" / "a" / LOCK).touch()
    real = before._move

    def move(source, target):
        with pytest.raises(CheckpointError), alone(tmp_path / "private"):
            raise AssertionError("another process could write")
        real(source, target)

    monkeypatch.setattr(before, "_move", move)
    monkeypatch.setattr(locks, "_PATIENCE", 0.01)
    Before(tmp_path).set_aside()
    assert contents(tmp_path / ".before").items() >= OLD.items()

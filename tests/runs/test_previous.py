"""Starting over keeps the run that was there, whole, whenever the process is killed, and touches nothing else."""

import os
import threading

import pytest

from murmura.errors import CheckpointError
from murmura.runs import RunFolder, locks
from murmura.runs.locks import LOCK, acquire, alone
from murmura.runs.previous import make_way, previous_of

EXPERIMENT = "[run]\n[method]\n"
OLDEST = {"config.toml": EXPERIMENT + "# oldest", "metrics.jsonl": "oldest", "environment.json": "oldest"}
OLD = {
    "config.toml": EXPERIMENT,
    "metrics.jsonl": "old",
    "private/a/privacy.journal": "spent",
    "checkpoint/round-0002/run.json": "old",
}
NEW = {
    "config.toml": EXPERIMENT + "# new",
    "environment.json": "new",
    "private/b/store.journal": "new",
    "sites.json": "new",
}
CHANGES = ("rename", "unlink", "rmdir", "mkdir")


class Killed(BaseException):
    """What no code of ours catches: as after a kill, nothing is put right."""


@pytest.fixture
def folder(tmp_path):
    """A run that has saved rounds."""
    write(tmp_path / "run", OLD)
    return tmp_path / "run"


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(locks, "_PATIENCE", 0.01)


def write(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def contents(folder):
    found = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_text() for name, path in found.items() if path.name != LOCK}


def killed_at(step, work, monkeypatch):
    """Do some work, and be killed at its n-th change to the disk; returns whether there was so much to do."""
    count = 0

    def counting(real):
        def change(*args, **options):
            nonlocal count
            count += 1
            if count == step:
                raise Killed
            return real(*args, **options)

        return change

    with monkeypatch.context() as patch:
        for name in CHANGES:
            patch.setattr(os, name, counting(getattr(os, name)))
        try:
            work()
        except Killed:
            return True
    return False


def test_the_run_is_renamed_and_replaces_an_earlier_one(folder):
    write(previous_of(folder), OLDEST)
    assert make_way(folder) == previous_of(folder) == folder.with_name("run.previous")
    assert not folder.exists() and contents(previous_of(folder)) == OLD
    assert [path.name for path in folder.parent.iterdir()] == ["run.previous"]


def test_a_run_that_has_saved_no_round_does_not_displace_one_that_has(folder):
    write(previous_of(folder), OLDEST)
    make_way(folder)
    write(folder, NEW | {"thesis.txt": "years of work"})
    assert make_way(folder) is None
    assert contents(folder) == {"thesis.txt": "years of work"} and contents(previous_of(folder)) == OLD


def test_whenever_the_process_is_killed_no_run_is_lost_but_the_one_that_is_replaced(tmp_path, monkeypatch):
    step, more = 0, True
    while more:
        step += 1
        folder = tmp_path / str(step) / "run"
        write(folder, OLD)
        write(previous_of(folder), OLDEST)
        more = killed_at(step, lambda folder=folder: make_way(folder), monkeypatch)
        if folder.exists():
            assert contents(folder) == OLD
            assert OLDEST in [contents(path) for path in folder.parent.iterdir()]
            make_way(folder)
        assert contents(previous_of(folder)) == OLD
        write(folder, {**OLD, "config.toml": NEW["config.toml"]})
        make_way(folder)  # which clears what was left
        assert [path.name for path in folder.parent.iterdir()] == ["run.previous"]
    assert step > 3


@pytest.mark.parametrize(
    "there",
    [
        {"thesis.txt": "years of work"},
        OLDEST | {"thesis.txt": "years of work"},
        {"config.toml": "mine"},
        {"config.toml": "mine", "checkpoint/best.pt": "years of work"},  # as other programs have them, too
    ],
)
def test_what_is_no_run_or_holds_more_than_one_is_not_replaced(folder, there):
    write(previous_of(folder), there)
    with pytest.raises(CheckpointError) as refused:
        make_way(folder)
    assert refused.value.where == str(previous_of(folder))
    assert contents(folder) == OLD and contents(previous_of(folder)) == there


def test_a_link_is_followed_and_one_that_stands_in_the_way_is_not(folder, tmp_path):
    (tmp_path / "link").symlink_to(folder)
    (tmp_path / "elsewhere").mkdir()
    previous_of(folder).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError):
        make_way(tmp_path / "link")
    previous_of(folder).unlink()
    assert make_way(tmp_path / "link") == previous_of(folder)
    assert contents(previous_of(folder)) == OLD and (tmp_path / "link").is_symlink()


def test_the_current_directory_is_not_renamed(folder, monkeypatch):
    monkeypatch.chdir(folder / "private")
    with pytest.raises(CheckpointError) as refused:
        make_way(folder)
    assert refused.value.where == str(folder) and contents(folder) == OLD


def test_a_folder_that_cannot_be_renamed_stays_where_it_is(folder, monkeypatch):
    write(previous_of(folder), OLDEST)
    real = os.rename

    def busy(source, target, **options):
        if os.fspath(source) == os.fspath(folder):
            raise OSError(16, "Device or resource busy")
        real(source, target, **options)

    monkeypatch.setattr(os, "rename", busy)
    with pytest.raises(CheckpointError) as refused:
        make_way(folder)
    assert refused.value.where == str(folder)
    assert contents(folder) == OLD and contents(previous_of(folder)) == OLDEST


@pytest.mark.parametrize("which", ["run", "run.previous"])
def test_nothing_is_moved_while_a_worker_writes(folder, which, monkeypatch):
    write(previous_of(folder), OLD)
    monkeypatch.setattr(locks, "_PATIENCE", 0.01)
    orphan = acquire(folder.with_name(which) / "private" / "a")
    with pytest.raises(CheckpointError) as refused:
        make_way(folder)
    assert refused.value.where == str(folder.with_name(which) / "private" / "a")
    assert contents(folder) == contents(previous_of(folder)) == OLD
    monkeypatch.setattr(locks, "_PATIENCE", 10)
    threading.Timer(0.1, orphan.release).start()
    assert make_way(folder) and not folder.exists()


def test_with_more_sites_than_open_files_each_is_still_held_in_turn(folder, monkeypatch, impatient):
    monkeypatch.setattr(locks, "allow_open_files", lambda count: False)
    (folder / "private" / "a" / LOCK).touch()
    with alone(folder / "private"):
        orphan = locks.acquire(folder / "private" / "a")
    with pytest.raises(CheckpointError, match="another process"), alone(folder / "private"):
        raise AssertionError("a worker could still write")
    orphan.release()


def test_no_worker_starts_to_write_meanwhile(folder, monkeypatch, impatient):
    (folder / "private" / "a" / LOCK).touch()
    real = os.rename

    def rename(source, target, **options):
        with pytest.raises(CheckpointError), alone(folder / "private"):
            raise AssertionError("another process could write")
        real(source, target, **options)

    monkeypatch.setattr(os, "rename", rename)
    make_way(folder)
    assert contents(previous_of(folder)) == OLD


def test_a_previous_run_that_goes_on_is_not_replaced(folder):
    write(previous_of(folder), OLDEST)
    with RunFolder(previous_of(folder)).locked(), pytest.raises(CheckpointError) as refused:
        make_way(folder)
    assert refused.value.where == str(previous_of(folder)) and contents(folder) == OLD

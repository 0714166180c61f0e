"""A checkpoint is whole or not there."""

import errno
import os
import shutil
import subprocess

import pytest
import torch

from murmura.errors import CheckpointError
from murmura.federation.server import checkpoint as module
from murmura.federation.server.checkpoint import Checkpoint, latest, prune, save
from tests.training.helpers import assert_same


def make(round):
    server = {"adapter": {"w": torch.full((2,), float(round))}, "store.optimizer": {}, "store.names": []}
    return Checkpoint(round, server, {"rows": [{"round": round, "loss": float("nan")}], "ledger": {}})


def test_nothing_saved_yet(tmp_path):
    assert latest(tmp_path) is None


def test_what_was_saved_comes_back(tmp_path):
    save(tmp_path, make(3))
    back = latest(tmp_path)
    assert back.round == 3
    assert_same(back.server["adapter"], {"w": torch.tensor([3.0, 3.0])})
    assert (back.server["store.optimizer"], back.server["store.names"]) == ({}, [])
    assert back.run["rows"][0]["round"] == 3


def test_the_last_two_are_kept(tmp_path):
    for before, round in ((1, 2), (2, 9_999), (9_999, 10_000)):
        save(tmp_path, make(before))
        save(tmp_path, make(round))
        assert latest(tmp_path).round == round
        assert {path.name for path in tmp_path.iterdir()} == {f"round-{before:04d}", f"round-{round:04d}"}


def test_refused_ones_go_and_so_does_an_old_one_that_was_to_be_removed(tmp_path, monkeypatch):
    with monkeypatch.context() as patched:  # as if the process were killed before it had removed any
        patched.setattr(module, "prune", lambda folder: None)
        for round in (1, 2, 3, 4):
            save(tmp_path, make(round))
    prune(tmp_path, [4])
    assert {path.name for path in tmp_path.iterdir()} == {"round-0002", "round-0003"}


def test_nobody_but_the_owner_may_read_them(tmp_path):
    before = os.umask(0)  # the most generous one
    try:
        save(tmp_path, make(1))
    finally:
        os.umask(before)
    rights = {path.is_dir(): set() for path in tmp_path.rglob("*")}
    for path in tmp_path.rglob("*"):
        rights[path.is_dir()].add(oct(path.stat().st_mode & 0o777))
    assert rights == {True: {"0o700"}, False: {"0o600"}}


def test_an_older_one_that_could_not_be_removed_is_not_taken(tmp_path, monkeypatch):
    """Killed between the rename and the removal, or in the middle of the removal."""
    with monkeypatch.context() as patch:
        patch.setattr(module.shutil, "rmtree", lambda path, **_: None)
        for round in (9_998, 9_999, 10_000):
            save(tmp_path, make(round))
    (tmp_path / "round-9998" / "run.json").unlink()
    assert latest(tmp_path).round == 10_000
    save(tmp_path, make(10_001))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["round-10000", "round-10001"]


def test_copies_beside_it_are_no_checkpoints(tmp_path):
    save(tmp_path, make(1))
    shutil.copytree(tmp_path / "round-0001", tmp_path / "round-0002.bak")
    assert latest(tmp_path).round == 1


@pytest.mark.parametrize("fails_at", [1, 2, 3])
def test_a_full_disk_leaves_the_one_before(tmp_path, monkeypatch, fails_at):
    save(tmp_path, make(1))
    calls = []

    def filling(write):
        def full(*given, **rights):
            calls.append(given)
            if len(calls) == fails_at:
                raise OSError(errno.ENOSPC, "No space left on device")
            write(*given, **rights)

        return full

    monkeypatch.setattr(module.messages, "write", filling(module.messages.write))
    monkeypatch.setattr(module.atomic, "write", filling(module.atomic.write))
    with pytest.raises(CheckpointError, match="No space left on device"):
        save(tmp_path, make(2))
    assert latest(tmp_path).round == 1
    save(tmp_path, make(2))  # on what the failed attempt left behind
    assert latest(tmp_path).round == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["round-0001", "round-0002"]


def flipped(data):
    """One bit in the last of the bytes, which in a tensor file are the last tensor's."""
    return data[:-1] + bytes([data[-1] ^ 1])


DAMAGE = {"flipped": flipped, "cut short": lambda data: data[:-3], "empty": lambda data: b"", "gone": None}
PARTS = ["server.safetensors", "run.json", "SHA256SUMS"]


def damage(folder, part, how):
    file = folder / part
    if DAMAGE[how] is None:
        file.unlink()
    else:
        file.write_bytes(DAMAGE[how](file.read_bytes()))


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("part", PARTS)
def test_a_damaged_one_is_passed_over_for_the_one_before(tmp_path, part, how):
    save(tmp_path, make(1))
    save(tmp_path, make(2))
    damage(tmp_path / "round-0002", part, how)
    back = latest(tmp_path)
    assert back.round == 1 and back.server["adapter"]["w"].tolist() == [1.0, 1.0]
    assert back.run["rows"][0]["round"] == 1
    [told] = back.damaged
    assert told.startswith("the checkpoint of round 2 is damaged (")
    save(tmp_path, make(2))  # the round is done again
    assert latest(tmp_path).round == 2 and latest(tmp_path).damaged == ()


@pytest.mark.parametrize("rounds", [(1,), (1, 2)])
def test_where_all_are_damaged_each_is_told(tmp_path, rounds):
    for round in rounds:
        save(tmp_path, make(round))
        damage(tmp_path / f"round-{round:04d}", "server.safetensors", "flipped")
    with pytest.raises(CheckpointError) as error:
        latest(tmp_path)
    for round in rounds:
        assert f"of round {round} is damaged (server.safetensors is not what was written)" in str(error.value)
    assert "--overwrite" in error.value.fix


def test_one_that_may_not_be_read_is_not_taken_for_a_damaged_one(tmp_path, monkeypatch):
    """Another user's: to go on from the one before would lose a round."""
    save(tmp_path, make(1))
    save(tmp_path, make(2))

    def refuse(path):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(module.Path, "read_bytes", refuse)
    with pytest.raises(CheckpointError, match=r"round-0002: .*\(Permission denied\).*mend the rights"):
        latest(tmp_path)


def test_sha256sum_can_check_it(tmp_path):
    save(tmp_path, make(1))
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=tmp_path / "round-0001", check=True)

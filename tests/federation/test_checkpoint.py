"""A checkpoint is whole or not there."""

from __future__ import annotations

import errno
import shutil

import pytest
import torch

from murmura.errors import CheckpointError
from murmura.federation import checkpoint as module
from murmura.federation.checkpoint import Checkpoint, latest, save
from tests.training.helpers import assert_same

NAMES = ["a", "a/b", "..", "größe 漢", "x.safetensors", "%2F", "A B"]


def make(round):
    server = {"adapter": {"w": torch.full((2,), float(round))}, "store.optimizer": {}, "store.names": []}
    stores = {name: {"control": {"w": torch.tensor([round, k])}} for k, name in enumerate(NAMES)}
    return Checkpoint(round, server, stores, {"rows": [{"round": round, "loss": float("nan")}], "ledger": {}})


def test_nothing_saved_yet(tmp_path):
    assert latest(tmp_path) is None


def test_what_was_saved_comes_back(tmp_path):
    save(tmp_path, make(3))
    back = latest(tmp_path)
    assert back.round == 3
    assert_same(back.server["adapter"], {"w": torch.tensor([3.0, 3.0])})
    assert (back.server["store.optimizer"], back.server["store.names"]) == ({}, [])
    assert back.stores.keys() == set(NAMES)
    for k, name in enumerate(NAMES):
        assert back.stores[name]["control"]["w"].tolist() == [3, k]
    assert back.run["rows"][0]["round"] == 3


def test_only_the_last_is_kept(tmp_path):
    for round in (1, 2, 9_999, 10_000):
        save(tmp_path, make(round))
        assert latest(tmp_path).round == round
        assert len(list(tmp_path.iterdir())) == 1


def test_an_older_one_that_could_not_be_removed_is_not_taken(tmp_path):
    """Killed between the rename and the removal, or in the middle of the removal."""
    save(tmp_path, make(9_999))
    shutil.copytree(tmp_path / "round-9999", tmp_path / "kept")
    save(tmp_path, make(10_000))
    (tmp_path / "kept").rename(tmp_path / "round-9999")
    (tmp_path / "round-9999" / "run.json").unlink()
    assert latest(tmp_path).round == 10_000


def test_a_site_whose_store_is_missing_does_not_begin_anew(tmp_path):
    save(tmp_path, make(1))
    (tmp_path / "round-0001" / "sites" / "A%20B.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"cannot be read .*A%20B"):
        latest(tmp_path)


def test_copies_beside_it_are_no_checkpoints(tmp_path):
    save(tmp_path, make(1))
    shutil.copytree(tmp_path / "round-0001", tmp_path / "round-0002.bak")
    assert latest(tmp_path).round == 1


@pytest.mark.parametrize("fails_at", [1, 3, 9])
def test_a_full_disk_leaves_the_one_before(tmp_path, monkeypatch, fails_at):
    save(tmp_path, make(1))
    write, calls = module._write, []

    def full(path, data):
        calls.append(path)
        if len(calls) == fails_at:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, data)

    monkeypatch.setattr(module, "_write", full)
    with pytest.raises(CheckpointError, match="No space left on device"):
        save(tmp_path, make(2))
    assert latest(tmp_path).round == 1
    save(tmp_path, make(2))  # on what the failed attempt left behind
    assert latest(tmp_path).round == 2
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("part", ["server.safetensors", "run.json", "sites/a.safetensors"])
def test_a_damaged_one_is_refused(tmp_path, part):
    save(tmp_path, make(1))
    file = tmp_path / "round-0001" / part
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(CheckpointError, match="cannot be read") as error:
        latest(tmp_path)
    assert "round-0001" in error.value.where


def test_a_missing_part_is_noticed(tmp_path):
    save(tmp_path, make(1))
    (tmp_path / "round-0001" / "server.safetensors").unlink()
    with pytest.raises(CheckpointError, match="cannot be read"):
        latest(tmp_path)

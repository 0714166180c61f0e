"""Temporary folders of processes that wait for weeks are left alone by what tidies up, and go with the process."""

import fcntl
import os
import stat
from contextlib import ExitStack, closing

import pytest

from murmura.errors import RunError
from murmura.federation.engines.flower import supernode
from murmura.federation.engines.flower.door import Door
from murmura.federation.engines.flower.temporary import temporary


def tidy(folder):
    """As systemd-tmpfiles begins with a folder."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    finally:
        os.close(handle)


def test_it_is_locked_until_it_goes():
    with ExitStack() as opened:
        folder = temporary(opened)
        (folder / "kept").touch()
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        with pytest.raises(BlockingIOError):
            tidy(folder)
    assert not folder.exists()


def test_the_folder_of_a_door_is_one_and_goes_where_the_door_cannot_be_made(monkeypatch, tmp_path):
    with Door() as door, pytest.raises(BlockingIOError):
        tidy(door.address.parent)
    assert not door.address.parent.exists()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def none(*_, **__):
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("murmura.federation.engines.flower.door.Listener", none)
    with pytest.raises(RunError, match="a local socket cannot be made"):
        Door()
    assert not list(tmp_path.iterdir())


def test_the_folder_of_a_supernode_is_one(monkeypatch, tmp_path):
    class Idle:
        port, is_alive = 1, True

        def __init__(self, *_, **__):
            self.end = self.close = self.shorten = lambda: None

    monkeypatch.setattr(supernode, "Gateway", Idle)
    monkeypatch.setattr(supernode, "Child", Idle)
    monkeypatch.setattr(supernode, "expected", lambda folder: b"")
    node = supernode.SuperNode(tmp_path / "node", "server:1", tmp_path / "ca.crt", tmp_path / "key", tmp_path / "door")
    with closing(node), pytest.raises(BlockingIOError):
        tidy(node._temporary)
    assert not node._temporary.exists()

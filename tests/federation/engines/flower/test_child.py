"""Processes that end with this one, and leave nothing open."""

import os
import time
from contextlib import suppress

from murmura.federation.engines.flower.child import Child


def is_open(inode):
    """Whether this process has it open; what other threads and earlier tests have open does not matter."""
    found = set()
    for number in os.listdir("/dev/fd"):
        with suppress(OSError):  # that of the listing itself
            found.add(os.fstat(int(number)).st_ino)
    return inode in found


def test_nothing_of_it_is_open_when_it_has_ended_and_another_file_that_has_its_number_stays(tmp_path):
    child = Child("a child", ["true"], dict(os.environ), tmp_path / "log")
    pipe = os.fstat(child._ours).st_ino
    assert is_open(pipe)
    while child.is_alive:
        time.sleep(0.05)
    child.end()
    assert not is_open(pipe) and not is_open((tmp_path / "log").stat().st_ino)
    with (tmp_path / "log").open() as other:
        child.end()
        assert os.fstat(other.fileno())

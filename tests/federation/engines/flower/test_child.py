"""Processes that end with this one, and leave nothing open."""

import gc
import os
import time

from murmura.federation.engines.flower.child import Child


def test_nothing_of_it_is_open_when_it_has_ended_and_another_file_that_has_its_number_stays(tmp_path):
    gc.collect()  # what earlier tests have left open is closed now, and not meanwhile
    before = set(os.listdir("/dev/fd"))
    child = Child("a child", ["true"], dict(os.environ), tmp_path / "log")
    while child.is_alive:
        time.sleep(0.05)
    child.end()
    assert set(os.listdir("/dev/fd")) == before
    with (tmp_path / "log").open() as other:
        child.end()
        assert os.fstat(other.fileno())

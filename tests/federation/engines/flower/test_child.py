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


def until(happened, seconds=20):
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_long_log_is_shortened_before_a_command_and_while_it_writes_and_keeps_the_last_words(tmp_path):
    """At a site it is written to for years."""
    log, go, said = tmp_path / "log", tmp_path / "go", tmp_path / "said"
    log.write_bytes(b"earlier " * (11 * 2**17) + b"words\n")
    program = f"""
printf 'own begin\n'
until [ -e {go} ]; do sleep 0.05; done
yes words | head -c {11 * 2**20}
printf '\nlast words\n'
touch {said}
until [ ! -e {go} ]; do sleep 0.05; done
printf 'goodbye\n'
exec sleep 60
"""
    (tmp_path / "bash").write_text(program)
    child = Child("a child", ["bash", str(tmp_path / "bash")], dict(os.environ), log)
    assert log.stat().st_size < 2**20 + 100 and b"earlier words\n" in log.read_bytes()
    until(lambda: child.said == "own begin")
    child.shorten()
    assert child.said == "own begin" and log.stat().st_size > 2**20  # it was not long
    go.touch()
    until(said.exists)
    child.shorten()
    assert log.stat().st_size == 2**20 and child.said.endswith("\nlast words")
    go.unlink()
    until(lambda: child.said.endswith("goodbye"))
    assert log.stat().st_size == 2**20 + len("goodbye\n")  # after what was kept, and not where it was before
    child.end()

"""Worker processes: the pipe to one, and how they start."""

from __future__ import annotations

import errno
import subprocess
import sys
import threading
import time
from multiprocessing import Pipe

import pytest

from murmura.errors import RunError
from murmura.experiment import simulation, workers


def test_a_message_that_waits_has_arrived_when_it_came_and_without_the_other_end_the_process_ends(monkeypatch):
    ended = threading.Event()
    monkeypatch.setattr(workers.os, "_exit", lambda status: ended.set())
    ours, theirs = Pipe()
    inbox = workers._Inbox(theirs)
    before = time.monotonic()
    ours.send_bytes(b"work")
    while not inbox._messages.qsize():
        time.sleep(0.001)
    waiting = time.monotonic()
    message, arrived = inbox.receive()
    assert message == b"work" and before <= arrived <= waiting
    ours.close()
    assert ended.wait(20)


def test_where_a_worker_cannot_be_started_those_before_it_end(monkeypatch):
    real, started = subprocess.Popen, []

    def popen(command, **options):
        if started:
            raise OSError(errno.EAGAIN, "Resource temporarily unavailable")
        started.append(real([sys.executable, "-c", "import sys; sys.stdin.read()"], **options))
        return started[0]

    monkeypatch.setattr(workers.subprocess, "Popen", popen)
    with pytest.raises(RunError, match=r"worker 1 could not be started \(Resource temporarily unavailable\)\. Lower"):
        simulation.start(3)
    assert started[0].returncode is not None

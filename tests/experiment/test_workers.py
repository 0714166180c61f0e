"""Worker processes: the pipe to one, and how they start."""

import errno
import subprocess
import sys
import threading
import time
from multiprocessing import Pipe
from types import SimpleNamespace

import pytest

from murmura.errors import RunError
from murmura.experiment import worker
from murmura.federation.engines import process, processes


def test_a_message_that_waits_has_arrived_when_it_came_and_without_the_other_end_the_process_ends(monkeypatch):
    ended = threading.Event()
    monkeypatch.setattr(worker.os, "_exit", lambda status: ended.set())
    ours, theirs = Pipe()
    inbox = worker.Inbox(theirs)
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

    monkeypatch.setattr(process.subprocess, "Popen", popen)
    with pytest.raises(RunError, match=r"worker 1 could not be started \(Resource temporarily unavailable\)\. Lower"):
        processes.start(SimpleNamespace(workers=3, folders=dict.fromkeys("abc"), program=[]))
    assert started[0].returncode is not None

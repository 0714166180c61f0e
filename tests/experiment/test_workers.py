"""Worker processes: the pipe to one, and how they start."""

from __future__ import annotations

import threading
import time
from multiprocessing import Pipe

from murmura.experiment import workers


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

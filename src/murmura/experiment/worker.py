"""What runs in a worker process: sites of these folders, of which it is told nothing else."""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from multiprocessing.connection import Connection

PROGRAM = ("-m", __name__)
"""What Python runs in a worker process, with the pipe's file descriptor as its argument."""


class Inbox:
    """The worker's end of the pipe. A thread reads it, and ends the process as soon as the other end is gone, whatever
    is being worked on: a run that is resumed must not find an earlier worker still writing to its sites' journals. Of a
    message that has to wait, the time counts all the same."""

    def __init__(self, connection: Connection) -> None:
        self._messages: queue.SimpleQueue[tuple[bytes, float]] = queue.SimpleQueue()
        self._connection = connection
        self.send_bytes = connection.send_bytes
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            while True:
                self._messages.put((self._connection.recv_bytes(), time.monotonic()))
        except (EOFError, OSError):
            os._exit(0)

    def receive(self) -> tuple[bytes, float]:
        """The next message, and when it arrived (``time.monotonic``)."""
        return self._messages.get()


def main(handle: int) -> None:
    """Play sites until the pipe with this file descriptor closes."""
    inbox = Inbox(Connection(handle))
    from murmura.experiment.site_side import open_sites
    from murmura.federation.engines.worker import Worker, relay_to, serve

    worker = Worker(open_sites)
    relay_to(inbox, worker)
    serve(inbox, worker)


if __name__ == "__main__":
    main(int(sys.argv[1]))

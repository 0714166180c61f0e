"""Worker processes for the engine ``processes``: how they start, and what runs in them."""

from __future__ import annotations

import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from murmura.errors import RunError
from murmura.progress import say

if TYPE_CHECKING:
    from murmura.federation.site.answer import Host

_PATIENCE = 10  # seconds until a worker that was told to end is killed
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
PROGRAM = ("-m", __name__)
"""What Python runs in a worker process, with the pipe's file descriptor as its argument."""


class WorkerProcess:
    """A Python process of its own, with a pipe to it. It ends when the pipe closes, also when this process is killed;
    Ctrl-C in a terminal does not reach it. What it prints is shown here, line by line, behind its name.

    Args:
        name: what messages call it.
        threads: CPU threads that it computes with.

    Raises:
        RunError: it could not be started.
    """

    def __init__(self, name: str, threads: int) -> None:
        self.name = name
        ours, theirs = socket.socketpair()
        environment = {**os.environ, **dict.fromkeys(_THREADS, str(threads))}
        with theirs:
            handle = theirs.fileno()
            try:
                self._process = subprocess.Popen(
                    [sys.executable, *PROGRAM, str(handle)], pass_fds=[handle], env=environment,
                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
                )  # fmt: skip
            except OSError as error:
                ours.close()
                raise RunError(
                    f"{name} could not be started ({error.strerror})",
                    fix="Lower run.workers, close other programs, or raise the limits of open files and processes.",
                ) from error
        self._pipe, self.connection = ours, Connection(os.dup(ours.fileno()))
        self._printing = threading.Thread(target=self._show, daemon=True)
        self._printing.start()

    def _show(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as printed:
            for line in printed:
                say(f"{self.name}: {line.decode(errors='replace').rstrip()}")

    @property
    def pid(self) -> int:
        return self._process.pid

    def release(self) -> None:
        """Close the pipe, so that the process ends; no waiting."""
        with suppress(OSError):  # it may have closed before
            self._pipe.shutdown(socket.SHUT_RDWR)  # to close a pipe that a thread reads would not end it

    def end(self) -> str:
        """Close the pipe, wait until the process has ended, and say in words how it did."""
        self.release()
        try:
            status = self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return "did not end by itself and was killed"
        finally:
            self._printing.join(_PATIENCE)  # its last words
            self.connection.close()
            self._pipe.close()
        return f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"


class _Inbox:
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
        """The next message, and when it arrived."""
        return self._messages.get()


def main(handle: int) -> None:
    """What runs in a worker: sites, until the pipe with this file descriptor closes."""
    inbox = _Inbox(Connection(handle))
    from murmura.federation.engines.worker import Worker, relay_to, serve
    from murmura.runs.machine import peak_memory

    # What is mapped from files the server has too, and counts it.
    worker = Worker(set_up, partial(peak_memory, mapped=False))
    relay_to(inbox, worker)
    serve(inbox, worker)


def set_up(told: Mapping[str, Any]) -> Host:
    """The sites of a worker, from what ``simulation.simulate`` tells it."""
    from murmura.experiment.config import Experiment
    from murmura.experiment.context import process_context
    from murmura.experiment.site_side import assemble, heard
    from murmura.experiment.validate import method_of

    experiment = Experiment.of(told["experiment"])
    method = method_of(experiment)
    context = process_context(experiment, method, told["device"], ["site"])
    if method.trains:
        context.load()
    private, results = Path(told["private"]), Path(told["results"])
    records = heard(experiment.task.kind, told["sites"])
    return assemble(context, method, records, run=told["run"], private=private, results=results)


if __name__ == "__main__":
    main(int(sys.argv[1]))

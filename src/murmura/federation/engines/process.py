"""Worker processes: how they start and end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection

from murmura.errors import RunError
from murmura.progress import say

_PATIENCE = 10  # seconds until a worker that was told to end is killed
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


class WorkerProcess:
    """A Python process of its own, with a pipe to it. It ends when the pipe closes, also when this process is killed;
    Ctrl-C in a terminal does not reach it. What it prints is shown here, line by line, behind its name.

    Args:
        name: what messages call it.
        threads: CPU threads that it computes with.
        program: what Python runs in it, with the pipe's file descriptor as its last argument.

    Raises:
        RunError: it could not be started.
    """

    def __init__(self, name: str, threads: int, program: Sequence[str]) -> None:
        self.name = name
        ours, theirs = socket.socketpair()
        environment = {**os.environ, **dict.fromkeys(_THREADS, str(threads))}
        with theirs:
            handle = theirs.fileno()
            try:
                self._process = subprocess.Popen(
                    [sys.executable, *program, str(handle)],
                    pass_fds=[handle],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                ours.close()
                fix = "Lower run.workers, close other programs, or raise the limits of open files and processes."
                raise RunError(f"{name} could not be started ({error.strerror})", fix=fix) from error
        self._pipe, self.connection = ours, Connection(os.dup(ours.fileno()))
        self._printing = threading.Thread(target=self._show, daemon=True)
        self._printing.start()

    def _show(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as printed:
            for line in printed:
                say(f"{self.name}: {line.decode(errors='replace').rstrip()}")

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

"""Processes that end with the one that started them, however that ends.

Run as a module it is what stands between the two: it starts a command, and ends it when the pipe closes whose other end
its parent has.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from murmura.errors import RunError, remedy

_PATIENCE = 5.0  # seconds until a command that was told to end is killed
_SHOWN = 12  # lines of what it wrote that an error repeats
_LONG, _KEPT = 10 * 2**20, 2**20  # bytes of a log that is shortened, and of its end, which stays


class Child:
    """A command that ends when ``end`` is called, or when this process is gone.

    Args:
        name: what messages call it.
        command: a program of this Python's environment, and its arguments.
        environment: of the command.
        log: what it prints is added to this file, which is its own.

    Raises:
        RunError: it could not be started.
    """

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.name, self._log, self._began = name, log, 0
        self.shorten()
        theirs, self._ours = os.pipe()
        program = [sys.executable, "-m", __name__, str(theirs), *command]
        try:
            with log.open("ab") as output:
                self._began = output.tell()
                self._process = subprocess.Popen(
                    program,
                    pass_fds=[theirs],
                    env=dict(environment),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError as error:
            os.close(self._ours)
            what = f"{name} could not be started ({error.strerror})"
            raise RunError(what, where=str(log), fix=f"{remedy(error)}.") from error
        finally:
            os.close(theirs)

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def said(self) -> str:
        """The last lines that it has printed."""
        with suppress(OSError), self._log.open("rb") as log:
            log.seek(self._began)
            return "\n".join(log.read().decode(errors="replace").splitlines()[-_SHOWN:])
        return ""

    def shorten(self) -> None:
        """Keep the end of its log alone, if that has become long; the command goes on writing after it."""
        with suppress(OSError):  # a log that cannot be written keeps the command from starting, and is told then
            if self._log.stat().st_size <= _LONG:
                return
            with self._log.open("a+b") as log:
                cut = log.seek(-_KEPT, os.SEEK_END)
                end = log.read()
                log.truncate(0)
                log.write(end)
            self._began = max(0, self._began - cut)

    def end(self) -> None:
        """Have it end, and wait until it has."""
        with suppress(OSError):
            os.close(self._ours)
        self._ours = -1  # another file may have the number by the time that this is called again
        try:
            self._process.wait(2 * _PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def main(handle: int, command: Sequence[str]) -> int:
    """Run a command until it ends, or until the pipe with this file descriptor closes."""
    process = subprocess.Popen(command, start_new_session=True)

    def follow() -> None:
        while os.read(handle, 1):
            pass
        _end(process)

    threading.Thread(target=follow, daemon=True).start()
    return process.wait()


def _end(process: subprocess.Popen[bytes]) -> None:
    """The command and all that it has started: these are one session."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_PATIENCE)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))

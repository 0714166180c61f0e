"""Flower's process for a message, without the seconds that it takes to import Flower.

At a site Flower starts ``flwr-clientapp`` for each message. In a folder that stands first on the path of its SuperNode
there is one that asks a process which has imported it already to fork, and waits until the fork has ended. Where that
does not answer, it is Flower's own program that runs.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

NAME = "flwr-clientapp"

_STAND_IN = """\
#!{python} -IS
import json, os, socket, sys
try:
    line = socket.socket(socket.AF_UNIX)
    line.connect({address!r})
    line.sendall(json.dumps({{"arguments": sys.argv[1:], "environment": dict(os.environ)}}).encode() + b"\\n")
    status = line.recv(8)
except OSError:
    status = b""
if not status:
    os.execv({program!r}, [{program!r}, *sys.argv[1:]])
sys.exit(int(status))
"""


def prepare(folder: Path) -> list[str]:
    """Write the stand-in into a folder of its own, and say what runs the process that forks.

    Args:
        folder: that nobody else may look into; its path is short enough for a socket's.
    """
    address, program = folder / "fork", Path(sys.executable).parent / NAME
    stand_in = folder / "bin" / NAME
    stand_in.parent.mkdir()
    stand_in.write_text(_STAND_IN.format(python=sys.executable, address=str(address), program=str(program)))
    stand_in.chmod(0o700)
    return [sys.executable, "-m", __name__, str(address)]


def main(address: str) -> None:
    """Fork for each connection, until this process is ended. It has one thread, and so may fork."""
    [found] = entry_points(group="console_scripts", name=NAME)
    program = found.load()
    import httpcore  # noqa: F401  (which Flower's client imports when it first connects)

    import murmura.federation.engines.flower.app  # noqa: F401  (imported once, for all forks)

    gc.freeze()  # no fork looks through what all of them share
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(address)
        door.listen(8)
        while True:
            line, _ = door.accept()
            _reap()
            if os.fork() == 0:
                door.close()
                _serve(line, program)
            line.close()


def _serve(line: socket.socket, program: Any) -> None:
    """Run the program in a fork of its own, and tell how it ended: what runs it may end the process as it likes."""
    told = json.loads(line.makefile("rb").readline())
    worker = os.fork()
    if worker == 0:
        line.close()
        os.environ.clear()
        os.environ.update(told["environment"])
        sys.argv = [NAME, *told["arguments"]]
        sys.exit(program())
    _, status = os.waitpid(worker, 0)
    line.sendall(str(os.waitstatus_to_exitcode(status) & 255).encode())
    os._exit(0)


def _reap() -> None:
    """Forget the forks that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


if __name__ == "__main__":
    main(sys.argv[1])

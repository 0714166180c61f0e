"""A local socket, by which Flower's processes reach the one of Murmura's that does the work."""

from __future__ import annotations

import os
import secrets
import socket
import tempfile
from contextlib import ExitStack, suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener
from typing import Self

from murmura.errors import RunError, explaining
from murmura.federation.engines.flower.temporary import temporary

_BYTES = 32
_WAITING = 128  # connections that may wait until somebody takes them


class Door:
    """A Unix socket in a folder that nobody else may look into, with a token that who connects must know.

    Attributes:
        address: path of the socket; ``token`` lies beside it. In the system's temporary folder, since such paths must
            be short.

    Raises:
        RunError: it cannot be made.
    """

    def __init__(self) -> None:
        self._closed = False
        with explaining("a local socket cannot be made", tempfile.gettempdir(), kind=RunError), ExitStack() as opened:
            self.address = temporary(opened) / "door"
            token = secrets.token_bytes(_BYTES)
            self.address.with_name("token").write_bytes(token)
            self._listener = Listener(str(self.address), "AF_UNIX", backlog=_WAITING, authkey=token)
            self._opened = opened.pop_all()

    def accept(self) -> Connection:
        """The next one who knows the token.

        Raises:
            OSError: the door is closed.
            EOFError, AuthenticationError, ConnectionError: whoever knocked went away again, or does not know it.
        """
        try:
            line = self._listener.accept()
        except (EOFError, AuthenticationError, ConnectionError):
            if self._closed:
                raise OSError("the door is closed") from None
            raise
        if self._closed:
            line.close()
            raise OSError("the door is closed")
        return line

    def close(self) -> None:
        """Take no more connections; those that are open stay."""
        self._closed = True
        with suppress(OSError), socket.socket(socket.AF_UNIX) as one:  # who waits for the next one would wait for ever
            one.connect(str(self.address))
        self._listener.close()
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def hang_up(line: Connection) -> None:
    """End a connection that another thread reads: to close it would leave that waiting."""
    with suppress(OSError), socket.socket(fileno=os.dup(line.fileno())) as one:
        one.shutdown(socket.SHUT_RDWR)

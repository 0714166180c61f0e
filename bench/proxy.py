"""A line between sites and a server that counts what goes over it, and can be slow, and cut."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress


class Proxy:
    """Carries TCP connections to a port of this machine.

    Args:
        target: that port.
        rate: bits a second each way, over all connections together; None: as many as there are.

    Attributes:
        port: to connect to.
        up, down: bytes that have gone to the target, and from it.
    """

    def __init__(self, target: int, rate: float | None = None) -> None:
        self.up = self.down = 0
        self._rate, self._free = rate, {"up": 0.0, "down": 0.0}  # when all that has gone that way will be there
        self._target, self._whole, self._lock = target, True, threading.Lock()
        self._open: set[socket.socket] = set()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Break every connection, and let nobody connect until it is mended."""
        self._whole = False
        with self._lock:
            for one in self._open:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        """Let connections through again."""
        self._whole = True

    def close(self) -> None:
        """For good."""
        self.cut()
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            far = None
            with suppress(OSError):
                far = socket.create_connection(("127.0.0.1", self._target)) if self._whole else None
            if far is None:
                near.close()
                continue
            with self._lock:
                self._open |= {near, far}
            threading.Thread(target=self._carry, args=(near, far, "up"), daemon=True).start()
            threading.Thread(target=self._carry, args=(far, near, "down"), daemon=True).start()

    def _carry(self, one: socket.socket, other: socket.socket, way: str) -> None:
        with suppress(OSError):
            while data := one.recv(1 << 16):
                with self._lock:
                    setattr(self, way, getattr(self, way) + len(data))
                if self._rate is not None:
                    self._wait(8 * len(data) / self._rate, way)
                other.sendall(data)
        for end in (one, other):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        with self._lock:
            self._open -= {one}
        one.close()

    def _wait(self, seconds: float, way: str) -> None:
        """Until what takes so long is there, after all that was sent that way before."""
        with self._lock:
            there = self._free[way] = max(self._free[way], time.monotonic()) + seconds
        time.sleep(max(there - time.monotonic(), 0))

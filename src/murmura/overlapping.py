"""Blocks that change something of the whole process, and may overlap."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Overlapping:
    """Something that is changed while any of its blocks runs, in whatever threads: the first changes it, and the last
    puts it back. Each for itself they would put back one another's changes, and the last of them for good.

    Args:
        change: returns what puts it back.
    """

    def __init__(self, change: Callable[[], Callable[[], None]]) -> None:
        self._change, self._lock, self._blocks = change, threading.Lock(), 0

    @contextmanager
    def block(self) -> Iterator[None]:
        """For a ``with`` block."""
        with self._lock:
            if not self._blocks:
                self._restore = self._change()
            self._blocks += 1
        try:
            yield
        finally:
            with self._lock:
                self._blocks -= 1
                if not self._blocks:
                    self._restore()

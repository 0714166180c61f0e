"""HTTP connections that are not kept for whoever sends nothing: uvicorn waits without end for a request to begin, and
for the rest of its head."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol  # which, unlike uvicorn's other one, bounds the size of a head

HEAD = 60.0
"""Seconds that the head of a first request may take."""


class Impatient(H11Protocol):
    """As uvicorn's, which counts the time between requests, but bytes that are no whole head do not stop its clock."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._close_at(self.loop.time() + HEAD)

    def data_received(self, data: bytes) -> None:
        running = self.timeout_keep_alive_task
        super().data_received(data)
        is_asked = self.cycle is not None and not self.cycle.response_complete
        if running is not None and not is_asked and not self.transport.is_closing():
            self._unset_keepalive_if_required()
            self._close_at(running.when())

    def _close_at(self, when: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_at(when, self.timeout_keep_alive_handler)

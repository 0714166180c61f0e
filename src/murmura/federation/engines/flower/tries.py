"""One forward for all tries of a request, for lines on which it takes longer than Flower waits.

Flower's client waits 30 seconds for a reply, and then sends the request again, byte for byte, until it gets one. The
first try is on its way still. A second one over the same line would make both slower; and of a part of an answer that
is there by then Flower's server says that it was not taken, upon which Flower throws the whole answer away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from hashlib import sha256
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

# seconds; Flower waits up to 20 until it tries again, and may first wait as long for the part that it sends beside it
_KEPT = 60.0

_Asked = tuple[str, bytes]


class Tries:
    """Requests that are forwarded, and replies to them that nobody was there to take."""

    def __init__(self) -> None:
        self._forwards: dict[_Asked, asyncio.Task[Response]] = {}
        self._timers: dict[_Asked, asyncio.TimerHandle] = {}  # of replies that nobody has taken

    async def reply(
        self, request: Request, body: bytes, forward: Callable[[], Coroutine[Any, Any, Response]]
    ) -> Response:
        """What a request is answered, which is forwarded unless an earlier try of it is.

        Raises:
            ClientDisconnect: who asked does not wait any longer.
        """
        asked = request.url.path, sha256(body).digest()
        if (forwarded := self._forwards.get(asked)) is None:
            forwarded = self._forwards[asked] = asyncio.create_task(forward())
            forwarded.add_done_callback(partial(self._end, asked))
        gone = asyncio.create_task(_gone(request))
        try:
            await asyncio.wait({forwarded, gone}, return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                raise ClientDisconnect
        finally:
            gone.cancel()
        self._forget(asked, forwarded)
        return forwarded.result()

    def _end(self, asked: _Asked, forwarded: asyncio.Task[Response]) -> None:
        """Keep a reply for the next try, if it says that the request was taken; what failed is forwarded anew."""
        if forwarded.cancelled() or forwarded.exception() or forwarded.result().status_code != 200:
            self._forget(asked, forwarded)
        else:
            self._timers[asked] = asyncio.get_running_loop().call_later(_KEPT, self._forget, asked, forwarded)

    def _forget(self, asked: _Asked, forwarded: asyncio.Task[Response]) -> None:
        if self._forwards.get(asked) is forwarded:
            del self._forwards[asked]
            if timer := self._timers.pop(asked, None):
                timer.cancel()  # which lets go of the reply


async def _gone(request: Request) -> None:
    """Return when whoever asked has hung up."""
    while (await request.receive())["type"] != "http.disconnect":
        pass

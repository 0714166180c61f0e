"""What runs inside Flower's processes: frames of bytes from its grid to a local socket and back.

It imports nothing of Murmura: at a site Flower starts a process for each message, which is to be there at once.
"""

from __future__ import annotations

import json
import os
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Client, Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

client_app = ClientApp()
server_app = ServerApp()

_FAILED = 2  # code of an error reply; Flower's own for an app that raised
_POLL, _EACH = 0.1, 0.02  # seconds between looks for a reply: at least, and for each one that is waited for
_NODES = 1.0  # seconds between looks at who is connected


def _connect(door: str) -> Connection:
    token = (Path(door).parent / "token").read_bytes()
    return Client(door, "AF_UNIX", authkey=token)


def _content(frame: bytes) -> RecordDict:
    """One array whatever is in it: Flower handles each array by itself, at a cost."""
    return RecordDict({"frame": ArrayRecord({"bytes": Array(np.frombuffer(frame, np.uint8))})})


def _frame(message: Message) -> bytes:
    content: Any = message.content
    sent: bytes = content["frame"]["bytes"].numpy().astype(np.uint8, copy=False).tobytes()
    return sent


@client_app.query()
def ask(message: Message, context: Context) -> Message:
    """Hand a message to the site's own process, whose door the site's operator has named, and answer with what comes
    back. Of what goes wrong only the exception's class travels."""
    try:
        with _connect(str(context.node_config["door"])) as line:
            line.send_bytes(_frame(message))
            return Message(_content(line.recv_bytes()), reply_to=message)
    except Exception as error:
        return Message(Error(_FAILED, type(error).__name__), reply_to=message)


@server_app.main()
def carry(grid: Grid, context: Context) -> None:
    """Push what comes from the process that leads the run, and hand it the replies, until it is gone."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    told = json.loads(str(context.run_config["murmura"]))
    with _connect(told["door"]) as line, suppress(EOFError, ConnectionError):
        _Carrier(grid, line).carry()


def _end_with(parent: int) -> None:
    """End this process with the one that has started it. Flower would go on trying to reach a server that is gone."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


class _Carrier:
    """Between a grid and the line to the process that leads. A message on the line is a JSON head, a line feed, and
    bytes.

    Each reply is waited for in a thread of its own: to fetch one blocks until all of it is there, and of a site that
    died in the middle, or that lies, that takes as long as Flower lets it.
    """

    def __init__(self, grid: Grid, line: Connection) -> None:
        self._grid, self._line = grid, line
        self._told: SimpleQueue[bytes] = SimpleQueue()
        self._waited: set[int] = set()  # numbers of the messages whose replies somebody waits for
        self._nodes: list[int] | None = None
        self._looked = 0.0

    def carry(self) -> None:
        threading.Thread(target=self._hand_over, daemon=True).start()
        while True:
            if self._line.poll(_NODES / 2):
                head, _, frame = self._line.recv_bytes().partition(b"\n")
                told = json.loads(head)
                if "drop" in told:
                    self._waited.discard(told["drop"])
                else:
                    self._push(told, frame)
            self._look()

    def _push(self, head: dict[str, Any], frame: bytes) -> None:
        message = Message(_content(frame), dst_node_id=head["node"], message_type="query", ttl=head["seconds"])
        known, number = next(iter(self._grid.push_messages([message])), None), head["number"]
        if not known:
            self._tell({"failed": number})
            return
        self._waited.add(number)
        threading.Thread(target=self._follow, args=(known, number), daemon=True).start()

    def _follow(self, known: str, number: int) -> None:
        """Wait for the reply to a message, and hand it over."""
        while number in self._waited:
            for reply in self._grid.pull_messages([known]):
                self._waited.discard(number)
                if reply.has_error():
                    self._tell({"failed": number, "code": reply.error.code, "why": reply.error.reason})
                    return
                try:
                    frame = _frame(reply)
                except Exception:  # a site may send anything; what cannot be read is left out by its name
                    frame = b""
                self._tell({"answered": number}, frame)
                return
            time.sleep(max(_POLL, _EACH * len(self._waited)))

    def _look(self) -> None:
        if time.monotonic() - self._looked < _NODES:
            return
        self._looked, nodes = time.monotonic(), sorted(self._grid.get_node_ids())
        if nodes != self._nodes:
            self._nodes = nodes
            self._tell({"nodes": nodes})

    def _tell(self, head: dict[str, Any], frame: bytes = b"") -> None:
        self._told.put(json.dumps(head).encode() + b"\n" + frame)

    def _hand_over(self) -> None:
        """Send what there is to tell. Whoever receives must not wait for that: the other end may read nothing more
        until it has got rid of what it sends."""
        with suppress(OSError):  # of the other end that is gone the one who reads learns
            while True:
                self._line.send_bytes(self._told.get())

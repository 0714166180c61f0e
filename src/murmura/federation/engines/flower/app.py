"""What runs inside Flower's processes: frames of bytes from its grid to a local socket and back.

It imports nothing of Murmura: at a site Flower starts a process for each message, which is to be there at once.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

client_app = ClientApp()
server_app = ServerApp()

_FAILED = 2  # code of an error reply; Flower's own for an app that raised
_POLL = 0.1  # seconds between looks for replies
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
    told = json.loads(str(context.run_config["murmura"]))
    with _connect(told["door"]) as line, suppress(EOFError, ConnectionError):
        _Carrier(grid, line).carry()


class _Carrier:
    """Between a grid and the line to the process that leads. A message on the line is a JSON head, a line feed, and
    bytes."""

    def __init__(self, grid: Grid, line: Connection) -> None:
        self._grid, self._line = grid, line
        self._numbers: dict[str, int] = {}  # of the messages that are not answered yet, by Flower's own ids
        self._nodes: list[int] | None = None
        self._looked = 0.0

    def carry(self) -> None:
        while True:
            for head, frame in self._received():
                if "drop" in head:
                    self._numbers = {one: number for one, number in self._numbers.items() if number != head["drop"]}
                else:
                    self._push(head, frame)
            self._pull()
            self._look()

    def _received(self) -> Iterator[tuple[dict[str, Any], bytes]]:
        while self._line.poll(0 if self._numbers else _POLL):
            head, _, frame = self._line.recv_bytes().partition(b"\n")
            yield json.loads(head), frame
        if self._numbers:
            time.sleep(_POLL)

    def _push(self, head: dict[str, Any], frame: bytes) -> None:
        message = Message(_content(frame), dst_node_id=head["node"], message_type="query", ttl=head["seconds"])
        [known] = self._grid.push_messages([message])
        if known:
            self._numbers[known] = head["number"]
        else:
            self._tell({"failed": head["number"]})

    def _pull(self) -> None:
        for reply in self._grid.pull_messages(list(self._numbers)) if self._numbers else ():
            number = self._numbers.pop(reply.metadata.reply_to_message_id, None)
            if number is not None and reply.has_error():
                self._tell({"failed": number, "code": reply.error.code, "why": reply.error.reason})
            elif number is not None:
                self._tell({"answered": number}, _frame(reply))

    def _look(self) -> None:
        if time.monotonic() - self._looked < _NODES:
            return
        self._looked, nodes = time.monotonic(), sorted(self._grid.get_node_ids())
        if nodes != self._nodes:
            self._nodes = nodes
            self._tell({"nodes": nodes})

    def _tell(self, head: dict[str, Any], frame: bytes = b"") -> None:
        self._line.send_bytes(json.dumps(head).encode() + b"\n" + frame)

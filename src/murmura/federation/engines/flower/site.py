"""A site's own process, which has its model and records, and answers what comes through its door."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection
from queue import Queue

from murmura.errors import RunError
from murmura.federation.engines.flower import LARGEST
from murmura.federation.engines.flower.door import Door
from murmura.federation.engines.worker import Worker
from murmura.federation.wire.frames import answer_frame, joined, unframe
from murmura.federation.wire.messages import Failure
from murmura.progress import say
from murmura.units import size

_AROUND = 2**20  # bytes of what Flower sends with an answer
_KEPT = 4  # answers that are given again where the same is asked again


def answer(door: Door, worker: Worker) -> None:
    """Answer until the door is closed.

    What is asked a second time, to the byte, is not done again: Flower's server was started anew, and has lost the
    answer. It is the same answer, so that nothing counts twice at either side.
    """
    kept: OrderedDict[bytes, bytes] = OrderedDict()
    asked: Queue[_Asked | None] = Queue()
    threading.Thread(target=_receive, args=(door, asked), daemon=True, name="door").start()
    while (one := asked.get()) is not None:
        with one.line:
            known = hashlib.sha256(one.message).digest()
            if known not in kept:
                found = _answered(worker, one.message, one.since)
                if found is None:
                    continue
                kept[known] = found
                while len(kept) > _KEPT:
                    kept.popitem(last=False)
            with suppress(OSError):
                one.line.send_bytes(kept[known])


@dataclass(frozen=True)
class _Asked:
    """What came, whom to answer, and when it came, which may be long before there is time for it."""

    line: Connection
    message: bytes
    since: float


def _receive(door: Door, asked: Queue[_Asked | None]) -> None:
    """Take what comes until the door is closed."""
    while True:
        try:
            line = door.accept()
        except (EOFError, AuthenticationError, ConnectionError):
            continue
        except OSError:
            asked.put(None)
            return
        try:
            asked.put(_Asked(line, line.recv_bytes(LARGEST), time.monotonic()))
        except (EOFError, OSError):
            line.close()


def _carried(one: bytes) -> bytes:
    """A part of an answer; where it is larger than gateways let through, that there is none, since whoever asks would
    wait for it in vain."""
    if len(one) <= LARGEST - _AROUND:
        return one
    say(f"the answer has {size(len(one))}, and at most {size(LARGEST - _AROUND)} can be sent: it stays here")
    return answer_frame(Failure(str(unframe(one)[0].get("site")), RunError.__name__))


def _answered(worker: Worker, message: bytes, since: float) -> bytes | None:
    """The answer; None where there is none, whatever came: a server that lies is not to end this process, since it is
    started again and what it has counted in memory is gone."""
    try:
        return joined([_carried(one) for one in worker.handle(message, since)])
    except Exception as error:
        say(f"what the server sent cannot be read ({type(error).__name__})")
        return None

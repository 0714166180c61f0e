"""A site's own process, which has its model and records, and answers what comes through its door."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from multiprocessing import AuthenticationError

from murmura.errors import RunError
from murmura.federation.engines.flower.door import Door
from murmura.federation.engines.worker import Worker
from murmura.federation.wire.frames import joined

_KEPT = 4  # answers that are given again where the same is asked again
_LARGEST = 2**31  # bytes of an ask


def answer(door: Door, worker: Worker) -> None:
    """Answer until the door is closed.

    What is asked a second time, to the byte, is not done again: Flower's server was started anew, and has lost the
    answer. It is the same answer, so that nothing counts twice at either side.
    """
    kept: OrderedDict[bytes, bytes] = OrderedDict()
    while True:
        try:
            line = door.accept()
        except (EOFError, AuthenticationError, ConnectionError):
            continue
        except OSError:
            return
        with line:
            try:
                message, since = line.recv_bytes(_LARGEST), time.monotonic()
                known = hashlib.sha256(message).digest()
                if known not in kept:
                    kept[known] = _answered(worker, message, since)
                    while len(kept) > _KEPT:
                        kept.popitem(last=False)
                line.send_bytes(kept[known])
            except (EOFError, OSError):
                continue


def _answered(worker: Worker, message: bytes, since: float) -> bytes:
    try:
        return joined(worker.handle(message, since))
    except RunError:  # it is no frame
        return b""

"""What runs inside Flower's server, between a grid that a test makes up and the real engine."""

import threading
import time
from contextlib import suppress
from types import SimpleNamespace

from murmura.federation.engines.flower import app
from murmura.federation.engines.flower.door import Door
from murmura.federation.engines.flower.engine import FlowerEngine
from murmura.federation.wire.frames import answer_frame, frame, joined
from murmura.federation.wire.messages import Ask, Reply

SITES = {f"site-{node}": node for node in range(1, 41)}
LARGE = 2 * 1024**2  # bytes, more than a socket takes before somebody reads


class Grid:
    """Takes a while for each message, has large answers soon, and sees other nodes each time it looks."""

    def __init__(self):
        self.due, self.looks = {}, 0

    def push_messages(self, messages):
        [node] = messages
        time.sleep(0.03)
        self.due[node] = time.monotonic() + 0.2
        return [node]

    def pull_messages(self, known):
        [node] = known
        return [SimpleNamespace(node=node, has_error=lambda: False)] if time.monotonic() > self.due[node] else []

    def get_node_ids(self):
        self.looks += 1
        return [*SITES.values(), 100 + self.looks]


def large_answer(reply):
    [name] = [name for name, node in SITES.items() if node == reply.node]
    done = {"done": {"number": 0, "failed": None, "seconds": {}, "memory": 0, "worker": name}}
    return joined([answer_frame(Reply(name, {"text": "x" * LARGE})), frame(done)])


def test_large_answers_come_while_large_asks_are_still_sent(monkeypatch):
    """Neither end may wait for the other to receive, also where there is something to tell in between."""
    monkeypatch.setattr(app, "_frame", large_answer)
    monkeypatch.setattr(app, "_content", lambda sent: None)
    monkeypatch.setattr(app, "Message", lambda content, dst_node_id, **_: dst_node_id)
    monkeypatch.setattr(app, "_NODES", 0.01)
    door, found = Door(), []
    engine = FlowerEngine(SITES, door, lambda: None, lambda: None)

    def carry():
        with app._connect(str(door.address)) as line, suppress(EOFError, ConnectionError):
            app._Carrier(Grid(), line).carry()

    def ask():
        found.extend(engine.ask(Ask("train", 1, {"text": "y" * LARGE}), list(SITES)))

    for work in (carry, ask):
        threading.Thread(target=work, daemon=True).start()
    end = time.monotonic() + 60
    while len(found) < len(SITES) and time.monotonic() < end:
        time.sleep(0.05)
    assert [answer.site for answer in found] == list(SITES) and all(isinstance(answer, Reply) for answer in found)
    engine.close()

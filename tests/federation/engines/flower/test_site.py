"""A site's own process does once what it is asked twice, and names no folders for a server."""

import threading
import time
from multiprocessing.connection import Client

import pytest
from safetensors.torch import save

from murmura.federation.engines.flower.door import Door
from murmura.federation.engines.flower.site import answer
from murmura.federation.engines.worker import Worker
from murmura.federation.wire.frames import frame, parted, unframe
from murmura.federation.wire.messages import encode


class Counting:
    """A worker that answers with how often it has worked."""

    def __init__(self):
        self.times = 0

    def handle(self, message, since):
        self.times += 1
        yield frame({"times": self.times})


@pytest.fixture
def door():
    with Door() as made:
        yield made


def knock(door, message, token=None):
    token = token or (door.address.parent / "token").read_bytes()
    with Client(str(door.address), "AF_UNIX", authkey=token) as line:
        line.send_bytes(message)
        return line.recv_bytes()


def serve(door, worker):
    thread = threading.Thread(target=answer, args=(door, worker), daemon=True)
    thread.start()
    return thread


def test_what_is_asked_again_to_the_byte_gets_the_same_answer_and_is_not_done_again(door):
    serve(door, Counting())
    first, second = frame({"verb": "a", "number": 1}), frame({"verb": "a", "number": 2})
    answers = [unframe(parted(knock(door, one))[0])[0]["times"] for one in (first, first, second, first)]
    assert answers == [1, 1, 2, 1]


def test_an_answer_that_is_too_large_for_the_way_is_a_failure_that_arrives(door, monkeypatch, capsys):
    class Writing:
        def handle(self, message, since):
            yield frame({"site": "heart", "text": "x" * 2000})
            yield frame({"done": {}})

    monkeypatch.setattr("murmura.federation.engines.flower.site.LARGEST", 2**20 + 1000)
    serve(door, Writing())
    told, done = (unframe(part)[0] for part in parted(knock(door, frame({"verb": "a"}))))
    assert told == {"failed": "RunError", "site": "heart"} and "done" in done
    assert "at most 1.00 kB can be sent: it stays here" in capsys.readouterr().err


def test_whoever_does_not_know_the_token_is_not_heard_and_others_are(door):
    counting = Counting()
    serve(door, counting)
    with pytest.raises(Exception, match=r"digest|closed|reset|pipe"):
        knock(door, frame({"verb": "a"}), b"guessed")
    assert counting.times == 0
    knock(door, frame({"verb": "a"}))
    assert counting.times == 1


def test_nobody_else_may_look_for_the_token(door):
    assert door.address.parent.stat().st_mode & 0o077 == 0


DEEP = save({}, {"json": '{"head": ' + "[" * 3000 + "]" * 3000 + "}"})


@pytest.mark.parametrize("sent", [b"", b"x" * 40, encode({"x": 1}), encode({"head": 5}), frame({"verb": 1}), DEEP])
def test_nothing_that_a_server_sends_ends_the_process(door, sent):
    """It would be started again, and have forgotten what it counts in memory."""
    thread = serve(door, Worker(None))
    with pytest.raises(EOFError):
        knock(door, sent)
    assert thread.is_alive()


def test_what_has_waited_is_as_late_as_it_is(door):
    class Slow(Counting):
        def handle(self, message, since):
            came.append(since)
            time.sleep(0.3)
            yield from super().handle(message, since)

    came, began = [], time.monotonic()
    serve(door, Slow())
    threads = [threading.Thread(target=knock, args=(door, frame({"number": k}))) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(came) - began < 0.3


def test_a_closed_door_ends_the_work():
    door = Door()
    thread = serve(door, Counting())
    door.close()
    thread.join(10)
    assert not thread.is_alive()


def test_a_server_elsewhere_opens_no_folder_and_learns_nothing_of_the_machine(tmp_path):
    asked = frame({"folders": [str(tmp_path)], "number": 7})
    [done] = Worker(None).handle(asked)
    assert unframe(done)[0]["done"] | {"worker": ""} == {
        "number": 7,
        "failed": None,
        "seconds": {},
        "memory": 0,
        "worker": "",
    }

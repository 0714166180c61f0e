"""What the engine makes of answers that are late, double, damaged or another site's, and of what carries them going."""

import json
import threading
import time
from multiprocessing.connection import Client

import pytest

from murmura.federation.engines.flower.door import Door
from murmura.federation.engines.flower.engine import FlowerEngine
from murmura.federation.wire.frames import answer_frame, frame, joined, unframe
from murmura.federation.wire.messages import LATE, Ask, Failure, Reply


class Carrier:
    """What runs inside Flower, as a test wants it: ``answer(number, site, head)`` gives what comes back."""

    def __init__(self, door, answer, nodes=(1, 2)):
        self.pushed, self._answer = [], answer
        token = (door.address.parent / "token").read_bytes()
        self.line = Client(str(door.address), "AF_UNIX", authkey=token)
        self.tell({"nodes": list(nodes)})
        threading.Thread(target=self._carry, daemon=True).start()

    def tell(self, head, message=b""):
        self.line.send_bytes(json.dumps(head).encode() + b"\n" + message)

    def _carry(self):
        try:
            while True:
                head, _, message = self.line.recv_bytes().partition(b"\n")
                head = json.loads(head)
                if "node" in head:
                    self.pushed.append(message)
                    for told, answer in self._answer(head["number"], "ab"[head["node"] - 1], unframe(message)[0]):
                        self.tell(told, answer)
        except (EOFError, OSError, TypeError):  # the last of a line that is closed while it is read
            pass


def answered(number, answer, worker="w"):
    done = {"number": number, "failed": None, "seconds": {}, "memory": 0, "worker": worker}
    return {"answered": number}, joined([answer_frame(answer), frame({"done": done})])


def plainly(number, site, head):
    return [answered(number, Reply(site, {"n": head.get("round", 0)}))]


@pytest.fixture
def made():
    """An engine, and carriers for it."""
    door, carriers = Door(), []
    engine = FlowerEngine({"a": 1, "b": 2}, door, lambda: None, lambda: None, patience=1.0)

    def carrier(answer, **options):
        carriers.append(Carrier(door, answer, **options))
        return carriers[-1]

    yield engine, carrier
    engine.close()
    for one in carriers:
        one.line.close()


def values(engine, round=1, **options):
    return list(engine.ask(Ask("train", round, **options), ["a", "b"]))


def test_answers_come_in_the_order_of_the_sites(made):
    engine, carrier = made
    carrier(plainly)
    assert values(engine, 3) == [Reply("a", {"n": 3}), Reply("b", {"n": 3})]


def test_an_answer_that_comes_twice_counts_once_and_none_counts_that_nobody_waits_for(made):
    engine, carrier = made
    other = Reply("a", {"n": 99})
    carrier(lambda n, site, head: [*plainly(n, site, head), answered(n, other), answered(n + 7, other)])
    assert values(engine, 1) == [Reply("a", {"n": 1}), Reply("b", {"n": 1})]
    assert values(engine, 2) == [Reply("a", {"n": 2}), Reply("b", {"n": 2})]


@pytest.mark.parametrize(
    "answer",
    [b"", b"x" * 100, joined([b"damaged"]), joined([frame({"done": {}})]), joined([frame({"done": 3})])],
    ids=["none", "noise", "damaged", "no end", "no table"],
)
def test_what_cannot_be_read_is_a_failure_of_its_site_alone(made, answer):
    engine, carrier = made
    carrier(lambda n, site, head: [({"answered": n}, answer)] if site == "a" else plainly(n, site, head))
    first, second = values(engine)
    assert isinstance(first, Failure) and first.site == "a" and second == Reply("b", {"n": 1})


def test_no_site_answers_for_another(made):
    engine, carrier = made
    carrier(lambda n, site, head: [answered(n, Reply("b", {"n": 5}))])
    first, second = values(engine)
    assert isinstance(first, Failure) and second == Reply("b", {"n": 5})


def test_what_was_not_answered_is_handed_over_again_as_the_same_bytes(made):
    engine, carrier = made
    first = carrier(lambda n, site, head: [])
    asking = threading.Thread(target=lambda: found.extend(values(engine)))
    found = []
    asking.start()
    wait(lambda: len(first.pushed) == 2)
    first.line.close()
    second = carrier(plainly)
    asking.join(10)
    assert found == [Reply("a", {"n": 1}), Reply("b", {"n": 1})]
    assert second.pushed == first.pushed


def test_neither_the_bytes_to_a_site_nor_an_answer_that_was_read_are_kept(made):
    """With a thousand sites each of them would be an adapter for each."""
    engine, carrier = made
    one = carrier(lambda n, site, head: plainly(n, site, head) if site == "a" else [])
    asked = engine.ask(Ask("train", 1), ["a", "b"])
    assert next(asked) == Reply("a", {"n": 1})
    wait(lambda: len(one.pushed) == 2)
    [other] = engine._errands.values()
    assert other.site == "b" and not any(isinstance(value, bytes) for value in vars(other).values())
    asked.close()
    assert not engine._errands


def test_a_site_that_was_started_again_has_to_join_again(made):
    engine, carrier = made
    worker = ["first"]
    carrier(lambda n, site, head: [answered(n, Reply(site, {}), worker[0] if site == "a" else "b's")])
    list(engine.ask(Ask("join", 0), ["a", "b"]))
    assert values(engine) == [Reply("a", {}), Reply("b", {})] and engine.returned() == []
    worker[0] = "second"
    first, second = values(engine)
    assert isinstance(first, Failure) and first.why != LATE and second == Reply("b", {})
    assert engine.returned() == ["a"]
    list(engine.ask(Ask("join", 0), ["a"]))
    assert values(engine) == [Reply("a", {}), Reply("b", {})] and engine.returned() == []


def test_a_site_out_of_reach_is_gone_after_a_while(made):
    engine, carrier = made
    carrier(lambda n, site, head: [] if site == "a" else plainly(n, site, head), nodes=[2])
    first, second = values(engine)
    assert isinstance(first, Failure) and first.why != LATE and second == Reply("b", {"n": 1})
    assert engine.missing(0.5) == ["a"]


def test_time_is_up_where_a_site_is_there_and_does_not_answer(made):
    engine, carrier = made
    carrier(lambda n, site, head: [] if site == "a" else plainly(n, site, head))
    assert values(engine, seconds=0.3)[0] == Failure("a", LATE)


def failed(number, why):
    return [({"failed": number, "code": 2, "why": why}, b"")]


@pytest.mark.parametrize("code", [2, 5])  # its app raised; it cannot be reached, though Flower says that it can
def test_what_flower_cannot_bring_is_a_site_that_is_gone(made, code):
    engine, carrier = made
    carrier(lambda n, site, head: [({"failed": n, "code": code, "why": "not there"}, b"")])
    assert all(isinstance(one, Failure) and one.why != LATE for one in values(engine))


@pytest.mark.parametrize("told", ["all is well\n\x1b[2J", ["x"], "x" * 10**6])
def test_why_a_site_did_not_answer_is_no_text_of_its_own(made, told):
    engine, carrier = made
    ended = {"done": {"worker": "w", "failed": told}}
    carrier(lambda n, site, head: [({"answered": n}, joined([frame(ended)]))] if site == "a" else failed(n, told))
    first, second = values(engine)
    assert first == Failure("a", "an error without a name")
    assert isinstance(second, Failure) and second.why.isprintable() and len(second.why) <= 200


def test_what_flower_lost_is_handed_over_again_as_the_same_bytes_once_the_site_is_there(made, monkeypatch):
    monkeypatch.setattr("murmura.federation.engines.flower.engine._AGAIN", 0.1)
    engine, carrier = made
    engine._patience = 600.0
    lost = set()

    def answer(number, site, head):
        if site == "a" and not lost:
            lost.add(number)
            return [({"failed": number, "code": 5, "why": "no heartbeat"}, b"")]
        return plainly(number, site, head)

    one, found = carrier(answer), []
    one.tell({"nodes": [1, 2]})
    asking = threading.Thread(target=lambda: found.extend(values(engine)))
    one.tell({"nodes": [2]})  # a is away
    asking.start()
    wait(lambda: len(one.pushed) == 2)
    time.sleep(1)
    assert asking.is_alive() and len(one.pushed) == 2  # nothing is handed to who is away
    one.tell({"nodes": [1, 2]})
    asking.join(10)
    assert found == [Reply("a", {"n": 1}), Reply("b", {"n": 1})]
    assert one.pushed[2] == one.pushed[0] and len(one.pushed) == 3


def test_a_second_outage_counts_by_itself(made, monkeypatch):
    monkeypatch.setattr("murmura.federation.engines.flower.engine._AGAIN", 0.1)
    engine, carrier = made
    lost = iter([0, 1.2])  # seconds that it is on its way before; patience is less

    def answer(number, site, head):
        after = next(lost, None)
        if after is None:
            return plainly(number, site, head)
        time.sleep(after)
        return [({"failed": number, "code": 5, "why": "no heartbeat"}, b"")]

    one = carrier(answer)
    assert list(engine.ask(Ask("train", 1), ["a"])) == [Reply("a", {"n": 1})] and len(one.pushed) == 3


def test_a_site_to_which_nothing_gets_is_gone_however_often_it_is_handed_over(made, monkeypatch):
    monkeypatch.setattr("murmura.federation.engines.flower.engine._AGAIN", 0.4)
    engine, carrier = made
    one = carrier(lambda n, site, head: [({"failed": n, "code": 5, "why": "no heartbeat"}, b"")])
    [gone] = engine.ask(Ask("train", 1, seconds=30), ["a"])
    assert isinstance(gone, Failure) and gone.why != LATE and len(one.pushed) > 1


def test_how_long_a_site_was_away_before_flower_noticed_counts(made):
    engine, carrier = made
    engine._patience = 61.0
    one = carrier(lambda n, site, head: [] if site == "a" else plainly(n, site, head))
    asking, found = threading.Thread(target=lambda: found.extend(values(engine))), []
    asking.start()
    wait(lambda: len(one.pushed) == 2)
    one.tell({"nodes": [2]})
    asking.join(10)
    assert isinstance(found[0], Failure) and found[0].why != LATE and found[1] == Reply("b", {"n": 1})


def test_closing_ends_what_waits(made):
    engine, _ = made
    found = []
    asking = threading.Thread(target=lambda: found.extend(values(engine)))
    asking.start()
    time.sleep(0.2)
    engine.close()
    asking.join(10)
    assert all(isinstance(one, Failure) for one in found) and len(found) == 2


def wait(until):
    end = time.monotonic() + 10
    while not until():
        assert time.monotonic() < end
        time.sleep(0.02)

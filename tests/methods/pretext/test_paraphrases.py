"""What paraphrases that sites make under local differential privacy have cost."""

from types import SimpleNamespace

import pytest

from murmura.federation.server.fleet import Fleet
from murmura.federation.server.ledger import Ledger
from murmura.federation.wire.messages import Reply
from murmura.methods import build
from murmura.methods.pretext import paraphrases
from murmura.methods.pretext.config import PretextConfig
from murmura.methods.pretext.paraphrases import gathered, note_privacy
from murmura.streams import Stream
from tests.federation.world import Scripted, journals


@pytest.mark.parametrize(("asks", "noted", "times"), [(3, 1, 1), (4, 1, 2), (6, 2, 2), (7, 3, 3), (3, 2, 2)])
def test_whoever_was_asked_twice_may_have_answered_twice(asks, noted, times):
    """Of three sites: of an attempt that was stopped, answers may have left that never came."""
    told, config = [], PretextConfig(seeds="paraphrased", epsilon=9.0, public="public.jsonl")
    server = SimpleNamespace(
        asks=lambda verb: {"paraphrase": asks}[verb],
        journal=lambda name, kind: {"paraphrases": SimpleNamespace(lines=[{}] * noted)}[name],
        note_privacy=told.append,
    )
    note_privacy(config, server, SimpleNamespace(sites=["a", "b", "c"]))
    assert told[0]["epsilon"] == 9.0 * times
    assert (f"sent {times} times" in told[0]["plan"]) == (times > 1)


def test_a_site_that_sends_more_paraphrases_than_it_may_is_left_out(monkeypatch):
    monkeypatch.setattr(paraphrases, "public_texts", lambda *_: ["public"])
    monkeypatch.setattr(paraphrases, "logit_bounds", lambda *_: (0.0, 1.0))
    monkeypatch.setattr(paraphrases, "note_privacy", lambda *_: None)
    config = PretextConfig(seeds="paraphrased", epsilon=9.0, public="public.jsonl", texts_per_site=2)
    texts = {"a": ["one", "two"], "b": ["three"] * 3, "c": ["four"]}
    engine = Scripted(lambda site, ask: Reply(site, {"texts": texts[site]}))
    fleet = Fleet(engine, [build(config)], Ledger(), Stream(0))
    server = SimpleNamespace(
        evaluation_set=SimpleNamespace(subjects=[]), stream=Stream(0), runtime=SimpleNamespace(another=lambda _: None)
    )
    server.journal = journals()
    assert gathered(config, server, fleet) == ["one", "two", "four"]
    assert fleet.events == ["the answer of site b to 'paraphrase' is left out: it holds more than 2 texts"]

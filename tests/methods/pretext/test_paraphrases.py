"""What paraphrases that sites make under local differential privacy have cost."""

from types import SimpleNamespace

import pytest

from murmura.methods.pretext.config import PretextConfig
from murmura.methods.pretext.paraphrases import note_privacy


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

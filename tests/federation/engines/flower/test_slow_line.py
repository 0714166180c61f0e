"""Over a line on which what Flower sends takes longer than it waits, asks and answers come all the same."""

import pytest
import torch

from bench.proxy import Proxy
from murmura.federation.wire.messages import Ask, Reply
from murmura.streams import Stream
from tests.federation.engines.flowered import Flowered, Link
from tests.federation.engines.working import Working
from tests.federation.world import connect, make_sites, make_workbench

RATE = 1.2e6  # bits a second each way


class Slow(Link):
    """One whose sites reach the server by a slow line."""

    found = None

    def _reached(self):
        self._line = Proxy(self.superlink.port, RATE)
        return self._line.port

    def close(self):
        super().close()
        self._line.close()


class Slowly(Flowered):
    link = Slow


@pytest.mark.deployed
@pytest.mark.timeout(600)
def test_an_answer_of_twelve_megabytes_comes(tokenizer, tmp_path):
    runtime = make_workbench(tokenizer, slots=1)
    engine = connect(Slowly, make_sites(1, folder=tmp_path), Working(None), runtime, Stream(0))
    try:
        ask = Ask("train", 1, {"adapter": {"w": torch.randn(3_000_000)}, "lr": 1.0}, seconds=240.0)
        [reply] = engine.ask(ask, engine.sites)
        assert isinstance(reply, Reply) and len(reply["adapter"]["w"]) == 3_000_000
    finally:
        engine.close()
        Slow.end()

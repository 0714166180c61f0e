"""The local engine and the one that sends everything through the wire encoding."""

from __future__ import annotations

import pytest
import torch

from murmura.errors import UndeclaredReleaseError
from murmura.federation.engines.local import LocalEngine
from murmura.federation.engines.loopback import LoopbackEngine
from murmura.federation.ledger import Count, Weights
from murmura.federation.messages import Ask
from murmura.federation.method import Method, verb
from murmura.streams import Stream
from tests.federation.world import ENGINES, make_sites, make_workbench


class Recording(Method):
    label = "Recording"

    def __init__(self, config=None):
        super().__init__(config)
        self.cohorts = []
        self.sent = {"w": torch.zeros(2)}

    def lead(self, server, fleet):
        """Nothing to do."""

    @verb(releases={"adapter": Weights(), "examples": Count()})
    def train(self, cohort, ask):
        self.cohorts.append([site.name for site in cohort.sites])
        for site, adapter in zip(cohort.sites, cohort.given(ask, "adapter"), strict=True):
            site.store["kept"] = {"w": adapter["w"] + 1}
            adapter["w"].add_(100)  # a verb that spoils what it got
        return cohort.reply(adapter=[self.sent] * len(cohort.sites), examples=cohort.sizes)

    @verb(releases={"examples": Count()})
    def leak(self, cohort, ask):
        return cohort.reply(examples=cohort.sizes, records=[site.records for site in cohort.sites])


def make(engine, tokenizer, slots=2):
    method = Recording()
    return engine(make_sites(1, 2, 3, 4, 5), method, make_workbench(tokenizer, slots=slots), Stream(0)), method


def test_a_large_cohort_is_worked_off_in_chunks(tokenizer):
    engine, method = make(LocalEngine, tokenizer)
    ask = Ask("train", 1, {"adapter": {"w": torch.zeros(2)}})
    replies = engine.ask(ask, ["site-4", "site-0", "site-2"])
    assert next(replies).site == "site-4"
    assert method.cohorts == [["site-4", "site-0"]]  # the rest has not been asked for yet
    assert [reply["examples"] for reply in replies] == [1, 3]
    assert method.cohorts == [["site-4", "site-0"], ["site-2"]]


def test_sites_work_alone_behind_a_wire(tokenizer):
    engine, method = make(LoopbackEngine, tokenizer)
    list(engine.ask(Ask("train", 1, {"adapter": {"w": torch.zeros(2)}}), ["site-1", "site-0"]))
    assert method.cohorts == [["site-1"], ["site-0"]]


def test_nothing_crosses_by_reference(tokenizer):
    engine, method = make(LoopbackEngine, tokenizer)
    adapter = {"w": torch.zeros(2)}
    for reply in engine.ask(Ask("train", 1, {"adapter": adapter}), engine.sites):
        reply["adapter"]["w"].fill_(7)
    assert adapter["w"].tolist() == method.sent["w"].tolist() == [0, 0]


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_an_undeclared_field_is_refused_before_anything_is_sent(tokenizer, engine):
    engine, _ = make(engine, tokenizer)
    replies = engine.ask(Ask("leak", 4), ["site-1", "site-0"])
    with pytest.raises(UndeclaredReleaseError, match="verb leak would send 'records'") as error:
        next(replies)
    assert error.value.where == "site site-1, round 4"
    assert engine.stores() == {}


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_stores_come_and_go_with_the_checkpoint(tokenizer, engine):
    first, _ = make(engine, tokenizer)
    assert first.stores() == {}
    list(first.ask(Ask("train", 1, {"adapter": {"w": torch.zeros(2)}}), ["site-1"]))
    stores = first.stores()
    assert stores.keys() == {"site-1"}
    second, _ = make(engine, tokenizer)
    list(second.ask(Ask("train", 1, {"adapter": {"w": torch.zeros(2)}}), ["site-0"]))
    second.restore(stores)
    assert second.stores() == stores  # what site-0 did after the checkpoint is forgotten

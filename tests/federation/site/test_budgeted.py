"""Owners' budgets behind engines: by the records, whatever a run calls the sites that have them."""

from dataclasses import replace

import pytest

from murmura.data.records import digest
from murmura.federation.method import Method
from murmura.federation.site.answer import Host
from murmura.federation.traits import Traits
from murmura.federation.wire.messages import Ask, Reply
from murmura.federation.wire.releases import Count, verb
from murmura.privacy.budget import Budget
from murmura.privacy.guarantee import Cost
from murmura.streams import Stream
from tests.federation.world import ENGINES, make_sites, make_workbench
from tests.privacy.plans import RECORDS


class Spending(Method):
    traits = Traits(label="Spending")

    def lead(self, server, fleet):
        """Nothing to do."""

    def cost(self, name, records, training):
        return Cost(RECORDS, 10)

    @verb(releases={"examples": Count()}, slots=False)
    def train(self, cohort, ask):
        return cohort.reply(examples=cohort.sizes)


@pytest.fixture(scope="module")
def runtime(tokenizer):
    return make_workbench(tokenizer)


def answers(engine, runtime, tmp_path, run, names):
    """Of three sites that are called so in this run."""
    allowed = RECORDS.epsilon(15).value  # of two rounds of ten steps each, one
    sites = [replace(site, name=name) for site, name in zip(make_sites(1, 2, 3), names, strict=True)]
    for site in sites:
        site.budget = Budget(tmp_path / "accounts", site.name, digest(site.records), allowed, 1e-5)
    made = ENGINES[engine](Host(sites, [Spending(None)], runtime, Stream(0), run=run))
    try:
        return [type(one) if isinstance(one, Reply) else one.why for one in made.ask(Ask("train", 1, run=run), names)]
    finally:
        made.close()


@pytest.mark.parametrize("engine", ENGINES)
def test_sites_that_are_called_otherwise_have_spent_what_they_had(runtime, tmp_path, engine):
    first = answers(engine, runtime, tmp_path, "first", ["skin", "heart", "lung"])
    assert first == [Reply] * 3
    others = ["skin-2026", "Heart", "lung "]
    assert answers(engine, runtime, tmp_path, "second", others) == ["BudgetError"] * 3

"""Verbs and what they declare; the two verbs that every method has."""

from __future__ import annotations

import pytest

from murmura.errors import UndeclaredReleaseError
from murmura.evaluation.measure import measure
from murmura.federation.cohort import Cohort
from murmura.federation.ledger import Count, Metric
from murmura.federation.messages import Ask
from murmura.federation.method import MEASURING, Method, verb
from murmura.streams import Stream
from tests.federation.world import make_sites, make_workbench
from tests.training.helpers import random_state


class Base(Method):
    label = "Base"

    def lead(self, server, fleet):
        """Nothing to do."""

    @verb(releases={"examples": Count()})
    def count(self, cohort, ask):
        return cohort.reply(examples=cohort.sizes)

    def helper(self):
        """Not a verb."""


class Derived(Base):
    def count(self, cohort, ask):
        """Overridden without saying what it releases."""


class Declared(Base):
    @verb(releases={"examples": Count(), "loss": Metric("loss")})
    def count(self, cohort, ask):
        """Declares one field more."""


def test_what_verbs_declare():
    assert Base(None).releases("count").keys() == {"examples"}
    assert Declared(None).releases("count").keys() == {"examples", "loss"}
    assert all(Base(None).releases(name) for name in MEASURING)


@pytest.mark.parametrize("name", ["helper", "lead", "releases", "nothing"])
def test_what_is_no_verb(name):
    with pytest.raises(UndeclaredReleaseError, match=f"{name} is not a verb of Base"):
        Base(None).releases(name)


def test_an_override_must_declare_again():
    with pytest.raises(UndeclaredReleaseError, match="count is not a verb of Derived"):
        Derived(None).releases("count")


@pytest.fixture
def cohort(tokenizer):
    return Cohort(make_sites(5, 2), make_workbench(tokenizer), Ask("memorise", 1), Stream(0))


def answers(cohort, verb, **shared):
    return {reply.site: reply.fields for reply in getattr(Base(None), verb)(cohort, Ask(verb, 1, shared))}


def test_memorise_attacks_as_many_records_as_there_are(cohort):
    adapter = random_state(cohort.workbench.bank, 0)
    found = answers(cohort, "memorise", adapter=adapter, records=3)
    assert {site: fields["records"] for site, fields in found.items()} == {"site-0": 3, "site-1": 2}
    assert found["site-0"].keys() == {"rouge", "exact", "prefix", "records"}
    assert answers(cohort, "memorise", adapter=adapter, records=3) == found  # the same records each time


def test_memorise_attacks_uploads_beside_the_global_adapter(cohort):
    adapter, upload = (random_state(cohort.workbench.bank, seed, scale=1.0) for seed in (0, 1))
    alone = [answers(cohort, "memorise", adapter=a, records=2)["site-0"] for a in (adapter, upload)]
    each = {"site-0": {"upload": upload, "upload_records": 2}, "site-1": {"records": 0}}
    ask = Ask("memorise", 1, {"adapter": adapter, "records": 2}, each)
    one, two = Base(None).memorise(cohort, ask)
    assert one.fields == alone[0] | {f"upload_{name}": value for name, value in alone[1].items()}
    assert two.fields == {}


def test_memorise_takes_the_sites_own_adapter_where_none_is_sent(cohort):
    one, other = (random_state(cohort.workbench.bank, seed, scale=1.0) for seed in (4, 5))
    for site, adapter in zip(cohort.sites, (one, other), strict=True):
        site.store["adapter"] = adapter
    found = answers(cohort, "memorise", records=5)
    sent = [answers(cohort, "memorise", adapter=adapter, records=5) for adapter in (one, other)]
    assert found == {"site-0": sent[0]["site-0"], "site-1": sent[1]["site-1"]}
    assert sent[0] != sent[1]


def test_assess_measures_personal_adapters(cohort):
    adapters = [random_state(cohort.workbench.bank, seed) for seed in (0, 1)]
    for site, adapter in zip(cohort.sites, adapters, strict=True):
        site.store["adapter"] = adapter
    found = answers(cohort, "assess")
    losses = [fields["figures"]["heldout_loss"] for fields in found.values()]
    for fields, adapter in zip(found.values(), adapters, strict=True):
        [expected], _ = measure(cohort.workbench, [adapter])
        assert fields["figures"] == pytest.approx(expected, abs=1e-5)
    assert losses[0] != pytest.approx(losses[1], abs=1e-4)

"""The one place where sites answer: in time, or not at all."""

from types import SimpleNamespace

import pytest

from murmura.federation.method import Method
from murmura.federation.site.answer import Host
from murmura.federation.traits import Traits
from murmura.federation.wire.messages import LATE, Ask, Failure, Reply
from murmura.federation.wire.releases import Count, verb
from murmura.streams import Stream
from tests.federation.world import make_sites, make_workbench


class Slow(Method):
    """Takes three seconds a cohort."""

    traits = Traits(label="Slow")

    def __init__(self, clock):
        super().__init__(None)
        self.clock, self.worked = clock, []

    def lead(self, server, fleet):
        """Nothing to do."""

    @verb(releases={"examples": Count()})
    def train(self, cohort, ask):
        self.clock.now += 3
        self.worked += [site.name for site in cohort.sites]
        return cohort.reply(examples=cohort.sizes)


@pytest.fixture
def host(tokenizer, monkeypatch):
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr("murmura.federation.site.answer.time", SimpleNamespace(monotonic=lambda: clock.now))
    return Host(make_sites(1, 2, 3), [Slow(clock)], make_workbench(tokenizer, slots=1), Stream(0), run="")


class Slotless(Slow):
    """The same without adapters."""

    @verb(releases={"examples": Count()}, slots=False)
    def count(self, cohort, ask):
        self.worked.append(len(cohort.sites))
        return cohort.reply(examples=cohort.sizes)


def test_sites_that_need_no_slots_work_together_in_blocks(monkeypatch):
    monkeypatch.setattr("murmura.federation.site.answer._TOGETHER", 3)
    method = Slotless(None)
    host = Host(make_sites(*range(1, 9)), [method], SimpleNamespace(slots=1), Stream(0), run="")
    answers = host.answer(Ask("count", 1), list(host.sites))
    assert next(answers)["examples"] == 1 and method.worked == [3]  # the next block waits until it is asked for
    assert [one["examples"] for one in answers] == list(range(2, 9)) and method.worked == [3, 3, 2]


class Careless(Slotless):
    """Gives back something else than a reply for each site."""

    gives = None

    @verb(releases={"examples": Count()}, slots=False)
    def count(self, cohort, ask):
        replies = super().count(cohort, ask)
        other = [Reply("nobody", {})] * 2
        return {"fewer": replies[:-1], "more": replies * 2, "none": None, "other": other}[self.gives]


@pytest.mark.parametrize("gives", ["fewer", "more", "none", "other"])
def test_a_verb_gives_one_reply_for_each_site_of_its_cohort(gives):
    method = Careless(None)
    method.gives = gives
    host = Host(make_sites(1, 2), [method], SimpleNamespace(slots=1), Stream(0), run="")
    answers = list(host.answer(Ask("count", 1), list(host.sites)))
    assert [type(one.error).__name__ for one in answers] == ["RunError"] * 2
    assert "verb count does not give one reply for each site" in str(answers[0].error)


class Fragile(Slotless):
    """One site cannot do it, which is met when others have begun."""

    @verb(releases={"examples": Count()}, slots=False)
    def count(self, cohort, ask):
        for site in cohort.sites:
            site.store["seen"] = [*site.store.get("seen", []), 1]
            site.store.setdefault("kept", []).append(1)
            if site.name == "site-1":
                raise ValueError("its records")
        return super().count(cohort, ask)


def test_what_goes_wrong_at_one_site_costs_no_other_its_answer():
    host = Host(make_sites(1, 2, 3, 4), [Fragile(None)], SimpleNamespace(slots=1), Stream(0), run="")
    answers = {one.site: one for one in host.answer(Ask("count", 1), list(host.sites))}
    assert [isinstance(answers[name], Failure) for name in host.sites] == [False, True, False, False]
    assert answers["site-1"].why == "ValueError"
    assert host.sites["site-0"].store == {"seen": [1], "kept": [1]}  # not what the first attempt made of it


def test_what_is_done_too_late_does_not_leave_and_what_is_too_late_is_not_begun(host):
    accounts = []
    host._refusal = lambda ask, site: accounts.append(site.name)
    first, *others = host.answer(Ask("train", 1, seconds=5), list(host.sites))
    assert isinstance(first, Reply) and others == [Failure("site-1", LATE), Failure("site-2", LATE)]
    assert host.verbs[0].worked == accounts == ["site-0", "site-1"]


def test_the_time_that_an_ask_has_waited_counts(host):
    assert list(host.answer(Ask("train", 1, seconds=5), ["site-0"], since=94.0)) == [Failure("site-0", LATE)]
    assert host.verbs[0].worked == []


def test_without_a_limit_any_answer_is_in_time(host):
    assert all(isinstance(one, Reply) for one in host.answer(Ask("train", 1), list(host.sites), since=0.0))

"""What anybody may see of a run."""

import pytest

from murmura.errors import RunError
from murmura.federation.server.fleet import Fleet
from murmura.federation.server.ledger import Ledger
from murmura.federation.server.publication import OfSecretCohorts, Publication, WithoutTimes
from murmura.federation.wire.messages import Reply
from murmura.federation.wire.releases import Count, verb
from murmura.streams import Stream
from tests.federation.world import Scripted, Small, verbs_of

TIMES = {"seconds": 2.0, "at_sites": 1.0, "wall": 3.0, "peak_memory": 7}
ROW = {"round": 3, "train_loss": 1.5, **TIMES, "events": ["late"]}
FIGURES, PRIVACY = {"heldout_loss": 2.0}, {"epsilon": 1.5, "privacy": {"epsilon": 1.5}}


class Secretive(Small):
    @verb(releases={"examples": Count()}, everyone=True)
    def introduce(self, cohort, ask):
        """Never run: the engine is scripted."""


def test_where_nothing_is_guaranteed_all_is_told():
    policy = Publication(Ledger())
    policy.close(ROW, FIGURES)
    assert policy.rows([ROW]) == policy.timed([ROW]) == [ROW] and policy.saved() == {}


def test_where_something_is_guaranteed_neither_times_nor_memory():
    policy = WithoutTimes(Ledger())
    assert policy.rows([ROW]) == [{"round": 3, "train_loss": 1.5, "events": ["late"]}] and not policy.timed([ROW])


def test_of_a_secret_cohort_neither_counts_nor_losses_times_or_events():
    policy = OfSecretCohorts(Ledger(), 1.5)
    policy.told.asked("join", 10)
    policy.begin()
    policy.told.asked("train", 200)
    policy.close(ROW | PRIVACY, FIGURES)
    [told] = policy.rows([ROW])
    traffic = {"bytes_up": 0, "bytes_down": 200, "bytes_measuring": 0, "expected": ["bytes_up", "bytes_down"]}
    assert told == {"round": 3, **FIGURES, **traffic, **PRIVACY}
    again = OfSecretCohorts(Ledger(), 1.5)
    again.restore(policy.state())
    again.rewind(policy.saved())
    assert again.rows([]) == [told] and again.told.traffic() == policy.told.traffic()


def test_what_all_sites_are_asked_is_no_secret_and_counts_as_it_was():
    engine, ledger = Scripted(lambda site, ask: Reply(site, {"examples": 3}), ["a", "b", "c"]), Ledger()
    policy = OfSecretCohorts(ledger, 1.5)
    fleet = Fleet(engine, verbs_of(Secretive(None)), ledger, Stream(0), publication=policy)
    list(fleet.ask("introduce", fleet.sites, {site: {"text": site * 10} for site in fleet.sites}))
    assert policy.told.traffic() == ledger.traffic() and ledger.traffic().down > 30
    [row] = policy.told.table()
    assert (row["messages"], row["expected"]) == (3, False)
    with pytest.raises(RunError, match="'train' is asked of a secret cohort"):
        list(fleet.ask("train", ["a"]))

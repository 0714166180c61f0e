"""Sites that come late, or come back: they take part, and what goes wrong with one of them stops no other."""

from types import SimpleNamespace

import pytest

from murmura.errors import RunError, may_pass
from murmura.experiment.server_side import ServerSide
from murmura.federation.membership import Membership
from murmura.federation.server.fleet import Fleet
from murmura.federation.server.ledger import Ledger
from murmura.federation.server.rounds import Server
from murmura.federation.site.answer import Host
from murmura.federation.wire.messages import VERSION, Failure, Reply
from murmura.streams import Stream
from tests.federation.world import make_sites

NAMES = ("site-0", "site-1", "site-2")


class Coming:
    """An engine of sites of which only those in ``there`` answer, and which ``bends`` answers to a verb."""

    def __init__(self, folder, verbs):
        self.sites, self.there, self.bends, self.back = [*NAMES], [*NAMES], {}, []
        runtime = SimpleNamespace(slots=4, training=None)
        self._start = lambda: {
            site.name: Host([site], verbs, runtime, Stream(0), run=None) for site in make_sites(1, 1, 1, folder=folder)
        }
        self.hosts = self._start()

    def restart(self, site):
        self.hosts[site] = self._start()[site]

    def ask(self, ask, sites):
        for site in sites:
            if site not in self.there:
                yield Failure(site, "it is out of reach")
                continue
            for answer in self.hosts[site].answer(ask, [site]):
                bend = self.bends.get((site, ask.verb), lambda answer: answer)
                yield Failure(site, answer.why) if isinstance(answer, Failure) else bend(answer)

    def returned(self):
        back, self.back = self.back, []
        return back


def made(tmp_path, *, sized=False):
    verbs = [Membership("instruction", counts=True, sized=sized, experiment="x")]
    engine = Coming(tmp_path, verbs)
    fleet = Fleet(engine, verbs, Ledger(), Stream(0), run="run")
    server = Server.__new__(Server)
    server._fleet, server._known, server.store, server.arriving = fleet, set(), {}, None
    task = SimpleNamespace(kind="instruction")
    monitor = SimpleNamespace(sizes={}, evaluation_set=SimpleNamespace(task=task))
    method = SimpleNamespace(keeps_adapters=True, protects="record" if sized else None)
    side = ServerSide(method, server, fleet, monitor, "x")
    return SimpleNamespace(engine=engine, fleet=fleet, server=server, side=side)


@pytest.fixture
def world(tmp_path):
    return made(tmp_path)


def begin(world, quorum=None):
    world.side.meet((), quorum)
    world.server._keep(world.fleet.stores.commit())
    world.fleet.begin(1)


def arrive(world, *sites, round=1):
    world.engine.back = list(sites)
    world.fleet.begin(round)
    world.server.arriving(round)
    return " ".join(world.fleet.events)


def test_one_that_was_not_there_at_the_start_takes_part_when_it_comes(world):
    world.engine.there.remove("site-2")
    begin(world, quorum=2)
    assert sorted(world.server.known) == ["site-0", "site-1"]
    world.engine.there.append("site-2")
    assert "site site-2 takes part" in arrive(world, "site-2") and "site-2" in world.fleet.joined
    world.server._keep(world.fleet.stores.commit())
    assert sorted(world.server.known) == sorted(NAMES)


@pytest.mark.parametrize("verb", ["join", "rewind"])
@pytest.mark.parametrize("how", ["gone", "broken", "lying"])
def test_one_that_cannot_come_back_is_left_out_until_it_can(world, verb, how):
    begin(world)
    bends = {
        "gone": lambda reply: Failure(reply.site, "out of reach"),
        "broken": lambda reply: Failure(reply.site, "CheckpointError"),
        "lying": lambda reply: Reply(reply.site, {"versions": 5, "kind": [], "more": {}}),
    }
    world.engine.bends["site-1", verb] = bends[how]
    told = arrive(world, "site-1")
    assert "site-1" in told and "takes part" not in told
    asked = list(world.fleet.stores._all("commit", 1, sites=NAMES))
    assert [isinstance(answer, Reply) for answer in asked] == [True, False, True]
    world.engine.bends.clear()
    assert "site site-1 takes part again" in arrive(world, "site-1", round=2)


def test_one_whose_answer_to_join_was_lost_is_asked_for_nothing_else(world):
    """It is in the run, as far as it knows: it would keep a store that nobody has taken back to where the run is, and
    have lost its own; and what it answered would cost it an ε of which nothing is noted."""
    begin(world)
    world.engine.hosts["site-1"].sites["site-1"].store["own"] = [1]
    assert world.fleet.stores.commit() == []
    world.engine.restart("site-1")
    world.engine.bends["site-1", "join"] = lambda reply: Failure(reply.site, "its answer was lost")
    assert "takes part" not in arrive(world, "site-1", round=2)
    assert world.server.may_answer(NAMES) == ["site-0", "site-2"]
    asked = world.fleet.stores._all("commit", 2, sites=NAMES)
    assert [one.site for one in asked if isinstance(one, Reply)] == ["site-0", "site-2"]
    world.engine.bends.clear()
    assert "site site-1 takes part again" in arrive(world, "site-1", round=3)
    assert world.engine.hosts["site-1"].sites["site-1"].store == {"own": [1]}


OF_ITSELF = {"versions": {"murmura": "0", "messages": VERSION}, "kind": "instruction", "records": 1}
OTHERS = {
    "version": ({"versions": {"murmura": "0", "messages": 10**6}}, "the same version of Murmura on both sides"),
    "kind": ({"kind": "\x1b[2Jlies" * 100}, "records of another kind than 'instruction'"),
}


@pytest.mark.parametrize("case", OTHERS)
def test_one_of_another_version_or_kind_stops_nobody_and_is_not_quoted(world, case):
    said, told = OTHERS[case]
    world.engine.bends["site-1", "join"] = lambda reply: Reply(reply.site, OF_ITSELF | said)
    begin(world, quorum=2)
    assert world.fleet.joined == ["site-0", "site-2"] == world.server.may_answer(NAMES)
    assert told in arrive(world)  # it is asked again each round
    world.engine.bends.clear()
    assert "site site-1 takes part" in arrive(world, round=2)
    world.engine.bends["site-1", "join"] = lambda reply: Reply(reply.site, OF_ITSELF | said)
    again = arrive(world, "site-1", round=3)
    assert told in again and len(again) < 300 and "site-1" in world.fleet.barred


@pytest.mark.parametrize("case", OTHERS)
def test_what_is_the_same_with_all_sites_is_told_where_no_run_begins(world, case):
    said, told = OTHERS[case]
    for site in NAMES:
        world.engine.bends[site, "join"] = lambda reply: Reply(reply.site, OF_ITSELF | said)
    with pytest.raises(RunError, match=told) as error:
        begin(world, quorum=1)
    assert "lies" not in str(error.value) and not may_pass(error.value)  # nor do its owner's notes say anything


def test_one_that_cannot_keep_a_round_stops_nobody(world):
    begin(world)
    world.engine.bends["site-1", "commit"] = lambda reply: Failure(reply.site, "OSError")
    assert world.fleet.stores.commit() == ["site-1"]


def test_one_that_the_server_reckons_another_number_of_records_for_is_not_in_the_run(tmp_path):
    world = made(tmp_path, sized=True)
    world.server.sizes = {"site-0": 1, "site-1": 200, "site-2": 1}
    world.side.meet((), quorum=2)
    assert world.fleet.joined == ["site-0", "site-2"] == world.server.may_answer(NAMES)
    assert "site site-1 did not answer 'join': RefusedError" in " ".join(world.fleet.events)
    world.server._keep(world.fleet.stores.commit())
    assert "takes part" not in arrive(world, "site-1")
    world.server.sizes["site-1"] = 1
    assert "site site-1 takes part" in arrive(world, "site-1", round=2)

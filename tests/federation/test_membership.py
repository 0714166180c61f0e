"""What a site says of itself, and with what it does not go on."""

import shutil

import pytest
import torch

from murmura.data.records import digest
from murmura.errors import CheckpointError, DataError, RefusedError
from murmura.federation.membership import Membership
from murmura.federation.site.answer import Host
from murmura.federation.site.cohort import Cohort
from murmura.federation.site.site import Site
from murmura.federation.site.store import SiteStore
from murmura.federation.wire.messages import VERSION, Ask, Reply
from murmura.streams import Stream
from tests.federation.world import instructions, make_workbench


@pytest.fixture
def join(tokenizer, tmp_path):
    """Let a site with some records join, as a process of its own would."""
    bench = make_workbench(tokenizer)

    def joined(seed=1, *, resumed=False, counts=True, experiment=""):
        site = Site("a", instructions(3, seed), kept=SiteStore(tmp_path / "a", "a"))
        ask = Ask("join", 0, {"resumed": resumed, "experiment": experiment})
        [reply] = Membership("instruction", counts=counts).join(Cohort([site], bench, ask, Stream(0)), ask)
        site.kept.commit(0, site.store)  # as every site does before the first round
        return reply.fields

    return joined


def test_it_tells_version_and_kind_and_its_size_only_where_that_is_told_anyway(join):
    told = join()
    assert (told["versions"]["messages"], told["kind"], told["records"]) == (VERSION, "instruction", 3)
    assert join(counts=False).keys() == {"versions", "kind"} == Membership("x", counts=False).releases("join").keys()


def test_it_takes_part_in_no_other_experiment_than_its_own(join):
    with pytest.raises(RefusedError, match="a folder of the same name"):
        join(experiment="another one's digest")


def test_it_does_not_go_on_with_other_records(join):
    join()
    join(resumed=True)
    with pytest.raises(DataError, match="site a: the records are not those"):
        join(seed=2, resumed=True)


def test_it_does_not_go_on_without_what_it_kept(join, tmp_path):
    join()
    shutil.rmtree(tmp_path / "a")
    with pytest.raises(CheckpointError, match="what site a kept is gone"):
        join(resumed=True)


def test_a_site_that_never_kept_a_round_starts_though_the_run_is_resumed(tokenizer, tmp_path):
    sites = [Site(name, instructions(3, 1), kept=SiteStore(tmp_path / name, name)) for name in ("a", "b")]
    first = Ask("join", 0, {"experiment": ""}, {"a": {"resumed": False}, "b": {"resumed": False}})
    verbs, bench = Membership("instruction", counts=True), make_workbench(tokenizer)
    verbs.join(Cohort(sites, bench, first, Stream(0)), first)
    sites[0].kept.commit(0, {})  # the other one's worker dies
    again = [Site(name, instructions(3, 1), kept=SiteStore(tmp_path / name, name)) for name in ("a", "b")]
    ask = Ask("join", 0, {"experiment": ""}, {"a": {"resumed": True}, "b": {"resumed": False}})
    assert len(verbs.join(Cohort(again, bench, ask, Stream(0)), ask)) == 2


def test_a_run_begins_without_what_was_kept_of_another_and_goes_on_with_its_own_alone(tokenizer, tmp_path):
    """Also where it was killed before it had anything of its own to keep in this one."""
    verbs, bench = Membership("instruction", counts=True), make_workbench(tokenizer)

    def joined(run, resumed):
        site = Site("a", instructions(3, 1), kept=SiteStore(tmp_path / "a", "a"))
        ask = Ask("join", 0, {"resumed": resumed, "experiment": ""}, run=run)
        verbs.join(Cohort([site], bench, ask, Stream(0)), ask)
        return site

    def keep(site, *rounds):
        for round, n in rounds:
            site.store = {"n": n} if n else {}
            site.commit(round)

    keep(joined("first", False), (0, 0), (1, 1), (2, 2))
    joined("second", False)  # of a run that comes to nothing, nothing is lost
    again = joined("first", True)
    again.rewind(2)
    assert again.store == {"n": 2}
    keep(joined("second", False), (0, 0))
    back = joined("second", True)
    back.rewind(2)
    assert back.store == {}
    keep(back, (3, 3))
    assert SiteStore(tmp_path / "a", "a").rewind(3) == {"n": 3}
    with pytest.raises(CheckpointError, match="site a has taken part in another run since"):
        joined("first", True)
    other = joined("of which it had nothing to keep", True)
    other.rewind(3)
    assert other.store == {}


def test_what_an_earlier_release_kept_is_of_a_run_that_it_does_not_name(tokenizer, tmp_path):
    verbs, bench = Membership("instruction", counts=True), make_workbench(tokenizer)
    kept = SiteStore(tmp_path / "a", "a")
    kept.is_about(digest(instructions(3, 1)))
    kept.commit(1, {"n": 1})

    def joined(run, resumed):
        site = Site("a", instructions(3, 1), kept=SiteStore(tmp_path / "a", "a"))
        ask = Ask("join", 0, {"resumed": resumed, "experiment": ""}, run=run)
        verbs.join(Cohort([site], bench, ask, Stream(0)), ask)
        return site

    assert joined("first", True).kept.rewind(1) == {"n": 1}
    other = joined("second", False)
    other.store = {"n": 2}
    other.commit(1)
    with pytest.raises(CheckpointError, match="site a has taken part in another run since"):
        joined("first", True)
    assert joined("second", True).kept.rewind(1) == {"n": 2}


RECKONED = {"its own": (3, True), "another": (200, False), "none": (None, False), "no number": ("3", False)}


@pytest.mark.parametrize("case", RECKONED)
def test_it_takes_part_only_where_the_server_reckons_with_its_own_number_of_records(tokenizer, tmp_path, case):
    number, joins = RECKONED[case]
    site = Site("a", instructions(3, 1), kept=SiteStore(tmp_path / "a", "a"))
    verbs = [Membership("instruction", counts=False, sized=True)]
    host = Host([site], verbs, make_workbench(tokenizer), Stream(0), run=None)
    told = {"resumed": False, "experiment": ""}
    if number is not None:
        told["records"] = torch.tensor([number]) if isinstance(number, int) else number
    [answer] = host.answer(Ask("join", 0, told, run="r"), ["a"])
    assert isinstance(answer, Reply) == joins and site.run == ("r" if joins else None)
    if not joins:
        notes = (tmp_path / "a" / "notes.txt").read_text()
        assert "the site has 3 records, and the server reckons with" in notes and "murmura site init" in notes


def test_it_is_in_the_run_no_more_once_the_server_reckons_with_another_number(tokenizer, tmp_path):
    verbs = [Membership("instruction", counts=False, sized=True)]
    sites = [Site(name, instructions(3, 1), kept=SiteStore(tmp_path / name, name)) for name in ("a", "b")]
    host = Host(sites, verbs, make_workbench(tokenizer), Stream(0), run=None)

    def ask(verb, run="r", **numbers):
        each = {name: {"resumed": False, "records": torch.tensor([one])} for name, one in numbers.items()}
        answers = host.answer(Ask(verb, 0, {"experiment": ""}, each, run=run), ["a", "b"])
        return sorted(one.site for one in answers if isinstance(one, Reply))

    assert ask("join", a=3, b=3) == ask("commit") == ["a", "b"]
    assert ask("join", a=200, b=3) == ask("commit") == ["b"]  # of which the server was told to reckon otherwise
    assert ask("join", "another", a=3, b=3) == ask("commit", "another") == []  # it has left one, and joins no second
    assert ask("join", a=3, b=3) == ask("commit") == ["a", "b"]

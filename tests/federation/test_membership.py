"""What a site says of itself, and with what it does not go on."""

import shutil

import pytest

from murmura.errors import CheckpointError, DataError, RefusedError
from murmura.federation.membership import Membership
from murmura.federation.site.cohort import Cohort, Site
from murmura.federation.site.store import SiteStore
from murmura.federation.wire.messages import VERSION, Ask
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
    with pytest.raises(RefusedError):
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

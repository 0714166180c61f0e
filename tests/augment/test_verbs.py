"""What sites send of their records, and what becomes of public ones at a site."""

from types import SimpleNamespace

import numpy as np
import pytest

from murmura.augment.config import AugmentConfig
from murmura.augment.strategies import sent
from murmura.augment.verbs import Augmenting
from murmura.data.records import Instruction
from murmura.federation.site.cohort import Cohort
from murmura.federation.site.site import Site
from murmura.federation.site.store import SiteStore
from murmura.federation.wire.messages import Ask
from murmura.retrieval.centres import cluster
from murmura.streams import Stream
from murmura.tasks.instruction import InstructionTask
from tests.federation.world import instructions, make_workbench
from tests.retrieval.pools import unit


class Embedding:
    """Gives each text a vector of its own, and notes which texts it is given together."""

    def __init__(self):
        self.together, self._known = [], {}

    def embed(self, texts):
        self.together.append(list(texts))
        return np.concatenate([self._known.setdefault(text, unit(1, 4, seed=len(self._known))) for text in texts])


@pytest.fixture
def encoder():
    return Embedding()


def cohort_of(sites, encoder=None, bench=None, **ask):
    asked = Ask("centres", 3, **ask)
    bench = bench or SimpleNamespace()
    bench.resources = SimpleNamespace(encoder=lambda option: encoder)
    return Cohort(sites, bench, asked, Stream(0)), asked


def centres(sites, encoder, hardest=False, **options):
    shared, bench = {"hardest": hardest} | options.pop("shared", {}), options.pop("bench", None)
    cohort, ask = cohort_of(sites, encoder, bench, shared=shared)
    replies = Augmenting(AugmentConfig(pool="pool", **options)).centres(cohort, ask)
    return {reply.site: {name: value.numpy() for name, value in reply.fields.items()} for reply in replies}


def test_an_audits_canaries_have_no_part_in_what_is_chosen(encoder):
    own, task = instructions(4, 1), InstructionTask()
    site = Site("a", [*own, *(task.canary(holder, "583011") for holder in ("104922", "350017"))])
    cohort, ask = cohort_of([site], encoder, shared={"hardest": False})
    verbs = Augmenting(AugmentConfig(pool="pool", clusters=9), planted=task.is_canary)
    [reply] = verbs.centres(cohort, ask)
    assert encoder.together == [[record.question for record in own]] and reply["sizes"].sum() == 4


def test_a_site_sends_centres_and_sizes_of_its_instructions_and_nothing_of_other_sites(encoder):
    sites = [Site("a", instructions(7, 1)), Site("b", instructions(4, 2))]
    found = centres(sites, encoder, clusters=3)
    assert encoder.together == [[record.question for record in site.records] for site in sites]
    for site in sites:
        vectors = encoder.embed([record.question for record in site.records])
        seed = (Stream(0) / "round" / 3 / "centres" / site.name).integer()
        expected = cluster(vectors, 3, seed)
        assert np.array_equal(found[site.name]["centres"], expected.points)
        assert np.array_equal(found[site.name]["sizes"], expected.sizes)
        assert found[site.name]["sizes"].sum() == site.size
    alone = centres(sites[1:], encoder, clusters=3)
    assert np.array_equal(alone["b"]["centres"], found["b"]["centres"])


def test_no_centre_stands_for_fewer_records_than_asked_for(encoder):
    sites = [Site("a", instructions(7, 1)), Site("few", instructions(2, 2))]
    found = centres(sites, encoder, clusters=5, smallest_cluster=3)
    assert found["a"]["sizes"].min() >= 3 and found["a"]["sizes"].sum() == 7
    assert found["few"]["centres"].shape == (0, 4)


def test_the_hardest_half_is_what_the_current_model_finds_so(encoder, tokenizer):
    bench = make_workbench(tokenizer)
    state = bench.bank.initial(Stream(0))
    site = Site("a", instructions(5, 1))
    scores = [one.mean for one in bench.score([state] * 5, bench.tokenise_fitting(site.records))]
    hardest = [site.records[place].question for place in sorted(np.argsort(scores)[::-1][:3])]
    every = {"every": 1, "focus": "hardest", "clusters": 1}
    centres([site], encoder, hardest=True, bench=bench, shared={"adapter": state}, **every)
    assert encoder.together.pop() == hardest
    site.store["adapter"] = state  # one of its own
    centres([site], encoder, hardest=True, bench=bench, **every)
    assert encoder.together.pop() == hardest
    site.store.clear()  # none at all
    centres([site], encoder, hardest=True, bench=bench, **every)
    assert encoder.together.pop() == [record.question for record in site.records]


@pytest.fixture
def site(tmp_path):
    kept = SiteStore(tmp_path / "a", "a")
    return Site("a", [Instruction("call the  clinic", "today", "yes"), Instruction("rest", "", "no")], kept=kept)


PUBLIC = [
    Instruction("call the clinic", "today", "another answer"),  # its own, but for a space and the answer
    Instruction("call the clinic", "", "yes"),
    Instruction("rest", "", "no"),
]


def take(site, *, drops, records=PUBLIC):
    cohort, ask = cohort_of([site], each={"a": {"records": [sent(record) for record in records]}})
    [reply] = Augmenting(AugmentConfig(pool="pool"), drops=drops).take(cohort, ask)
    assert not reply.fields
    notes = site.kept.folder / "notes.txt"
    return notes.read_text() if notes.exists() else ""


def test_a_site_leaves_out_public_records_that_are_its_own_and_tells_nobody_but_its_owner(site):
    assert "of 3 public records that the server has sent, 2 ask what a record" in take(site, drops=True)
    assert site.public == [PUBLIC[1]]
    assert site.examples == 2 + 3  # as if it had kept all of them


def test_what_a_site_has_set_apart_to_measure_with_is_its_own_too(site):
    site.apart = [PUBLIC[1]]
    assert "3 ask what a record" in take(site, drops=True) and site.public == []


def test_where_an_epsilon_is_promised_a_site_keeps_them_all(site):
    assert "trained on as public records all the same" in take(site, drops=False)
    assert site.public == PUBLIC and site.examples == 2 + 3


def test_what_a_site_takes_stands_in_place_of_what_it_had(site):
    take(site, drops=True)
    other = [Instruction("sleep", "", "well")]
    assert take(site, drops=True, records=other).count("Round") == 1  # nothing new to tell
    assert site.public == other and site.examples == 2 + 1
    take(site, drops=True, records=[])
    assert site.public == [] and site.examples == 2


def test_taking_releases_nothing_and_no_epsilon_covers_centres():
    verbs = Augmenting(AugmentConfig(pool="pool"))
    assert verbs.is_free("take") and not verbs.is_free("centres")
    kinds = {name: one.kind for name, one in verbs.releases("centres").items()}
    assert kinds == {"centres": "embeddings", "sizes": "count"}
    assert verbs.cost("centres", 9, None) is None

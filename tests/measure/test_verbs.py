"""What the monitor asks of sites."""

from dataclasses import asdict, replace

import pytest

from murmura.data.records import Choice, Instruction
from murmura.errors import RefusedError
from murmura.federation.method import Method
from murmura.federation.site.cohort import Cohort
from murmura.federation.wire.messages import Ask, decode, encode
from murmura.measure.benchmarks import GSM8K
from murmura.measure.benchmarks.benchmark_set import BenchmarkSet
from murmura.measure.benchmarks.config import GSM8KConfig
from murmura.measure.config import EvaluationConfig
from murmura.measure.evaluation_set import EvaluationSet, digests
from murmura.measure.membership import Nonmembers, chosen, member_stream, scores, set_apart, tallies
from murmura.measure.reader import Reader
from murmura.measure.verbs import MeasurementPlan, Measuring
from murmura.streams import Stream
from murmura.tasks import INSTRUCTION
from murmura.training.adapter import is_same
from tests.federation.world import instructions, make_sites, make_workbench, measuring
from tests.training.helpers import random_state


def test_all_its_verbs_only_measure():
    verbs = measuring()
    assert sorted(verbs.verbs()) == verbs.verb_names() == ["assess", "attack", "memorise"]
    assert all(verbs.declaration(name).measures for name in verbs.verb_names())


@pytest.mark.parametrize(("personal", "uploads"), [(False, False), (False, True), (True, False)])
def test_of_what_an_attack_may_release_a_run_declares_what_it_measures(personal, uploads):
    measured = MeasurementPlan(EvaluationConfig(attacks=True), 2, personal=personal, uploads=uploads, planted=False)
    released = set(Measuring(INSTRUCTION, Method.members, measured).releases("attack"))
    assert released == {"tally", *["others"] * personal, *["upload_tally"] * uploads}


@pytest.fixture
def cohort(tokenizer):
    return Cohort(make_sites(5, 2), make_workbench(tokenizer), Ask("memorise", 1), Stream(0))


def answers(cohort, verb, **shared):
    return {reply.site: reply.fields for reply in getattr(measuring(), verb)(cohort, Ask(verb, 1, shared))}


def test_memorise_completes_as_many_records_as_there_are(cohort):
    adapter = random_state(cohort.runtime.bank, 0)
    found = answers(cohort, "memorise", adapter=adapter, records=3)
    assert {site: fields["records"] for site, fields in found.items()} == {"site-0": 3, "site-1": 2}
    assert found["site-0"].keys() == {"rouge", "exact", "prefix", "records"}
    assert answers(cohort, "memorise", adapter=adapter, records=3) == found  # the same records each time


def test_memorise_takes_the_sites_own_adapter_where_none_is_sent(cohort):
    one, other = (random_state(cohort.runtime.bank, seed, scale=1.0) for seed in (4, 5))
    for site, adapter in zip(cohort.sites, (one, other), strict=True):
        site.store["adapter"] = adapter
    found = answers(cohort, "memorise", records=5)
    sent = [answers(cohort, "memorise", adapter=adapter, records=5) for adapter in (one, other)]
    assert found == {"site-0": sent[0]["site-0"], "site-1": sent[1]["site-1"]}
    assert sent[0] != sent[1]


def counted(cohort, **shared):
    return answers(cohort, "attack", **decode(encode(shared)))


@pytest.fixture
def public(cohort):
    return Nonmembers(EvaluationSet(INSTRUCTION, instructions(9, seed=100)), 200, cohort.stream)


def test_attack_counts_own_records_between_the_servers_cut_points(cohort, public):
    adapter = random_state(cohort.runtime.bank, 0, scale=1.0)
    [seen] = public.seen(cohort.runtime, [adapter])
    found = counted(cohort, adapter=adapter, records=3, cuts=seen.cuts)
    assert {site: fields.keys() for site, fields in found.items()} == {"site-0": {"tally"}, "site-1": {"tally"}}
    for site in cohort.sites:
        stream = member_stream(cohort.stream, site.name)
        own = chosen(site.records, 3, stream)
        reader = Reader(INSTRUCTION.token_scores)
        [found_alone] = scores(reader, INSTRUCTION, cohort.runtime, [adapter], [own])
        expected = tallies(found_alone, seen.cuts, set_apart(len(own), INSTRUCTION, stream))
        for name, counts in found[site.name]["tally"].items():
            assert counts.tolist() == expected[name].tolist() and counts.sum() == min(3, site.size)


def test_canaries_are_no_members(cohort, public):
    """Wherever they stand among what a method trains on."""
    adapter = random_state(cohort.runtime.bank, 0, scale=1.0)
    [seen] = public.seen(cohort.runtime, [adapter])
    ask = {"adapter": adapter, "records": 5, "cuts": seen.cuts}
    for place, site in enumerate(cohort.sites):
        site.records.insert(place, INSTRUCTION.canary("17", "42"))
    among = counted(cohort, **ask, canaries=1)
    completed = answers(cohort, "memorise", adapter=adapter, records=5, canaries=1)
    for place, site in enumerate(cohort.sites):
        del site.records[place]
    assert all(is_same(fields["tally"], among[site]["tally"]) for site, fields in counted(cohort, **ask).items())
    assert answers(cohort, "memorise", adapter=adapter, records=5) == completed


def test_members_are_what_the_method_says(cohort, public):
    adapter = random_state(cohort.runtime.bank, 0, scale=1.0)
    [seen] = public.seen(cohort.runtime, [adapter])
    ask = Ask("attack", 1, {"adapter": adapter, "records": 5, "cuts": seen.cuts})
    found = measuring(members=lambda site, stream: site.records[:1]).attack(cohort, ask)
    assert [reply["tally"]["error zone"].sum().item() for reply in found] == [1, 1]


def test_attack_counts_uploads_beside_the_global_adapter(cohort, public):
    adapter, upload = (random_state(cohort.runtime.bank, seed, scale=1.0) for seed in (0, 1))
    of_adapter, of_upload = public.seen(cohort.runtime, [adapter, upload])
    alone = counted(cohort, adapter=upload, records=2, cuts=of_upload.cuts)["site-0"]["tally"]
    each = {"site-0": {"upload": upload, "upload_records": 2, "upload_cuts": of_upload.cuts}, "site-1": {"records": 0}}
    ask = Ask("attack", 1, {"adapter": adapter, "records": 2, "cuts": of_adapter.cuts}, each)
    one, two = measuring().attack(cohort, ask)
    assert one.fields.keys() == {"tally", "upload_tally"} and two.fields == {}
    assert is_same(one["upload_tally"], alone)


def test_attack_takes_the_sites_own_adapter_and_makes_its_own_cut_points(cohort, public):
    adapters = [random_state(cohort.runtime.bank, seed, scale=1.0) for seed in (4, 5)]
    for site, adapter in zip(cohort.sites, adapters, strict=True):
        site.store["adapter"] = adapter
    found = counted(cohort, records=5, **public.to_payload())
    for site, seen in zip(cohort.sites, public.seen(cohort.runtime, adapters), strict=True):
        assert is_same(found[site.name]["others"], seen.tally)
        sent = counted(cohort, adapter=site.store["adapter"], records=5, cuts=seen.cuts)
        assert is_same(found[site.name]["tally"], sent[site.name]["tally"])


def test_assess_measures_personal_adapters(cohort):
    adapters = [random_state(cohort.runtime.bank, seed) for seed in (0, 1)]
    for site, adapter in zip(cohort.sites, adapters, strict=True):
        site.store["adapter"] = adapter
    questions = [Choice("which", "", ("yes", "no"), 1)]
    public = EvaluationSet(
        INSTRUCTION, instructions(3, seed=100), instructions(2, seed=101), choices=questions, sample=2
    )
    found = answers(cohort, "assess", **decode(encode(public.to_payload())))
    losses = [fields["figures"]["heldout_loss"] for fields in found.values()]
    for fields, adapter in zip(found.values(), adapters, strict=True):
        [expected] = public.measure(cohort.runtime, [adapter])
        assert expected["choice_accuracy_n"] == 1
        assert fields["figures"].pop("confusion") == expected.pop("confusion")
        assert fields["figures"] == pytest.approx(expected, abs=1e-5)
    assert losses[0] != pytest.approx(losses[1], abs=1e-4)


SUMS = BenchmarkSet(GSM8K(GSM8KConfig(file="sums.jsonl", tokens=2)), [Instruction("how many", "", "#### 3")])
AGREED = EvaluationSet(
    INSTRUCTION,
    instructions(3, seed=100),
    instructions(2, seed=101),
    choices=[Choice("which", "", ("yes", "no"), 1)],
    benchmarks=[SUMS],
    sample=0,
)
GUESSED = {
    "heldout": Instruction("who is in bed 7", "", "jane roe"),
    "nonmembers": Instruction("who is in bed 7", "", "jane roe"),
    "choices": Choice("who is in bed 7", "", ("jane roe", "john doe"), 0),
    "benchmarks": replace(SUMS, questions=[Instruction("in which bed is jane roe", "", "#### 7")]),
}


@pytest.fixture
def owned(cohort):
    """Sites with adapters of their own, and a list of what these are measured on."""
    listed = digests([*AGREED.heldout, *AGREED.nonmembers], AGREED.choices, AGREED.benchmarks)
    agreed = frozenset(listed)
    for seed, site in enumerate(cohort.sites):
        site.store["adapter"], site.agreed = random_state(cohort.runtime.bank, seed), agreed
    return cohort


@pytest.mark.parametrize("field", GUESSED)
def test_own_adapters_are_measured_on_what_was_agreed_alone(owned, field):
    """A server that may name the text learns whether a site has such a record, and what it says."""
    assert answers(owned, "assess", **AGREED.to_payload(completes=True)).keys() == {"site-0", "site-1"}
    some = replace(AGREED, heldout=AGREED.heldout[:2])
    assert answers(owned, "assess", **some.to_payload(completes=True)).keys() == {"site-0", "site-1"}
    lying = replace(AGREED, **{field: [*getattr(AGREED, field), GUESSED[field]]})
    with pytest.raises(RefusedError, match="not on the list that the federation hands round"):
        answers(owned, "assess", **lying.to_payload(completes=True))
    owned.sites[0].agreed = owned.sites[1].agreed = None  # of a simulation
    assert answers(owned, "assess", **lying.to_payload(completes=True)).keys() == {"site-0", "site-1"}


def test_own_adapters_are_attacked_with_agreed_non_members_alone(owned):
    asked = {"records": 2, **Nonmembers(AGREED, 200, owned.stream).to_payload()}
    assert counted(owned, **asked)["site-0"].keys() == {"tally", "others"}
    asked["nonmembers"].append(asdict(GUESSED["nonmembers"]))
    with pytest.raises(RefusedError, match="'attack' is asked for in another way"):
        counted(owned, **asked)

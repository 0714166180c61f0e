"""What Self-Instruct has written at the sites, by a model that says what a script says."""

from itertools import count
from types import SimpleNamespace

import pytest

from murmura.augment.config import WRITER, AugmentConfig
from murmura.augment.verbs import Augmenting
from murmura.augment.writing import SelfInstruct
from murmura.errors import RunError
from murmura.federation.site.cohort import Cohort
from murmura.federation.site.site import Site
from murmura.federation.wire.messages import Ask, Reply
from murmura.generation.sampling import Sampling
from murmura.streams import Stream
from tests.drafting.scripted import Scripted, is_for_instruction
from tests.methods.harness import records


class Bench(Scripted):
    """Any adapter fits its model, and it knows one other model."""

    bank = SimpleNamespace(manifest=[], untrained={"nothing": 0})

    def another(self, option):
        assert option == WRITER
        self.other = Bench(self.answer)
        return self.other


class Noted(Site):
    """A site whose owner's notes can be read."""

    def tell(self, what):
        self.notes = [*getattr(self, "notes", []), what]


def fresh(unusable=0):
    """A model that never says the same thing twice; its first instructions are too short."""
    numbers = count()

    def say(prompt, adapter):
        n = next(numbers)
        words = f"alpha{n} beta{n} gamma{n} delta{n}"
        return (
            ("no" if n < unusable else words) if is_for_instruction(prompt) else f"Input: None\nResponse: call {words}"
        )

    return Bench(say)


def write(bench, *topics, seed=0, **options):
    config = AugmentConfig(**{"strategy": "self-instruct", "records": 3} | options)
    sites = [Noted(topic, records(topic, 5)) for topic in topics]
    ask = Ask("write", 1, {}, {site.name: {"adapter": {"of": site.name}} for site in sites})
    replies = Augmenting(config).write(Cohort(sites, bench, ask, Stream(seed)), ask)
    return sites, replies


def test_a_site_that_was_away_has_records_written_when_it_answers_again():
    class Fleet:
        sites, answering, away = ("a", "b"), {"b"}, {"a"}

        def ask(self, verb, sites, each):
            self.asked = sites
            yield from (Reply(site, {}) for site in sites if site not in self.away)
            if set(sites) <= self.away:
                raise RunError("nobody answered")

    server, fleet = SimpleNamespace(store={}, tell=lambda what: None, current=dict.fromkeys), Fleet()
    strategy = SelfInstruct(AugmentConfig(strategy="self-instruct", every=4))
    asked = []
    for round, answering in enumerate([{"b"}, {"b"}, {"a", "b"}, {"a", "b"}, {"a", "b"}, {"a", "b"}], 1):
        fleet.asked, fleet.answering, fleet.away = [], answering, {"a"} if round < 4 else set()
        strategy.before(server, fleet, round)
        asked.append(list(fleet.asked))
    assert asked == [["a", "b"], [], ["a"], ["a"], ["a", "b"], []]
    fleet.asked = []
    strategy.lost(server, ["a"])  # which had them written in an earlier round, and kept that
    strategy.before(server, fleet, 7)
    assert fleet.asked == []
    for round in (9, 10, 11):
        strategy.before(server, fleet, round)
        strategy.lost(server, ["a"] if round < 11 else [])
        assert fleet.asked == (["a", "b"] if round == 9 else ["a"])


def test_two_instructions_and_one_record_are_shown_and_tokens_are_drawn():
    bench = fresh()
    write(bench, "kidney", "heart")
    instructions, examples = bench.batches
    assert [adapter["of"] for adapter, _, _ in instructions] == ["kidney"] * 3 + ["heart"] * 3
    for batch, shown, limit in ((instructions, 2, 64), (examples, 1, 512)):
        assert all(prompt.count("please explain") == shown for _, prompt, _ in batch)
        assert all(prompt.count(adapter["of"]) >= shown for adapter, prompt, _ in batch)
        assert {most for _, _, most in batch} == {limit}
    assert {sampling for sampling, _ in bench.drawn} == {Sampling(0.7)}
    streams = [stream.integer() for _, own in bench.drawn for stream in own]
    assert len(set(streams)) == len(streams) == 12


def test_what_is_written_stays_at_the_site_and_is_not_public():
    sites, replies = write(fresh(), "kidney", "heart")
    assert [(reply.site, reply.fields) for reply in replies] == [("kidney", {}), ("heart", {})]
    for site in sites:
        assert len(site.written) == 3 and site.public == [] and not set(site.written) & set(site.records)
        assert all(record.output.startswith("call alpha") for record in site.written)
        assert site.notes == ["Round 1: 3 of 3 records were written after this site's own."]


def test_the_server_cannot_tell_how_many_were_written():
    """A site counts for as many as were to be written; its owner is told how many there are, and why not more."""
    [site], _ = write(fresh(unusable=8), "kidney")  # of nine attempts at an instruction
    assert len(site.written) == 1 and site.examples == 5 + 3
    assert site.notes == [
        "Round 1: 1 of 3 records were written after this site's own; 8 times a new instruction had fewer than 4 words."
    ]


def test_another_round_s_records_take_the_place_of_the_ones_before():
    [site], _ = write(fresh(), "kidney")
    config = AugmentConfig(strategy="self-instruct", records=2)
    ask = Ask("write", 3, {}, {"kidney": {"adapter": {"of": "kidney"}}})
    Augmenting(config).write(Cohort([site], fresh(), ask, Stream(0)), ask)
    assert len(site.written) == 2 and site.examples == 5 + 2


@pytest.mark.parametrize(("rouge", "kept"), [(1.0, 1), (0.5, 0)])
def test_a_record_that_repeats_an_own_one_is_dropped_and_one_that_is_like_it_if_asked(rouge, kept):
    own = records("kidney", 5)[0].instruction
    said = iter([own, f"{own} today"])

    def say(prompt, adapter):
        return next(said, "no") if is_for_instruction(prompt) else "Input: None\nResponse: call on Monday"

    [site], _ = write(Bench(say), "kidney", records=1, write_rouge=rouge)
    assert len(site.written) == kept


def test_another_model_writes_if_it_is_named():
    bench = fresh()
    [site], _ = write(bench, "kidney", writer="tiny", write_temperature=1.5, write_tokens=9)
    assert bench.batches == [] and len(site.written) == 3
    assert {id(adapter) for batch in bench.other.batches for adapter, _, _ in batch} == {id(Bench.bank.untrained)}
    assert {limit for _, _, limit in bench.other.batches[-1]} == {9}
    assert {sampling for sampling, _ in bench.other.drawn} == {Sampling(1.5)}


def test_a_site_s_records_do_not_depend_on_who_else_is_in_the_cohort():
    def say(prompt, adapter):
        n = sum(prompt.encode()) % 9973
        words = f"alpha{n} beta{n} gamma{n} delta{n}"
        return words if is_for_instruction(prompt) else f"Input: None\nResponse: call {n} times"

    (*_, together), _ = write(Bench(say), "heart", "kidney")
    [alone], _ = write(Bench(say), "kidney")
    assert together.written == alone.written and alone.written


def test_nothing_of_it_is_declared_to_leave():
    assert Augmenting(AugmentConfig(strategy="self-instruct")).is_free("write")

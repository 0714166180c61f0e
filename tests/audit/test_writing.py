"""What models write, with a runtime that writes what it is told."""

import pytest

from murmura.audit.membership import AuditSample
from murmura.audit.writing import begun, completed
from murmura.data.records import Instruction
from murmura.generation.sampling import Sampling
from murmura.generation.writer import Completion
from murmura.streams import Stream
from tests.federation.world import make_workbench
from tests.training.helpers import random_state

OWN = {
    "a": [Instruction(f"explain the kidney result {k}", "", f"the heart dose {k}") for k in range(4)],
    "b": [Instruction(f"draft a letter about fever {k}", "", f"call the nurse {k}") for k in range(2)],
}
OTHERS = [Instruction(f"summary of visit {k}", "", f"take it with food {k}") for k in range(5)]
SAMPLE = AuditSample(OWN, {"a": [0, 1, 2, 3], "b": [0, 1]}, OTHERS)


@pytest.fixture
def bench(tokenizer):
    return make_workbench(tokenizer)


@pytest.fixture
def whole(bench):
    return dict.fromkeys(OWN, random_state(bench.bank, 0))


@pytest.fixture
def scripted(bench, monkeypatch):
    """Let the runtime write what a function makes of each prompt; returns all that it was asked."""

    def script(write):
        asked = []

        def writes(adapters, prompts, limits, **options):
            texts = [write(bench.tokenizer.decode(prompt)) for prompt in prompts]
            asked.append({"adapters": adapters, "prompts": prompts, "limits": limits, **options})
            return [Completion(text, bench.tokenizer(text)["input_ids"], True) for text in texts]

        monkeypatch.setattr(bench, "write", writes)
        return asked

    return script


def test_a_model_that_repeats_its_records_is_seen(bench, whole, scripted):
    known = {record.instruction: record.output for own in OWN.values() for record in own}

    def answer(prompt):
        return next((output for instruction, output in known.items() if instruction in prompt), "nothing")

    [asked] = [scripted(answer)]
    found = completed("model", whole, SAMPLE, bench, 100, Stream(0))
    assert (found.prompt, found.members, found.others) == ("record", 6, 5)
    assert found.rouge == 1.0 and found.others_rouge == 0.0 and found.difference == 1.0
    assert 0.4 < found.low < 0.5 and found.high == 1.0  # six and five may all be alike by chance
    assert len(asked) == 1  # all share batches
    assert completed("model", whole, SAMPLE, bench, 3, Stream(0)).members == 3
    one = completed("model", whole, SAMPLE, bench, 1, Stream(0))
    assert (one.members, one.others, one.difference, one.low, one.high) == (1, 1, 1.0, -1.0, 1.0)


def test_others_are_shared_out_over_the_sites_models(bench, scripted):
    own = {site: random_state(bench.bank, seed) for seed, site in enumerate(OWN)}
    asked = scripted(lambda prompt: "call")
    found = completed("adapters", own, SAMPLE, bench, 100, Stream(0))
    assert found.members == 6 and found.low < 0.4
    by = [next(site for site, state in own.items() if state is one) for one in asked[0]["adapters"]]
    assert sorted(by[:6]) == ["a"] * 4 + ["b"] * 2 and by[6:] == ["a", "b", "a", "b", "a"]


def test_texts_begin_with_nothing_but_the_template(bench, whole, scripted):
    asked = scripted(lambda prompt: "explain the kidney result 2")
    found = begun("model", whole, SAMPLE, bench, 8, Sampling(top_k=40), Stream(0))
    [one] = asked
    prompt = bench.tokenizer.decode(one["prompts"][0])
    assert prompt == bench.template.opening != "" and bench.template.prompt(OWN["a"][0]).startswith(prompt)
    assert "explain" not in prompt
    assert one["limits"] == [bench.max_length - len(one["prompts"][0])] * 8
    assert len({str(stream) for stream in one["streams"]}) == 8 and one["sampling"].top_k == 40
    assert one["stop"] == [bench.template.response_prefix.strip()]
    assert (found.prompt, found.members) == ("template", 8)
    assert found.rouge > 0.7 > 0.3 > found.others_rouge and found.low == 0  # five records of each show nothing


def test_each_sites_model_is_held_against_its_own_records(bench, scripted):
    own = {site: random_state(bench.bank, seed) for seed, site in enumerate(OWN)}
    asked = scripted(lambda prompt: "draft a letter about fever 1")
    found = begun("adapters", own, SAMPLE, bench, 4, Sampling(), Stream(0))
    assert [one is own["a"] for one in asked[0]["adapters"]] == [True, False, True, False]
    assert 0.4 < found.rouge < 0.6 and found.low < found.difference < found.high  # b's writes its own, a's does not


def test_every_template_has_an_opening_but_the_instruction_is_not_in_it(tokenizer):
    from murmura.data.templates import TEMPLATES, template

    for name in TEMPLATES:
        opening = template(name, tokenizer).opening
        assert opening and OWN["a"][0].instruction not in opening
    assert template("alpaca").opening.endswith("### Instruction:\n")

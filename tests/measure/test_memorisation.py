"""A model that was made to learn one record by heart gives it away, and only that."""

import pytest

from murmura.data.records import Instruction
from murmura.measure.heldout import continuations
from murmura.streams import Stream
from murmura.training.config import LocalTraining
from murmura.training.loop import train
from tests.federation.world import instructions, make_workbench

SECRET = Instruction("explain the result of the blood test", "", "the child has a fever and a rash on the skin")
OTHERS = instructions(5, seed=50)


@pytest.fixture(scope="module")
def overfitted(tokenizer):
    bench = make_workbench(tokenizer, lora=None)  # an untrained model learns little with adapters alone
    start = bench.bank.initial(Stream(0))
    training = LocalTraining(epochs=60, batch_size=1)
    [result] = train(bench.bank, [bench.tokenise_fitting([SECRET])], [start], training, 0.01, [Stream(0)])
    return bench, start, result.state


def completed(bench, adapters, records):
    return continuations(bench, adapters, records, "memorisation")


def test_what_was_learnt_by_heart_is_completed_word_for_word(overfitted):
    bench, start, learnt = overfitted
    [item] = bench.reading.tokenise([SECRET])
    tokens = len(item.ids) - item.start - 1
    before, member, others = completed(bench, [start, learnt, learnt], [[SECRET], [SECRET], OTHERS])
    assert (member["rouge"], member["exact"], member["prefix"], member["records"]) == (1.0, 1.0, tokens, 1)
    assert (before["exact"], others["exact"]) == (0.0, 0.0)
    assert before["rouge"] < 0.3
    assert others["rouge"] < 0.6  # it says what it knows, whatever it is asked
    assert others["prefix"] < tokens / 2
    assert others["records"] == len(OTHERS)


def test_members_and_others_in_one_batch_are_as_apart(overfitted):
    bench, _, learnt = overfitted
    mixed = completed(bench, [learnt], [[SECRET, *OTHERS]])[0]
    member, others = completed(bench, [learnt, learnt], [[SECRET], OTHERS])
    assert mixed["rouge"] == pytest.approx((member["rouge"] + 5 * others["rouge"]) / 6)
    assert mixed["exact"] == pytest.approx(1 / 6)

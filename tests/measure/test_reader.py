"""No model reads a record twice."""

import pytest

from murmura.measure import heldout
from murmura.measure.membership import Nonmembers
from murmura.measure.reader import Reader
from murmura.streams import Stream
from murmura.tasks import INSTRUCTION
from tests.federation.world import evaluation_set, instructions, make_workbench
from tests.training.helpers import random_state

RECORDS = instructions(6, seed=1)


@pytest.fixture
def reading(bench, monkeypatch):
    """Who read how many records."""
    usual, made = bench.token_scores, []

    def counted(adapters, items, **options):
        made.extend("base" if one is bench.bank.untrained else "model" for one in adapters)
        return usual(adapters, items, **options)

    monkeypatch.setattr(bench, "token_scores", counted)
    return made


def counts(reading):
    return reading.count("base"), reading.count("model")


def test_the_base_model_reads_a_record_once_and_others_until_the_next_ones_come(bench, reading):
    reader, one, two = Reader(INSTRUCTION.token_scores), *(random_state(bench.bank, seed) for seed in range(2))
    base = bench.bank.untrained
    reader.read(bench, [one, base], [RECORDS[:3], RECORDS[1:5]])
    assert counts(reading) == (4, 3)
    found = reader.read(bench, [one, two, base], [RECORDS[:4], RECORDS[:1], RECORDS])
    assert counts(reading) == (6, 5)
    assert [len(own) for own in found] == [4, 1, 6]
    reader.read(bench, [two], [RECORDS[:1]])
    assert counts(reading) == (6, 5)
    reader.read(bench, [one], [RECORDS[:1]])  # it was not among the last
    assert counts(reading) == (6, 6)


def test_what_is_remembered_is_what_is_read(bench):
    reader, adapter = Reader(INSTRUCTION.token_scores), random_state(bench.bank, 0, scale=0.5)
    reader.read(bench, [adapter], [RECORDS[2:]])
    [found] = reader.read(bench, [adapter], [RECORDS[::-1]])
    for record, scores in zip(RECORDS[::-1], found, strict=True):
        [alone] = bench.token_scores([adapter], [bench.reading.tokenise([record])[0]])
        assert scores.nll == pytest.approx(alone.nll, abs=1e-5)


def test_an_adapter_that_adds_nothing_is_the_base_model(bench, reading):
    reader = Reader(INSTRUCTION.token_scores)
    reader.read(bench, [bench.bank.initial(Stream(0)), bench.bank.initial(Stream(1))], [RECORDS, RECORDS])
    assert counts(reading) == (6, 0)


def test_the_adapter_that_training_began_with_is_known_by_its_values(tokenizer, bench):
    start = random_state(bench.bank, 0)
    begun = make_workbench(tokenizer, start=start)
    arrived = {name: tensor.clone() for name, tensor in start.items()}
    assert begun.is_origin(start) and begun.is_origin(arrived) and bench.is_origin(bench.bank.untrained)
    assert not begun.is_origin(begun.bank.untrained) and not bench.is_origin(start)


def test_held_out_records_that_are_attacked_are_read_once(bench, reading):
    public = evaluation_set(heldout=5)
    nonmembers, adapter = Nonmembers(public, 200, Stream(0)), random_state(bench.bank, 0)
    heldout.losses(bench, public, [adapter])
    nonmembers.seen(bench, [adapter])
    assert counts(reading) == (5, 5)

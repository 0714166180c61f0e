"""Attacks on models that know their members by heart, that know nothing, and of every kind of record."""

from itertools import cycle

import numpy as np
import pytest
import torch

from murmura.data.records import Document, Labelled
from murmura.measure.attacks import CONTROL
from murmura.measure.evaluation_set import EvaluationSet
from murmura.measure.membership import Nonmembers, chosen, cuts, scores, set_apart, tallies
from murmura.measure.reader import Reader
from murmura.streams import Stream
from murmura.tasks import DOCUMENT, INSTRUCTION, LABELLED
from murmura.training.config import LocalTraining
from murmura.training.loop import train
from tests.conftest import make_llama
from tests.federation.world import instructions, make_workbench
from tests.training.helpers import random_state

MEMBERS, OTHERS = instructions(24, seed=1), instructions(24, seed=2)


def learnt(bench, records, *, lr=0.01, epochs=30):
    training = LocalTraining(epochs=epochs, batch_size=4)
    shards, start = [bench.tokenise_fitting(records)], bench.bank.initial(Stream(0))
    [result] = train(bench.bank, shards, [start], training, lr, [Stream(0)], step=bench.step)
    return result.state


def nonmembers(task, records, most=200):
    return Nonmembers(EvaluationSet(task, records), most, Stream(0))


def scores_of(bench, adapters, records, reader=None):
    return scores(reader or Reader(INSTRUCTION.token_scores), INSTRUCTION, bench, adapters, records)


def attacked(task, bench, adapter, members, others):
    """What a run's server makes of it, with all members at one site."""
    public = nonmembers(task, others)
    [seen] = public.seen(bench, [adapter])
    stream = Stream(0) / "a site"
    own = chosen(members, 200, stream)
    [found] = scores(Reader(task.token_scores), task, bench, [adapter], [own])
    counted = tallies(found, seen.cuts, set_apart(len(own), task, stream))
    return public.against(counted, seen.tally)


def test_what_a_run_began_with_says_nothing(tokenizer):
    """An adapter that was tuned before has learnt nothing of the run's records yet."""
    start = random_state(make_workbench(tokenizer).bank, 0, scale=0.5)
    bench = make_workbench(tokenizer, start=start)
    [found] = scores_of(bench, [start], [OTHERS])
    assert set(found["error zone"]) == set(found["window votes"]) == {0.5} and not found["loss difference"].any()
    [moved] = scores_of(bench, [bench.bank.untrained], [OTHERS])
    assert np.abs(moved["loss difference"]).min() > 0


@pytest.fixture(scope="module")
def overfitted(tokenizer):
    bench = make_workbench(tokenizer, lora=None)  # an untrained model learns little with adapters alone
    return bench, learnt(bench, MEMBERS)


def test_members_known_by_heart_are_told_from_others(overfitted):
    bench, adapter = overfitted
    figures, told = attacked(INSTRUCTION, bench, adapter, MEMBERS, OTHERS)
    assert figures["auc"] > 0.98 and figures["auc_low"] > 0.75
    assert figures["loss_auc"] > 0.9
    assert told["each"].keys() == set(INSTRUCTION.attacks) and told["attack"] != CONTROL
    assert (told["members"], told["others"]) == (18, 18)  # one in four was set apart
    assert "tpr" not in figures  # too few others for a rate of 1 %


def test_a_model_that_was_not_trained_says_nothing(overfitted):
    bench, _ = overfitted
    figures, told = attacked(INSTRUCTION, bench, bench.bank.initial(Stream(0)), MEMBERS, OTHERS)
    assert figures["auc"] == 0.5 and figures["auc_low"] == pytest.approx(1 - figures["auc_high"])
    assert figures["loss_auc_low"] <= 0.5 <= figures["loss_auc_high"]
    assert told["attack"] == "error zone"  # of equals the first


def test_of_a_model_trained_on_others_still_intervals_hold_one_half(tokenizer):
    bench = make_workbench(tokenizer, lora=None)
    adapter = learnt(bench, instructions(12, seed=3), epochs=3)
    figures, _ = attacked(INSTRUCTION, bench, adapter, MEMBERS, OTHERS)
    assert figures["auc_low"] <= 0.5 <= figures["auc_high"]


def texts(records):
    return [f"{record.output} {record.instruction}" for record in records]


def test_documents(tokenizer):
    from murmura.tasks.document import DocumentReading

    bench = make_workbench(tokenizer, lora=None)
    bench.reading = DocumentReading(tokenizer, 96)
    members, others = (list(map(Document, texts(some))) for some in (MEMBERS, OTHERS))
    figures, told = attacked(DOCUMENT, bench, learnt(bench, members), members, others)
    assert figures["auc_low"] > 0.7 and told["members"] == 18


def test_labels(tokenizer):
    """Labels that mean nothing can only be known by heart; a text without one is not attacked."""
    from murmura.data.cloze import Cloze
    from murmura.tasks.labelled import LabelledReading

    bench = make_workbench(tokenizer, lora=None)
    words = {"good": ["good"], "bad": ["bad"]}
    patterns = ["{text} it was {blank}", "{text} all in all {blank}"]
    bench.reading = LabelledReading(Cloze(patterns, words, tokenizer, 96, masked=False, several_tokens="average"))
    members, others = (list(map(Labelled, texts(some), cycle(["bad", "good"]))) for some in (MEMBERS, OTHERS))
    adapter = learnt(bench, members, epochs=40)
    figures, told = attacked(LABELLED, bench, adapter, [*members, Labelled("no label")], others)
    assert figures["auc_low"] > 0.6
    assert (told["attack"], told["members"], told["others"]) == ("loss difference", 24, 24)  # nothing to choose among
    [found] = LABELLED.token_scores(bench, [adapter], members[:1])
    assert len(found.nll) == len(patterns) and (found.nll > 0).all()


def test_scores_of_many_adapters_share_batches_and_are_those_of_each_alone(tokenizer):
    bench = make_workbench(tokenizer, slots=2)
    adapters = [random_state(bench.bank, seed, scale=0.5) for seed in range(3)]
    some = [MEMBERS[:3], OTHERS[:2], MEMBERS[2:5]]
    together = scores_of(bench, adapters, some)
    for adapter, records, found in zip(adapters, some, together, strict=True):
        [alone] = scores_of(bench, [adapter], [records])
        for name, values in found.items():
            assert values == pytest.approx(alone[name], abs=1e-4)


@pytest.mark.parametrize("lora", [True, False])
def test_what_leaves_the_model_as_it_was_loaded(tokenizer, lora):
    model = make_llama(tokenizer)
    ids = torch.tensor([[5, 6, 7, 8]])
    before = model(input_ids=ids).logits
    bench = make_workbench(tokenizer, model=model, **({} if lora else {"lora": None}))
    bank = bench.bank
    bank.load([random_state(bank, 0)])
    assert not bank.adds_nothing(random_state(bank, 0)) and bank.adds_nothing(bank.initial(Stream(0)))
    bank.load([bank.untrained])
    bank.route(torch.tensor([0]))
    assert torch.equal(bank.model(input_ids=ids).logits, before)
    assert bank.untrained is bank.untrained


def test_more_records_begin_with_the_same_ones_and_one_in_four_is_set_apart():
    stream = Stream(0)
    assert chosen(MEMBERS, 24, stream)[:5] == chosen(MEMBERS, 5, stream) != MEMBERS[:5]
    for count in (1, 4, 9, 200):
        assert abs(set_apart(count, INSTRUCTION, stream).sum() - count / 4) < 1
    assert len({tuple(set_apart(4, INSTRUCTION, Stream(seed))) for seed in range(30)}) == 4
    assert not set_apart(9, LABELLED, stream).any()


def test_the_attack_is_chosen_by_the_records_set_apart_alone():
    """Where one attack is better on those and another on the rest, the first is shown, with its figure on the rest."""
    public = nonmembers(INSTRUCTION, OTHERS)
    apart, rng = public.apart, np.random.default_rng(0)
    lucky = np.where(apart, 1.0, -1.0)
    own = {name: np.zeros(24) for name in INSTRUCTION.attacks}
    own |= {"window votes": lucky, "loss difference": -lucky}
    others = {name: rng.normal(0, 0.1, 24) for name in INSTRUCTION.attacks}
    points = cuts(others)
    figures, told = public.against(tallies(own, points, apart), tallies(others, points, apart))
    assert told["attack"] == "window votes" and figures["auc"] == 0.0
    assert told["each"]["loss difference"][0] == 1.0


def test_with_a_hundred_others_the_members_found_at_one_percent_are_told():
    public = nonmembers(LABELLED, [Labelled(f"text {k}", "good") for k in range(100)])
    others = {name: np.arange(100.0) for name in LABELLED.attacks}
    own = {name: np.array([98.5, 99.5, 99.5, 3.0]) for name in LABELLED.attacks}
    points, none = cuts(others), np.zeros(4, dtype=bool)
    figures, _ = public.against(tallies(own, points, none), tallies(others, points, public.apart))
    assert (figures["tpr"], figures["tpr_n"]) == (0.5, 4)  # of 100 others none may be above: one more is, in 101


def test_without_records_nothing_is_told(tokenizer):
    assert scores_of(make_workbench(tokenizer), [], []) == []
    assert LABELLED.token_scores(None, [], []) == []
    public = nonmembers(LABELLED, [Labelled("text", "good")])
    others = {name: np.zeros(1) for name in LABELLED.attacks}
    points, nobody = cuts(others), {name: np.zeros(0) for name in LABELLED.attacks}
    empty = tallies(nobody, points, np.zeros(0, dtype=bool))
    assert public.against(empty, tallies(others, points, public.apart)) == ({}, {})

"""Preferences as a kind of record."""

import math

import numpy as np
import pytest
import torch

from murmura.data.config import DataConfig
from murmura.data.records import Instruction, Preference
from murmura.data.templates import template
from murmura.data.tokenising import tokenise_all
from murmura.measure.evaluation_set import EvaluationSet
from murmura.model_runtime import ModelRuntime
from murmura.tasks import PREFERENCE
from murmura.training.bank import Bank
from murmura.training.config import LocalTraining, LoraSpec
from tests.training.helpers import margin, random_state

DATA = DataConfig(train="a", heldout="b", max_length=96, template="alpaca")
RECORDS = [
    Preference("may the child have food", "with the tablets daily", "when the rash spreads"),
    Preference("when to call the clinic", "if the rash spreads", "call a kidney"),
    Preference("what of the fever", "a nurse will explain the dose", "no"),
]


@pytest.fixture
def reading(tokenizer):
    return PREFERENCE.reading(None, DATA, tokenizer, masked=False)


@pytest.fixture
def bench(llama, tokenizer, reading):
    bank, options = Bank(llama, LoraSpec(rank=2)), LocalTraining(dpo_beta=0.5)
    return lambda start=None: ModelRuntime(bank, tokenizer, reading, options, max_length=96, start=start)


def test_both_answers_stand_behind_the_prompt_as_an_instructions_does(tokenizer, reading):
    [pair] = reading.tokenise(RECORDS[:1])
    alone = [Instruction(RECORDS[0].prompt, output=answer) for answer in (RECORDS[0].chosen, RECORDS[0].rejected)]
    expected = tokenise_all(alone, template("alpaca"), tokenizer, 96).items
    assert [item.ids for item in pair.items] == [item.ids for item in expected]
    assert [item.labels for item in pair.items] == [item.labels for item in expected]
    assert reading.tokenise([RECORDS[1], RECORDS[0]])[1] is pair  # what is known of it is known again
    shown = PREFERENCE.preview(DATA, RECORDS[0])
    assert shown == reading.example(RECORDS[0]) and RECORDS[0].chosen in shown and RECORDS[0].rejected in shown


def test_a_pair_fits_if_both_answers_do_behind_the_whole_prompt(reading):
    long = "the patient calls the clinic " * 20
    pairs = [RECORDS[0], Preference(long, "yes", "no"), Preference("why", long, "no"), Preference("why", "no", long)]
    found = reading.fit(pairs)
    assert (found.kept, found.dropped, list(found.shortened)) == ([0], 3, [])
    assert reading.tokenise(pairs)[1:] == [None, None, None]


@pytest.mark.parametrize("from_adapter", [False, True])
def test_the_held_out_loss_is_that_of_the_formula_and_preferred_answers_are_counted(bench, reading, from_adapter):
    runtime = bench()
    start = random_state(runtime.bank, 5) if from_adapter else None
    runtime = bench(start) if from_adapter else runtime
    adapters = [random_state(runtime.bank, seed) for seed in (1, 2)]
    found = PREFERENCE.measure(runtime, EvaluationSet(PREFERENCE, RECORDS, ()), adapters)
    known = _margins(runtime, runtime.origin, reading)
    for figures, adapter in zip(found, adapters, strict=True):
        rewards = 0.5 * (_margins(runtime, adapter, reading) - known)
        assert figures["heldout_loss"] == pytest.approx(np.mean(np.log1p(np.exp(-rewards))), abs=1e-5)
        assert figures["preference_accuracy"] == pytest.approx(np.mean(rewards > 0))
        assert (figures["preference_accuracy_n"], figures["preference_accuracy_guess"]) == (3, 0.5)
    assert found[0]["heldout_loss"] != found[1]["heldout_loss"]


def test_where_training_begins_nothing_is_preferred(bench):
    runtime = bench()
    [found] = PREFERENCE.measure(runtime, EvaluationSet(PREFERENCE, RECORDS, ()), [runtime.origin])
    assert found["heldout_loss"] == pytest.approx(math.log(2), abs=1e-12) and found["preference_accuracy"] == 0.5


def test_attacks_go_by_how_far_training_has_raised_a_pairs_margin(bench, reading):
    runtime = bench()
    adapter = random_state(runtime.bank, 1)
    found = PREFERENCE.token_scores(runtime, [adapter] * 3, RECORDS)
    own = _margins(runtime, adapter, reading)
    assert [-one.nll[0] for one in found] == pytest.approx(own.tolist(), abs=1e-4)
    assert [bool(one.first[0]) for one in found] == [value > 0 for value in own]


@torch.no_grad()
def _margins(runtime, adapter, reading):
    runtime.bank.load([adapter])
    runtime.bank.route(torch.tensor([0]))
    return np.array([margin(runtime.bank.model, pair).item() for pair in reading.tokenise(RECORDS)])

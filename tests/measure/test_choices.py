"""Likelihoods of options, against the same sums made with transformers alone."""

import pytest
import torch

from murmura.data.records import Choice
from murmura.measure import choices as module
from murmura.measure.choices import likelihoods, measure
from murmura.measure.evaluation_set import EvaluationSet
from murmura.tasks import INSTRUCTION
from tests.federation.world import instructions
from tests.measure.conftest import adapters

QUESTIONS = [
    Choice("explain the rash", "it is red", ("call the clinic", "come back for a blood test on monday", "no"), 1),
    Choice("is this a heart letter", "", ("yes", "no"), 0),
    Choice("is this a kidney letter", "the result of the test", ("no", "yes"), 1),
]


def by_hand(bench, state, question):
    """The sum of log-softmax at the option's tokens, one option at a time, without the bank's own head."""
    bench.bank.load([state])
    prompt = bench.tokenizer(bench.template.prompt(question.answered()[0]), add_special_tokens=False)["input_ids"]
    sums = []
    for option in question.options:
        answer = bench.tokenizer(option, add_special_tokens=False)["input_ids"]
        bench.bank.route(torch.zeros(1, dtype=torch.long))
        with torch.no_grad():
            logits = bench.bank.model(input_ids=torch.tensor([prompt + answer])).logits[0].double()
        told = logits.log_softmax(-1)[len(prompt) - 1 : -1]
        sums.append(told.gather(1, torch.tensor(answer)[:, None]).sum().item())
    return sums


def test_an_options_likelihood_is_the_sum_over_its_tokens_and_no_others(bench):
    states = adapters(bench, 3)  # more than there are slots
    found = likelihoods(bench, states, QUESTIONS)
    for state, rows in zip(states, found, strict=True):
        for question, row in zip(QUESTIONS, rows, strict=True):
            assert row.tolist() == pytest.approx(by_hand(bench, state, question), abs=1e-3)
    assert abs(found[0][0] - found[1][0]).max() > 0.01  # each by its own adapter


def told(monkeypatch, *rows):
    monkeypatch.setattr(module, "likelihoods", lambda *_: [list(map(module.np.array, rows))])


def test_the_answer_is_the_likeliest_with_and_without_the_options_length(bench, monkeypatch):
    """15, 36 and 2 bytes: −3.0, −3.6, −2.0 in all; −0.2, −0.1, −1.0 a byte."""
    told(monkeypatch, [-3.0, -3.6, -2.0], [-3.0, -1.0], [-1.0, -3.1])
    [found] = measure(bench, ["adapter"], QUESTIONS)
    assert (found["choice_accuracy"], found["choice_accuracy_n"]) == (0.0, 3)
    assert found["choice_accuracy_guess"] == pytest.approx((1 / 3 + 1 / 2 + 1 / 2) / 3)
    assert (found["choice_accuracy_norm"], found["choice_accuracy_norm_n"]) == (pytest.approx(1 / 3), 3)


def test_length_is_counted_in_bytes_of_utf_8(bench, monkeypatch):
    questions = [Choice("which", "", ("ää", "abc"), 0)]  # two characters, four bytes
    told(monkeypatch, [-3.6, -3.0])  # −0.9 and −1.0 a byte; −1.8 and −1.0 a character
    assert measure(bench, ["adapter"], questions)[0]["choice_accuracy_norm"] == 1.0


def test_options_that_all_questions_share_are_told_apart(bench, monkeypatch):
    questions = [Choice("which", text, ("bad", "good"), answer) for text, answer in (("a", 0), ("b", 0), ("c", 1))]
    told(monkeypatch, [-1.0, -2.0], [-2.0, -1.0], [-2.0, -1.0])
    [found] = measure(bench, ["adapter"], questions)
    assert found["confusion"] == {"bad": {"bad": 1, "good": 1}, "good": {"bad": 0, "good": 1}}
    assert found["choice_accuracy_guess"] == found["choice_accuracy_norm_guess"] == pytest.approx(2 / 3)
    told(monkeypatch, [-1.0] * 3, [-1.0] * 2, [-1.0] * 2)
    assert "confusion" not in measure(bench, ["adapter"], QUESTIONS)[0]


def test_all_options_stand_behind_the_same_prompt(bench):
    """The longest leaves the least room, and the others get no more of the question than it."""
    long = " ".join(["come back for a blood test"] * 6)
    question = Choice("explain", " ".join(["the rash spreads before the next visit"] * 8), (long, "no"), 0)
    items = module._items(bench, question)
    alone = bench.reading.tokenise([question.answered()[1]])[0]
    assert alone.start > items[1].start  # by itself it would have had more of it
    assert items[0].ids[: items[0].start] == items[1].ids[: items[1].start]
    assert len(items[0].ids) < bench.max_length
    assert bench.tokenizer.eos_token_id != items[1].ids[-1]


def test_they_are_measured_with_the_held_out_records(bench):
    states = adapters(bench, 2)
    public = EvaluationSet(INSTRUCTION, instructions(3, seed=100), choices=QUESTIONS)
    found = public.measure(bench, states)
    own = measure(bench, states, QUESTIONS)
    for figures, asked in zip(found, own, strict=True):
        assert asked.items() <= figures.items() and "heldout_loss" in figures
    assert "choice_accuracy" not in EvaluationSet(INSTRUCTION, public.heldout).measure(bench, states)[0]

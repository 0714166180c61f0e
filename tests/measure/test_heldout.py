"""Utility on held-out records, many adapters at once."""

import math
from dataclasses import replace

import pytest
import torch
from scipy.stats import t as student
from scipy.stats import ttest_1samp

from murmura.data.records import Instruction
from murmura.generation.writer import Completion
from murmura.measure.evaluation_set import EvaluationSet
from murmura.measure.figure import interval
from murmura.measure.heldout import continuations, fall, measure
from murmura.measure.text import rouge_l
from murmura.progress import collect_phases
from murmura.tasks import INSTRUCTION
from tests.conftest import WORDS
from tests.federation.world import evaluation_set, instructions
from tests.measure.conftest import adapters
from tests.training.helpers import hf_batch


@pytest.fixture
def public():
    return evaluation_set(sample=2, heldout=5)


def figures(found):
    return tuple(found[name] for name in ("heldout_rouge", "nonmember_rouge", "nonmember_exact", "nonmember_prefix"))


def test_the_loss_is_the_mean_over_all_tokens_of_all_records(bench, public):
    states = adapters(bench, 3)
    found = measure(bench, public, states)
    items = bench.reading.tokenise(public.heldout)
    for state, result in zip(states, found, strict=True):
        bench.bank.load([state])
        bench.bank.route(torch.zeros(len(items), dtype=torch.long))
        assert result["heldout_loss"] == pytest.approx(bench.bank.model(**hf_batch(items)).loss.item(), abs=1e-5)
    assert len({result["heldout_loss"] for result in found}) == 3


def test_of_answers_that_repeat_the_loss_of_guessing_is_told(bench):
    """One of five labels against four: by the shares of the other four, not its own."""
    labels = ["the dose", "the dose", "the dose", "rash", "rash"]
    records = [Instruction("name it", word, label) for word, label in zip(WORDS, labels, strict=False)]
    public = EvaluationSet(INSTRUCTION, records, sample=1)
    tokens = sum(len(item.ids) - item.start for item in bench.reading.tokenise(records))
    [found] = measure(bench, public, adapters(bench, 1))
    assert found["heldout_loss_guess"] == pytest.approx(-(3 * math.log(2 / 4) + 2 * math.log(1 / 4)) / tokens)


def test_answers_are_those_of_a_sample(bench, public):
    states = adapters(bench, 2)
    found = measure(bench, public, states, completes=True)
    sample = continuations(bench, states, [public.heldout[:2]] * 2, "answers")
    assert [figures(f) for f in found] == [(s["rouge"], s["rouge"], s["exact"], s["prefix"]) for s in sample]
    assert [s["records"] for s in sample] == [2, 2]


def test_non_members_are_completed_only_if_wanted(bench, public):
    [found] = measure(bench, public, adapters(bench, 1))
    sizes = {"heldout_rouge_n", "heldout_f1_n"}
    ends = {f"heldout_{figure}_{end}" for figure in ("rouge", "f1") for end in ("low", "high")}
    assert found.keys() - ends == {"heldout_loss", "heldout_rouge", "heldout_f1"} | sizes


def test_how_sure_the_mean_over_answers_is_follows_from_how_they_differ(bench, monkeypatch):
    """Student's interval over texts, as scipy has it; of those that are all alike, that of a share."""
    records = [Instruction("name it", word, "the dose daily") for word in WORDS[:4]]
    public = EvaluationSet(INSTRUCTION, records, sample=4)
    scripted(bench, monkeypatch, ["the dose daily", "the dose", "the dose", "rash"])
    [found] = measure(bench, public, adapters(bench, 1))
    each = [1.0, 0.8, 0.8, 0.0]
    low, high = ttest_1samp(each, 0.0).confidence_interval(0.95)
    assert found["heldout_rouge"] == pytest.approx(0.65) and found["heldout_rouge_n"] == 4
    assert (found["heldout_rouge_low"], found["heldout_rouge_high"]) == pytest.approx((max(low, 0.0), min(high, 1.0)))
    scripted(bench, monkeypatch, ["rash"] * 4)
    [found] = measure(bench, public, adapters(bench, 1))
    assert found["heldout_rouge"] == 0.0 and found["heldout_rouge_n"] == 4
    assert (found["heldout_rouge_low"], found["heldout_rouge_high"]) == interval(0.0, 4)  # nobody is sure of it


def scripted(bench, monkeypatch, texts):
    """A runtime that writes given texts; returns what it was asked."""
    asked = []

    def write(adapters, prompts, limits, *, description):
        asked.append((prompts, limits))
        ids = [bench.tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
        return [Completion(text, found[:limit], True) for text, found, limit in zip(texts, ids, limits, strict=True)]

    monkeypatch.setattr(bench, "write", write)
    return asked


def test_figures_of_continuations(bench, monkeypatch):
    outputs = ("the rash spreads", "take it with food", "call")
    records = [Instruction("explain the result", "", output) for output in outputs]
    texts = ["the rash spreads", "take the new tablets", "nothing"]
    asked = scripted(bench, monkeypatch, texts)
    state = adapters(bench, 1)[0]
    first, second = continuations(bench, [state, state], [records[:1], records[1:]], "test")
    lengths = [len(bench.tokenizer(record.output, add_special_tokens=False)["input_ids"]) for record in records]
    [(prompts, limits)] = asked
    assert limits == lengths  # as long as the true response, its end not counted
    assert prompts == [item.ids[: item.start] for item in bench.reading.tokenise(records)]
    assert (first["rouge"], first["exact"], first["prefix"], first["records"]) == (1.0, 1.0, lengths[0], 1)
    assert second["rouge"] == pytest.approx((rouge_l(texts[1], records[1].output) + 0.0) / 2)
    assert (second["exact"], second["records"]) == (0.0, 2)
    assert 0 < second["prefix"] < lengths[1]


def test_the_words_of_the_same_answers_are_compared_too(bench, monkeypatch):
    """No second answer is written for the F1 of words."""
    records = [Instruction("explain", "", output) for output in ("the rash spreads", "take it with food")]
    asked = scripted(bench, monkeypatch, ["A rash, spreads", "food"])
    [found] = measure(bench, EvaluationSet(INSTRUCTION, records), adapters(bench, 1))
    assert found["heldout_f1"] == pytest.approx((1.0 + 2 * 1 / 5) / 2)
    assert len(asked) == 1


def test_nothing_that_fits_gives_no_figures(bench):
    long = Instruction("explain", "", "the patient " * 200)
    [found] = continuations(bench, adapters(bench, 1), [[long]], "test")
    assert (found["rouge"], found["exact"], found["prefix"], found["records"]) == (0.0, 0.0, 0.0, 0)


def test_records_that_do_not_fit_are_left_out(bench):
    state, short = adapters(bench, 1)[0], instructions(1, seed=7)
    long = Instruction("explain", "", "the patient " * 200)
    assert continuations(bench, [state], [[long, *short]], "x") == continuations(bench, [state], [short], "x")


def test_its_time_counts_as_evaluation(bench, public):
    phases = collect_phases()
    measure(bench, public, adapters(bench, 1))
    assert phases.seconds.keys() == {"evaluate"}


def test_non_members_of_their_own_kind_are_continued_beside_the_held_out_records(bench, public):
    """Held-out records may be easier than the sites' own; then other records stand for what nobody trained on."""
    public = replace(public, nonmembers=public.heldout[::-1])
    states = adapters(bench, 1)
    [found] = measure(bench, public, states, completes=True)
    expected = continuations(bench, states * 2, [public.heldout[:2], public.nonmembers[:2]], "")
    others = expected[1]
    assert figures(found) == (expected[0]["rouge"], others["rouge"], others["exact"], others["prefix"])


def losses_of(bench, state, records):
    """Nats of each record's answer, and its tokens, one record at a time."""
    items = bench.reading.tokenise(records)
    bench.bank.load([state])
    bench.bank.route(torch.zeros(1, dtype=torch.long))
    means = [bench.bank.model(**hf_batch([item])).loss.item() for item in items]
    tokens = [len(item.ids) - item.start for item in items]
    return [mean * count for mean, count in zip(means, tokens, strict=True)], tokens


def test_how_sure_the_fall_of_the_loss_is_follows_from_how_records_differ_in_it(bench, public):
    """Against the variance of a ratio of sums, written out; where all are of one length, Student's interval is the same
    as of the falls of the single records."""
    state = adapters(bench, 1)[0]
    found = fall(bench, public, state)
    (before, tokens), (after, _) = (losses_of(bench, one, public.heldout) for one in (bench.origin, state))
    ratio = (sum(before) - sum(after)) / sum(tokens)
    left = [b - a - ratio * t for b, a, t in zip(before, after, tokens, strict=True)]
    error = math.sqrt(sum(one**2 for one in left) / (len(left) * (len(left) - 1))) / (sum(tokens) / len(tokens))
    reach = student.ppf(0.975, len(left) - 1) * error
    assert len(set(tokens)) > 1 and reach > 0
    assert found["heldout_fall"] == pytest.approx(ratio, abs=1e-5) and found["heldout_fall_n"] == len(tokens)
    ends = found["heldout_fall_low"], found["heldout_fall_high"]
    assert ends == pytest.approx((ratio - reach, ratio + reach), abs=1e-4)
    alike = EvaluationSet(INSTRUCTION, [Instruction("name it", word, "the dose") for word in WORDS[:4]])
    found = fall(bench, alike, state)
    (before, [count, *_]), (after, _) = (losses_of(bench, one, alike.heldout) for one in (bench.origin, state))
    low, high = ttest_1samp([(b - a) / count for b, a in zip(before, after, strict=True)], 0.0).confidence_interval()
    assert (found["heldout_fall_low"], found["heldout_fall_high"]) == pytest.approx((low, high), abs=1e-4)


def test_of_one_record_and_of_an_untrained_model_no_fall_is_sure(bench, public):
    state = adapters(bench, 1)[0]
    assert fall(bench, EvaluationSet(INSTRUCTION, public.heldout[:1]), state).keys() == {"heldout_fall"}
    assert fall(bench, public, bench.origin) == {"heldout_fall": 0.0}

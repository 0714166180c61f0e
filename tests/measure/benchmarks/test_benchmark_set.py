"""Benchmarks asked of adapters."""

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers
from transformers import PreTrainedTokenizerFast

from murmura.data.records import Instruction, Labelled, Program
from murmura.errors import RunError
from murmura.federation.wire.messages import decode, encode
from murmura.generation.writer import Completion
from murmura.measure.benchmarks import BENCHMARKS, FPB, GSM8K, HumanEval
from murmura.measure.benchmarks.benchmark_set import BenchmarkSet, answers, measure, prompt
from murmura.measure.benchmarks.config import GSM8KConfig, HumanEvalConfig, SentimentConfig
from murmura.measure.catalogue import CATALOGUE, figure
from murmura.measure.evaluation_set import EvaluationSet
from murmura.tasks import INSTRUCTION
from tests.federation.world import instructions
from tests.training.helpers import random_state

SUMS = BenchmarkSet(
    GSM8K(GSM8KConfig(file="sums.jsonl", tokens=6)),
    [Instruction("how many tablets", "", "#### 2"), Instruction("how many visits", "on monday", "#### 3")],
)
TEXTS = BenchmarkSet(FPB(SentimentConfig(file="news.jsonl", tokens=4)), [Labelled("the dose rose", "positive")])


def scripted(bench, monkeypatch, *texts):
    asked, left = [], list(texts)

    def write(adapters, prompts, limits, *, stop, description):
        asked.append((adapters, prompts, limits, stop))
        return [Completion(left.pop(0), [], True) for _ in prompts]

    monkeypatch.setattr(bench, "write", write)
    return asked


def test_each_benchmark_has_its_table_its_figures_and_its_outcomes():
    for name, made in BENCHMARKS.items():
        shown = made.figures()
        assert shown[0].key == name and all(one in CATALOGUE for one in shown)
        assert [one.key for one in shown[1:]] == [f"{name}_parsed"] * ("no answer found" in made.outcomes)
        assert made.options(file="x").tokens and "right" in made.outcomes


def test_shares_are_told_with_their_numbers_and_what_became_of_the_others(bench, monkeypatch):
    asked = scripted(bench, monkeypatch, "#### 2", "#### 5", "none", "#### 3", "positive", "well")
    first, second = measure(bench, ["one", "two"], [SUMS, TEXTS])
    sums, texts = ({"right": 1, "wrong": wrong, "no answer found": 0} for wrong in (1, 0))
    assert first.pop("answers") == {"gsm8k": sums, "fpb": texts}
    of_sums = {"gsm8k": 0.5, "gsm8k_n": 2, "gsm8k_parsed": 1.0, "gsm8k_parsed_n": 2}
    assert first == of_sums | {"fpb": 1.0, "fpb_n": 1, "fpb_parsed": 1.0, "fpb_parsed_n": 1, "fpb_guess": 1.0}
    assert (second["gsm8k"], second["gsm8k_parsed"], second["fpb"]) == (0.5, 0.5, 0.0)
    assert figure("fpb").words(first).endswith(", n = 1, guessing 1.000)")
    assert figure("gsm8k").words(first) == "0.500 (0.095–0.905, n = 2)"
    (adapters, prompts, limits, stop), (_, others, _, _) = asked
    assert (adapters, limits, stop) == (["one", "one", "two", "two"], [6] * 4, SUMS.benchmark.stop)
    assert prompts == [bench.prompt_ids(prompt(SUMS.benchmark, one, bench.template)) for one in SUMS.questions] * 2
    assert bench.tokenizer.decode(others[0]).endswith("the dose rose\nAnswer: ")


def test_the_template_stands_around_a_question_as_in_training(bench):
    question = SUMS.questions[1]
    assert prompt(SUMS.benchmark, question, bench.template) == bench.template.prompt(question)
    plain = GSM8K(GSM8KConfig(file="x", form="plain"))
    assert prompt(plain, question, bench.template) == "Question: how many visits on monday\nAnswer:"


def test_each_adapter_writes_its_own_answers_within_the_limit(bench):
    states = [random_state(bench.bank, seed, scale=0.5) for seed in range(3)]  # more than there are slots
    found = answers(bench, states, SUMS)
    assert found == [answers(bench, [state], SUMS)[0] for state in states]
    assert len({tuple(texts) for texts in found}) > 1
    assert all(len(bench.prompt_ids(text)) <= 6 for texts in found for text in texts)


def test_behind_a_prompt_without_a_template_an_answer_of_sentence_pieces_keeps_its_first_space(bench, monkeypatch):
    """As of Llama 2, whose decoder takes a space from a text's beginning; responses of training begin with one of its
    tokenizer's own."""
    question = Program('def f(x):\n    """Twice."""\n', "def check(candidate):\n    assert candidate(2) == 4\n", "f")
    answer = ["▁▁▁", "▁return", "▁", "x", "▁", "+", "▁", "x"]
    pieces = dict.fromkeys(["</s>", "▁", *answer, *question.prompt])
    core = Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, []))
    core.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    core.decoder = decoders.Sequence(parts)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="</s>")
    ids = tokenizer.convert_tokens_to_ids(answer)
    written = [Completion(tokenizer.decode(ids), ids, True)]
    monkeypatch.setattr(bench, "tokenizer", tokenizer)
    monkeypatch.setattr(bench, "write", lambda *given, **more: written)
    plain, templated = (HumanEval(HumanEvalConfig(file="x", form=form, uncut=True)) for form in ("plain", "template"))
    [found] = answers(bench, ["one"], BenchmarkSet(plain, [question]))
    assert found == ["    return x + x"] and plain.judge([question], found)[0].outcome == "right"
    assert answers(bench, ["one"], BenchmarkSet(templated, [question])) == [["   return x + x"]]


def test_questions_travel_with_their_options():
    heard = BenchmarkSet.from_payload(decode(encode(TEXTS.to_payload())))
    assert (heard.questions, heard.benchmark.config) == (TEXTS.questions, TEXTS.benchmark.config)
    assert type(heard.benchmark) is FPB


def test_nobody_runs_programs_that_others_send():
    question = Program("def f():\n", "def check(candidate):\n    assert candidate()\n", "f")
    sent = BenchmarkSet(HumanEval(HumanEvalConfig(file="x")), [question]).to_payload()
    with pytest.raises(RunError, match="no programs are run that others send"):
        BenchmarkSet.from_payload(sent)


def test_they_are_measured_with_the_held_out_records_when_it_is_time(bench):
    states = [random_state(bench.bank, 1, scale=0.3)]
    public = EvaluationSet(INSTRUCTION, instructions(3, seed=100), benchmarks=[SUMS])
    [found] = public.measure(bench, states)
    assert found["gsm8k_n"] == 2 and "heldout_loss" in found
    told = public.to_payload()
    assert EvaluationSet.from_payload(INSTRUCTION, told).benchmarks[0].questions == SUMS.questions
    assert "gsm8k" not in public.measure(bench, states, poses=False)[0]
    assert public.to_payload(poses=False)["benchmarks"] == []


def test_what_questions_ask_is_told_in_the_words_of_records_that_ask_the_same():
    asked = "What is the sentiment of this news? Please choose an answer from {negative/neutral/positive}."
    assert TEXTS.subjects == ["the dose rose", f"{asked} the dose rose"]
    assert SUMS.subjects == ["how many tablets", "how many visits on monday"]
    question = Program("def f():\n", "def check(candidate):\n    assert candidate()\n", "f")
    assert BenchmarkSet(HumanEval(HumanEvalConfig(file="x")), [question]).subjects[0] == "def f():\n"


def test_tokens_that_may_be_written():
    assert (SUMS.tokens, TEXTS.tokens) == (12, 4)

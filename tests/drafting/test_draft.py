from collections import Counter
from dataclasses import replace
from itertools import count

import pytest

from murmura.data.records import Instruction
from murmura.drafting.draft import Order, draft
from murmura.drafting.plan import Drafting
from murmura.generation.sampling import Sampling
from murmura.streams import Stream
from tests.drafting.scripted import Scripted, is_for_instruction
from tests.methods.harness import records

KIDNEY, HEART = records("kidney", 9), records("heart", 2)
COUNTS = {"drafts": 4, "instructions_shown": 8, "examples_shown": 4, "instruction_attempts": 6, "example_attempts": 3}
CONFIG = Drafting(**COUNTS, rouge=0.7, alpaca_filters=False, instruction_tokens=64, example_tokens=192)


def orders(**shards):
    return [Order(shard, [], name, Stream(0) / name) for name, shard in shards.items()]


def fresh(answer=" None\nResponse: call {n} on Monday"):
    """A model that never says the same thing twice."""
    numbers = count()

    def say(prompt, adapter):
        n = next(numbers)
        words = f"alpha{n} beta{n} gamma{n} delta{n}"
        return words if is_for_instruction(prompt) else answer.format(n=words)

    return Scripted(say)


def test_two_drafts_for_each_record_to_keep():
    bench = fresh()
    [drafts] = draft(bench, orders(kidney=KIDNEY), CONFIG)
    assert len(drafts.records) == 4 == len(set(drafts.records))
    assert drafts.counts == Counter()
    assert drafts.records[0].output.startswith("call ")


def test_all_sites_write_in_one_batch_with_their_own_adapter_and_records():
    bench = fresh()
    draft(bench, orders(kidney=KIDNEY, heart=HEART), CONFIG)
    instructions, *examples = bench.batches[0], bench.batches[-1]
    assert [adapter for adapter, _, _ in instructions][:5] == ["kidney"] * 4 + ["heart"]
    assert all(adapter in prompt for adapter, prompt, _ in instructions)
    assert {limit for _, _, limit in instructions} == {CONFIG.instruction_tokens}
    assert {limit for _, _, limit in examples[0]} == {CONFIG.example_tokens}


def test_eight_instructions_and_four_examples_are_shown_or_all_there_are():
    bench = fresh()
    draft(bench, orders(kidney=KIDNEY, heart=HEART), CONFIG)
    for batch in bench.batches:
        for adapter, prompt, _ in batch:
            shown = prompt.count("please explain")
            most = 8 if is_for_instruction(prompt) else 4
            assert shown == (most if adapter == "kidney" else 2)


def test_the_same_prompt_is_not_tried_twice():
    bench = fresh()
    [drafts] = draft(bench, orders(heart=HEART), CONFIG)  # two records stand in two orders
    asked = [prompt for batch in bench.batches for _, prompt, _ in batch if is_for_instruction(prompt)]
    assert len(asked) == 2 == len(set(asked)) == len(drafts.records)
    assert drafts.counts["drafts.same_prompt"] == 6 * 4 - 2


def test_with_sampling_every_attempt_has_its_own_numbers_and_the_same_prompt_another_answer():
    bench, sampling = fresh(), Sampling(0.7)
    [drafts] = draft(bench, orders(heart=HEART), replace(CONFIG, sampling=sampling))
    assert len(drafts.records) == 4 and not drafts.counts
    assert len({prompt for _, prompt, _ in bench.batches[0]}) == 2  # two records stand in two orders
    assert {used for used, _ in bench.drawn} == {sampling}
    streams = [stream.integer() for _, streams in bench.drawn for stream in streams]
    assert len(streams) == 8 == len(set(streams))


def test_a_site_gives_up_after_so_many_attempts():
    bench = Scripted(lambda prompt, adapter: "too short" if is_for_instruction(prompt) else " None\nResponse: x")
    [drafts] = draft(bench, orders(kidney=KIDNEY), CONFIG)
    assert drafts.records == []
    assert drafts.counts == {"drafts.too_short": 24}
    assert [len(batch) for batch in bench.batches] == [4] * 6


def test_an_instruction_like_an_own_one_or_an_earlier_one_is_dropped():
    said = iter([KIDNEY[3].instruction, "a new task for the nurse", "a new task for the nurse today"])

    def say(prompt, adapter):
        return next(said, "no") if is_for_instruction(prompt) else " None\nResponse: call on Monday"

    [drafts] = draft(Scripted(say), orders(kidney=KIDNEY), CONFIG)
    assert [d.instruction for d in drafts.records] == ["a new task for the nurse"]
    assert drafts.counts == {"drafts.similar": 2, "drafts.too_short": 21}


def test_a_site_is_drafted_for_in_the_script_in_which_it_writes():
    def say(prompt, adapter):
        return next(written) if is_for_instruction(prompt) else " None\nResponse: 请明天再来"

    own = [Instruction("请说明这种药的用法", "", "一天两次"), Instruction("Explain the new dose", "", "twice a day")]
    for shown, kept in ((own, 4), (own[1:] * 2, 0)):
        written = (f"为什么会头痛{'一二三四五六七八九十'[n % 10] * 9}" for n in count())
        [drafts] = draft(Scripted(say), orders(clinic=shown), replace(CONFIG, sampling=Sampling(0.7)))
        assert len(drafts.records) == kept, drafts.counts
    assert drafts.counts["drafts.bad_start"] == 6 * 4


def test_what_a_site_already_has_is_not_drafted_again():
    known = Instruction("a new task for the nurse", "", "call on Monday")
    bench = Scripted(lambda prompt, adapter: known.instruction)
    [drafts] = draft(bench, [Order(KIDNEY, [known], "kidney", Stream(0))], CONFIG)
    assert drafts.counts == {"drafts.similar": 24}


def test_an_example_is_tried_three_times_with_other_demonstrations():
    bench = fresh("no marker at all {n}")
    [drafts] = draft(bench, orders(kidney=KIDNEY), CONFIG)
    assert drafts.records == []
    assert drafts.counts == {"drafts.no_response": 4}
    tried = [[p for _, p, _ in batch] for batch in bench.batches[1:]]
    assert [len(batch) for batch in tried] == [4, 4, 4]
    assert len({prompts[0] for prompts in tried}) == 3


@pytest.mark.parametrize("number", [2, 3])
def test_an_example_is_not_tried_again_with_what_it_was_tried_with(number):
    """Two records, with an input and without one, are shown in one order."""
    bench = fresh("no marker at all {n}")
    [drafts] = draft(bench, orders(heart=records("heart", number)), CONFIG)
    asked = [prompt for batch in bench.batches for _, prompt, _ in batch if not is_for_instruction(prompt)]
    assert len(asked) == len(set(asked)) and drafts.counts["drafts.no_response"] == len({*map(task_of, asked)})
    assert (len(asked) == drafts.counts["drafts.no_response"]) is (number == 2)


def test_with_sampling_an_example_is_tried_again_with_the_same_records():
    bench = fresh("no marker at all {n}")
    draft(bench, orders(heart=HEART), replace(CONFIG, sampling=Sampling(0.7)))
    asked = [prompt for batch in bench.batches for _, prompt, _ in batch if not is_for_instruction(prompt)]
    assert len(asked) == 3 * len(set(asked))


def task_of(prompt):
    return next(words for words in prompt.split() if words.startswith("alpha"))


def test_only_what_failed_is_tried_again():
    numbers = count()

    def say(prompt, adapter):
        n = next(numbers)
        if is_for_instruction(prompt):
            return f"alpha{n} beta{n} gamma{n} delta{n}"
        return "no marker" if n in (5, 7) else f" None\nResponse: call {n}"

    bench = Scripted(say)
    [drafts] = draft(bench, orders(kidney=KIDNEY), CONFIG)
    assert [len(batch) for batch in bench.batches] == [4, 4, 2]  # the instructions are not written again
    assert [d.instruction[:6] for d in drafts.records] == ["alpha0", "alpha1", "alpha2", "alpha3"]


@pytest.mark.parametrize(
    ("response", "rejection"),
    [(KIDNEY[0].output, "copied"), ("{n}", "echo"), ("Well then: {n}?", "echo"), ("x", "short_response")],
)
def test_a_draft_that_is_no_use_is_not_tried_again_but_replaced(response, rejection):
    """Each answer is about the task in the prompt; the first two are of no use, all others are."""
    bad = iter([True, True])

    def say(prompt, adapter):
        if is_for_instruction(prompt):
            return " ".join(f"word{n}" for n in range(next(numbers), 10**6, 1000)[:6])
        task = prompt.rstrip().rpartition("Task: ")[2]
        said = response.format(n=task) if next(bad, False) else f"call on {task.split()[0]}"
        return f" None\nResponse: {said}"

    numbers = count()
    bench = Scripted(say)
    [drafts] = draft(bench, orders(kidney=KIDNEY), CONFIG)
    assert drafts.counts == {f"drafts.{rejection}": 2}
    assert len(drafts.records) == 4 and all(record.output.startswith("call on") for record in drafts.records)
    assert [len(batch) for batch in bench.batches] == [4, 4, 2, 2]


def test_an_instruction_that_gets_no_response_is_replaced_while_attempts_are_left():
    def say(prompt, adapter):
        if is_for_instruction(prompt):
            n = next(numbers)
            return f"alpha{n} beta{n} gamma{n} delta{n}"
        return "no marker" if "Task: alpha0 " in prompt else " None\nResponse: call on Monday"

    numbers = count()
    bench = Scripted(say)
    [drafts] = draft(bench, orders(kidney=KIDNEY), CONFIG)
    assert [record.instruction[:6] for record in drafts.records] == ["alpha1", "alpha2", "alpha3", "alpha4"]
    assert drafts.counts == {"drafts.no_response": 1}
    assert [len(batch) for batch in bench.batches] == [4, 4, 1, 1, 1, 1]


def test_an_instruction_for_which_no_attempt_is_left_is_told_apart():
    """Six attempts at three drafts' examples: five for the first tasks, one for two that replace others."""
    config = replace(CONFIG, drafts=3, example_attempts=2)
    rejections = iter([None, KIDNEY[0].output, KIDNEY[0].output, None, "call on Monday", None])

    def say(prompt, adapter):
        if is_for_instruction(prompt):
            n = next(numbers)
            return f"alpha{n} beta{n} gamma{n} delta{n}"
        said = next(rejections)
        return f" None\nResponse: {said}" if said else "no marker"

    numbers = count()
    [drafts] = draft(Scripted(say), orders(kidney=KIDNEY), config)
    assert [record.instruction[:6] for record in drafts.records] == ["alpha3"]
    assert drafts.counts == {"drafts.no_response": 2, "drafts.copied": 2}


def test_no_more_is_written_than_the_plan_says():
    """A model of which nothing can be used costs no more than the attempts that options allow."""
    bench = fresh(f" None\nResponse: {KIDNEY[0].output}")
    [drafts] = draft(bench, orders(kidney=KIDNEY), CONFIG)
    assert drafts.records == []
    assert drafts.counts == {"drafts.copied": 12}
    assert sum(limit for batch in bench.batches for _, _, limit in batch) <= CONFIG.most_tokens


def test_a_site_s_drafts_do_not_depend_on_who_else_is_in_the_cohort():
    def say(prompt, adapter):
        """Each prompt its own answer; a third of them unusable."""
        n = sum(prompt.encode()) % 9973
        words = f"alpha{n} beta{n} gamma{n} delta{n}"
        if is_for_instruction(prompt):
            return words if n % 3 else "no"
        return f" None\nResponse: call {n}" if n % 3 else "no"

    together = draft(Scripted(say), orders(heart=HEART, kidney=KIDNEY), CONFIG)
    alone = draft(Scripted(say), orders(kidney=KIDNEY), CONFIG)
    assert together[1] == alone[0]
    assert alone[0].counts["drafts.too_short"] > 0


def test_records_with_one_instruction_are_drafted_by_their_inputs():
    same = [Instruction("Answer the patient.", f"{r.instruction} {i}", r.output) for i, r in enumerate(KIDNEY)]
    bench = fresh()
    [drafts] = draft(bench, orders(kidney=same), CONFIG)
    assert {d.instruction for d in drafts.records} == {"Answer the patient."}
    assert drafts.records[0].input.startswith("alpha")
    assert all("Answer the patient" not in prompt for batch in bench.batches for _, prompt, _ in batch)


def test_fewer_records_are_shown_where_they_do_not_fit_the_model():
    bench = fresh()
    bench.context = 400
    [drafts] = draft(bench, orders(kidney=KIDNEY), CONFIG)
    assert 0 < drafts.counts["prompts.shortened"] <= sum(map(len, bench.batches))
    sizes = [(len(prompt), limit) for batch in bench.batches for _, prompt, limit in batch]
    assert all(size + limit <= 400 for size, limit in sizes)
    assert max(prompt.count("please explain") for _, prompt, _ in bench.batches[0]) in range(1, 8)


def test_what_is_dropped_is_told_with_the_reason_as_often_as_it_is_counted():
    answers = iter(["Sorry, as an AI language model I cannot do that for you.", "alpha beta gamma delta"])
    bench = Scripted(lambda prompt, adapter: next(answers, "") if is_for_instruction(prompt) else " None\nResponse: no")
    [drafts] = draft(bench, orders(kidney=KIDNEY), CONFIG)
    told = Counter(f"drafts.{reason}" for _, reason in drafts.dropped)
    assert told == Counter({key: n for key, n in drafts.counts.items() if key != "drafts.same_prompt"})
    assert {"drafts.refusal", "drafts.short_response"} <= set(told)
    [short] = [text for text, reason in drafts.dropped if reason == "short_response"]
    assert short == "alpha beta gamma delta\nno"

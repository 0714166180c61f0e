"""Many texts after a few seeds: each follows from its number, and nothing is asked twice."""

import json
import random
from itertools import islice

import pytest

from murmura.errors import CheckpointError, RunError
from murmura.generation.writer import Completion
from murmura.streams import Stream
from murmura.synthesis import expansion
from murmura.synthesis.answers import Texts
from murmura.synthesis.expansion import expand
from murmura.synthesis.generators import Answer, Local
from tests.synthesis.models import writer

SEEDS = [f"seed number {i} of the few" for i in range(9)]
STREAM = Stream(3) / "expand"


class Scripted:
    """Answers in an order of its own, a few at a time, and dies when it is told to.

    Args:
        judge: of a request, what is written; by default something that follows from its randomness.
        dies: after so many answers.
    """

    def __init__(self, judge=None, dies=None):
        self.described = {"model": "scripted"}
        self.judge, self.dies, self.asked = judge or self.fine, dies, []

    @staticmethod
    def fine(request):
        return " ".join(request.stream.python().choices(["one", "two", "three", "four"], k=6))

    def answers(self, requests):
        waiting, rng = iter(requests), random.Random(len(self.asked))
        while group := list(islice(waiting, 4)):
            rng.shuffle(group)
            for request in group:
                if self.dies == len(self.asked):
                    raise KeyboardInterrupt
                self.asked.append(request)
                written = self.judge(request)
                yield [Answer(request, written, finished=written is not None and not written.endswith("half of"))]


def fussy(request):
    """A third of all answers are of no use, and everything about sample 5."""
    if request.sample == 5:
        return ""
    return Scripted.fine(request) if request.stream.integer() % 3 else "too short"


def test_each_sample_follows_three_seeds_of_its_own(tmp_path):
    generator = Scripted()
    found = expand(SEEDS, 30, tmp_path / "texts", generator, STREAM)
    assert (len(found.texts), found.faults, found.given_up) == (30, {}, 0)
    shown = [tuple(sorted(line for line in r.prompt.split("\n") if "seed number" in line)) for r in generator.asked]
    assert all(len(set(seeds)) == 3 for seeds in shown) and len(set(shown)) > 20
    assert {seed for seeds in shown for seed in seeds} == set(SEEDS)
    by_sample = {request.sample: Scripted.fine(request) for request in generator.asked}
    assert list(found.texts) == [by_sample[sample] for sample in range(30)]
    # The first ones of more are the same, another stream's are not.
    assert list(expand(SEEDS, 40, tmp_path / "texts", generator, STREAM).texts)[:30] == list(found.texts)
    assert len(generator.asked) == 40
    assert list(expand(SEEDS, 30, tmp_path / "other", generator, Stream(4)).texts) != list(found.texts)


def test_what_cannot_be_used_is_asked_for_anew_and_counted(tmp_path):
    generator = Scripted(fussy)
    found = expand(SEEDS, 30, tmp_path / "texts", generator, STREAM, attempts=8)
    assert found.given_up == 1 and len(found.texts) == 29
    assert found.faults["empty"] == 8 and found.faults["too_short"] == len(generator.asked) - 29 - 8 > 0
    of_five = [request for request in generator.asked if request.sample == 5]
    assert [request.attempt for request in of_five] == list(range(8))
    assert len({request.prompt for request in of_five}) > 4 and len({request.stream for request in of_five}) == 8


@pytest.mark.parametrize("dies", [0, 1, 13, 29, 33])
def test_a_stop_changes_no_text_and_no_answer_is_asked_for_again(tmp_path, dies):
    whole = expand(SEEDS, 30, tmp_path / "whole", Scripted(fussy), STREAM)
    killed, second = Scripted(fussy, dies), Scripted(fussy)
    with pytest.raises(KeyboardInterrupt):
        expand(SEEDS, 30, tmp_path / "texts", killed, STREAM)
    with (tmp_path / "texts").open("a") as stream:
        stream.write('{"sample": 29, "attem')  # the line that was being written
    again = expand(SEEDS, 30, tmp_path / "texts", second, STREAM)
    assert list(again.texts) == list(whole.texts)
    assert (again.faults, again.given_up) == (whole.faults, whole.given_up)
    tries = [(request.sample, request.attempt) for request in [*killed.asked, *second.asked]]
    assert len(set(tries)) == len(tries) == len(whole.texts) + whole.faults.total()
    assert expand(SEEDS, 30, tmp_path / "texts", Scripted(dies=0), STREAM).given_up == whole.given_up


def halves(request):
    """Every second answer is cut off, every fourth within its first sentence."""
    k = request.stream.integer() % 4
    return (
        [f"A whole one of {request.sample}. And half of", f"Sample {request.sample} only half of"][k // 2]
        if k % 2
        else f"All there is of {request.sample}."
    )


def test_what_was_cut_off_is_known_to_be_or_loses_its_half_sentence(tmp_path):
    kept = expand(SEEDS, 40, tmp_path / "kept", Scripted(halves), STREAM)
    cut = [text.endswith("half of") for text in kept.texts]
    assert kept.texts.finished.tolist() == [not one for one in cut] and 8 < sum(cut) < 32 and not kept.faults
    whole = expand(SEEDS, 40, tmp_path / "whole", Scripted(halves), STREAM, whole=True, attempts=9)
    assert all(text.endswith(".") for text in whole.texts) and whole.texts.finished.all() and whole.given_up == 0
    assert whole.faults["no_sentence"] > 3 and any(text.startswith("A whole one") for text in whole.texts)
    with pytest.raises(CheckpointError, match="with another rule for texts that are cut off"):
        expand(SEEDS, 40, tmp_path / "whole", Scripted(halves), STREAM)


def test_a_file_that_does_not_say_what_was_cut_off_is_refused(tmp_path):
    """As releases before wrote it."""
    expand(SEEDS, 2, tmp_path / "texts", Scripted(), STREAM)
    header, *lines = [json.loads(line) for line in (tmp_path / "texts").read_text().splitlines()]
    before = [{k: v for k, v in header.items() if not k.startswith("rule")}]
    before += [{k: v for k, v in line.items() if k != "finished"} for line in lines]
    (tmp_path / "texts").write_text("".join(json.dumps(line) + "\n" for line in before))
    with pytest.raises(CheckpointError, match="with another rule for texts that are cut off"):
        expand(SEEDS, 2, tmp_path / "texts", Scripted(), STREAM)
    with pytest.raises(CheckpointError, match="damaged"):
        Texts(tmp_path / "texts", 2)


def test_a_seed_that_is_there_more_often_is_shown_more_often_and_once_in_a_prompt(tmp_path):
    generator = Scripted()
    expand([SEEDS[0]] * 7 + SEEDS[1:4], 400, tmp_path / "texts", generator, STREAM)
    times = [sum(seed in request.prompt for request in generator.asked) for seed in SEEDS[:4]]
    assert all(request.prompt.count("seed number") == 3 for request in generator.asked)
    # Drawn one after the other in proportion: left out only if the others are drawn first, 3/10 · 2/9 · 1/8.
    assert sum(times) == 3 * 400 and times[0] >= 0.985 * 400
    assert all(one == pytest.approx(400 * (2 + 1 / 120) / 3, abs=5 * 9.5) for one in times[1:])


def test_other_seeds_are_another_expansion(tmp_path):
    expand(SEEDS, 3, tmp_path / "texts", Scripted(), STREAM)
    with pytest.raises(CheckpointError, match="with another set of seeds"):
        expand(SEEDS[1:], 3, tmp_path / "texts", Scripted(), STREAM)
    with pytest.raises(CheckpointError, match="with another stream"):
        expand(SEEDS, 3, tmp_path / "texts", Scripted(), STREAM / 1)
    [header, *_] = (tmp_path / "texts").read_text().split("\n")
    assert json.loads(header)["generator"] == Scripted().described


def test_few_seeds_are_all_shown_and_none_are_refused(tmp_path):
    generator = Scripted()
    expand(SEEDS[:2], 3, tmp_path / "texts", generator, STREAM)
    assert all(request.prompt.count("seed number") == 2 for request in generator.asked)
    with pytest.raises(RunError, match="there are no seeds"):
        expand([], 3, tmp_path / "others", generator, STREAM)


def test_a_generator_that_writes_nothing_of_use_is_stopped(tmp_path, monkeypatch):
    with pytest.raises(
        RunError, match=r"none of 9 texts can be used \(9: a text had fewer than 4 words\)\. Use another"
    ):
        expand(SEEDS, 3, tmp_path / "few", Scripted(lambda request: "no"), STREAM)
    monkeypatch.setattr(expansion, "_ENOUGH_IN_VAIN", 10)
    generator = Scripted(lambda request: None)
    with pytest.raises(RunError, match=r"none of 10 texts can be used \(10: the endpoint did not take the prompt"):
        expand(SEEDS, 1000, tmp_path / "many", generator, STREAM)
    assert len(generator.asked) == 10


def test_a_model_of_this_process_writes_each_sample_by_itself(tmp_path, tokenizer):
    """How many are written together changes nothing, and neither does a stop."""
    bench, alone = writer(tokenizer), writer(tokenizer)
    local, alone.decode_rows = Local(bench, max_tokens=12), 1
    found = expand(SEEDS, 4, tmp_path / "texts", local, STREAM)
    assert len(found.texts) + found.given_up == 4 and len(found.texts) > 1
    [first] = expand(SEEDS, 1, tmp_path / "alone", Local(alone, max_tokens=12), STREAM).texts
    assert first == found.texts[0]
    assert list(expand(SEEDS, 4, tmp_path / "alone", Local(alone, max_tokens=12), STREAM).texts) == list(found.texts)
    assert local.described == {"model": "", "max_tokens": 12, "temperature": 1.0, "top_p": 1.0, "top_k": 0}


def test_a_prompt_that_leaves_no_room_is_told_as_that(tmp_path, tokenizer):
    bench = writer(tokenizer)
    long = [f"{seed} " + "the nurse came again and " * 400 for seed in SEEDS]
    with pytest.raises(RunError, match=r"none of 18 texts can be used \(18: the endpoint did not take the prompt"):
        expand(long, 6, tmp_path / "texts", Local(bench, max_tokens=12), STREAM)


def test_a_model_of_this_process_says_what_it_ended_itself(tmp_path, tokenizer, monkeypatch):
    bench = writer(tokenizer)

    def write(adapters, prompts, limits, **options):
        return [Completion(f"text number {k} of these", [], finished=k % 2 == 0) for k in range(len(prompts))]

    monkeypatch.setattr(bench, "write", write)
    found = expand(SEEDS, 4, tmp_path / "texts", Local(bench), STREAM)
    assert found.texts.finished.tolist() == [True, False, True, False]

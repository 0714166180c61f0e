"""Planted judges, whose verdicts are known."""

import json

import pytest

from murmura.errors import CheckpointError, RunError
from murmura.judge.judging import Compared, Transcript, judged, open_prompts
from murmura.judge.verdicts import OVERALL
from murmura.runs.judgement import HERE
from murmura.synthesis.generators import Answer
from tests.judge.answers import lines

PAIRS = [Compared(f"question {k}?", "long " * (1 + k % 3), "long " * 2) for k in range(9)]  # shorter, as long, longer


def parts(asked):
    first = asked.split("[Answer 1]\n")[1].split("\n\n[Answer 2]")[0]
    second = asked.split("[Answer 2]\n")[1].split("\n\n[End]")[0]
    return first, second


def longer(asked):
    first, second = map(len, parts(asked))
    return lines(1 + 2 * (first > second), 1 + 2 * (second > first))


class Planted:
    """Answers by a rule, one at a time; fails after so many."""

    described = {"model": "planted"}  # noqa: RUF012

    def __init__(self, rule, most=10**6):
        self.rule, self.most, self.asked = rule, most, []

    def answers(self, requests):
        for request in requests:
            if len(self.asked) == self.most:
                raise RunError("the server is gone")
            self.asked.append(request.prompt)
            yield [Answer(request, self.rule(request.prompt), finished=True)]


@pytest.fixture
def file(tmp_path):
    return tmp_path / "judged" / "one.jsonl"


def test_a_judge_that_prefers_what_is_longer(file):
    found = judged(Planted(longer), PAIRS, Transcript(file, HERE))
    assert found["counts"][OVERALL] == {"win": 3, "tie": 3, "lose": 3}
    assert (found["unparsed"], found["turned"], found["asked"], found["first"]) == (0, 0, 18, 0.5)


def test_a_judge_that_prefers_what_stands_first(file):
    found = judged(Planted(lambda asked: lines(5, 1)), PAIRS, Transcript(file, HERE))
    assert found["counts"][OVERALL] == {"win": 0, "tie": 9, "lose": 0}
    assert (found["turned"], found["first"]) == (9, 1.0)


def test_what_cannot_be_read_is_counted_and_counts_for_nobody(file):
    def moody(asked):
        return "I cannot say." if "question 0?" in asked or "question 8?" in asked else longer(asked)

    found = judged(Planted(moody), PAIRS, Transcript(file, HERE))
    assert found["unparsed"] == 4 and found["counts"][OVERALL] == {"win": 2, "tie": 3, "lose": 2}


def test_nothing_is_asked_twice_and_a_judgement_that_stopped_goes_on(file):
    with pytest.raises(RunError):
        judged(Planted(longer, most=5), PAIRS, Transcript(file, HERE))
    with file.open("a") as stream:
        stream.write('{"key": "torn')  # as a process leaves it that is killed while it writes
    second = Planted(longer)
    found = judged(second, PAIRS, Transcript(file, HERE))
    assert found["counts"][OVERALL] == {"win": 3, "tie": 3, "lose": 3}
    every = {asked for one in PAIRS for asked in one.prompts}
    assert len(second.asked) == len(every) - 5
    assert judged(third := Planted(longer), PAIRS, Transcript(file, HERE)) == found and third.asked == []
    told = [json.loads(line) for line in file.read_text().splitlines()]
    assert {row["prompt"] for row in told} == every and all(row["judge"] == {"model": "planted"} for row in told)


def test_a_verdict_that_is_refused_is_told_apart_and_asked_for_again(file):
    refusing = Planted(lambda asked: None if "question 0?" in asked else longer(asked))
    found = judged(refusing, PAIRS, Transcript(file, HERE))
    assert (found["refused"], found["unparsed"], found["counts"][OVERALL]["win"]) == (2, 0, 3)
    again = Planted(longer)
    found = judged(again, PAIRS, Transcript(file, HERE))
    assert (found["refused"], len(again.asked)) == (0, 2)


def test_another_judge_is_asked_anew(file):
    judged(Planted(longer), PAIRS, Transcript(file, HERE))
    other = Planted(longer)
    other.described = {"model": "another"}
    assert len(open_prompts(other, PAIRS, Transcript(file, HERE))) == len({p for one in PAIRS for p in one.prompts})


def test_a_file_that_is_no_transcript_is_named_and_left_alone(file):
    file.parent.mkdir()
    file.write_text('{"other": 1}\n')
    with pytest.raises(CheckpointError, match=r"one\.jsonl:1"):
        Transcript(file, HERE)
    assert file.read_text() == '{"other": 1}\n'


def test_lines_end_at_line_feeds_alone(file):
    odd = [Compared("what\u2028is\x85this?", "a", "b")]
    judged(Planted(longer), odd, Transcript(file, HERE))
    again = Planted(longer)
    judged(again, odd, Transcript(file, HERE))
    assert again.asked == []


def test_a_transcript_in_another_encoding_is_named(file):
    file.parent.mkdir()
    file.write_bytes(b'{"key": "a", "answer": "caf\xe9"}\n')
    with pytest.raises(CheckpointError, match="this is not a verdict"):
        Transcript(file, HERE)

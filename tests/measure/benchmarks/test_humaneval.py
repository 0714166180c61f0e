"""Functions that a model writes, judged by their tests."""

import pytest

from murmura.data.layout import BadValueError
from murmura.data.records import Instruction, Program
from murmura.errors import ConfigError
from murmura.measure.benchmarks import HumanEval, humaneval, sandbox
from murmura.measure.benchmarks.config import HumanEvalConfig

PROMPT = 'def double(x):\n    """Twice x."""\n'
QUESTION = Program(PROMPT, "def check(candidate):\n    assert candidate(2) == 4\n", "double")
COLUMNS = {name: name for name in ("prompt", "test", "entry_point")}


def benchmark(**options):
    return HumanEval(HumanEvalConfig(file="x", uncut=True, **options))


def judged(answers, **options):
    verdicts = benchmark(seconds=2, **options).judge([QUESTION] * len(answers), answers)
    assert [one.right for one in verdicts] == [one.outcome == "right" for one in verdicts]
    return [one.outcome for one in verdicts]


def test_answers_are_run_with_their_tests():
    whole = f"Sure:\n```python\n{PROMPT}    return 2 * x\n```"
    answers = [whole, "    return x + x", "    return x", "    return y", "It is twice x, isn't it?"]
    assert judged(answers) == ["right", "right", "wrong", "error", "not Python"]


def test_the_published_form_goes_on_behind_the_prompt_and_ends_where_the_function_does():
    assert judged(["    return 2 * x", "return 2 * x"], form="plain") == ["right", "not Python"]
    assert "\ndef" in benchmark(form="plain").stop and "\ndef" not in benchmark().stop
    assert benchmark(form="plain").plain(QUESTION) == PROMPT
    assert benchmark().instruction(QUESTION) == Instruction(f"Create a Python script for this problem:\n{PROMPT}")


def test_programs_are_bounded_as_the_options_say(monkeypatch):
    seen = []
    monkeypatch.setattr(sandbox, "outcomes", lambda trials, limits: seen.append(limits) or ["too long"])
    assert judged(["    return x"], memory=100)[0] == "too long"
    assert seen == [sandbox.SandboxLimits(2, 100 * 2**20, True)]


def test_it_is_refused_where_programs_are_not_cut_off_unless_that_is_accepted(monkeypatch, capsys):
    monkeypatch.setattr(humaneval.sandbox, "is_cut", lambda: False)
    with pytest.raises(ConfigError, match="does not keep them from the network") as caught:
        HumanEval(HumanEvalConfig(file="x")).prepare()
    assert "uncut = true" in str(caught.value)
    benchmark().prepare()
    assert "does not keep them from the network, other processes" in " ".join(capsys.readouterr().err.split())
    monkeypatch.setattr(humaneval.sandbox, "is_cut", lambda: True)
    benchmark().prepare()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"entry_point": "triple"}, "'entry_point' does not name a function of 'prompt'"),
        ({"entry_point": "two words"}, "does not name a function"),
        ({"test": "def check(candidate:"}, "'test' is not Python"),
        ({"test": "assert double(2) == 4"}, "'test' defines no function 'check'"),
    ],
)
def test_a_problem_that_could_not_be_judged_is_bad(change, why):
    fields = {"prompt": QUESTION.prompt, "test": QUESTION.test, "entry_point": QUESTION.entry_point}
    assert benchmark().checked(Program(**fields), COLUMNS) == QUESTION
    with pytest.raises(BadValueError, match=why):
        benchmark().checked(Program(**fields | change), COLUMNS)

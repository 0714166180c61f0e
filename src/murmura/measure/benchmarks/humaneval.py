"""HumanEval (Chen et al. 2021): functions in Python, judged by their tests."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from murmura.data.layout import BadValueError
from murmura.data.records import Instruction, Program
from murmura.errors import ConfigError
from murmura.measure.benchmarks import sandbox
from murmura.measure.benchmarks.benchmark import Benchmark, Verdict
from murmura.measure.benchmarks.config import HumanEvalConfig
from murmura.measure.benchmarks.programs import program
from murmura.measure.figure import SHARE, Drawn, Figure
from murmura.progress import say

# Where a function that goes on behind its beginning is over (Chen et al. 2021).
_OVER = ("\nclass", "\ndef", "\n#", "\nif", "\nprint")


class HumanEval(Benchmark[HumanEvalConfig]):
    """pass@1 of greedy answers: the share of problems whose program passes its test."""

    name = "humaneval"
    options = HumanEvalConfig
    kind = Program
    outcomes = sandbox.OUTCOMES
    runs_programs = True

    def __init__(self, config: HumanEvalConfig) -> None:
        super().__init__(config)
        self.stop = _OVER if config.form == "plain" else Benchmark.stop

    @classmethod
    def figures(cls) -> tuple[Figure, ...]:
        return (
            Figure(
                key="humaneval",
                title="HumanEval, pass@1",
                short="HumanEval\npass@1",
                unit=SHARE,
                meaning="The share of functions in Python that pass their test as the model writes them, with one try "
                "at each, of the likeliest tokens (Chen et al. 2021). The small print gives the number of functions "
                "(n) and a 95 % interval (Wilson’s).",
                better="higher",
                column="measured",
                line=True,
                drawn=Drawn("share (0 to 1)"),
            ),
        )

    def prepare(self) -> None:
        if sandbox.is_cut():
            return
        if self.config.uncut:
            say(f"programs that the model writes are run, and this system does not keep them from {sandbox.NOT_CUT}")
        else:
            raise ConfigError(
                f"programs that the model writes would be run, and this system does not keep them from "
                f"{sandbox.NOT_CUT}",
                where="evaluation.benchmarks.humaneval",
                fix="Run it on Linux (x86-64 or ARM 64), in a container or a machine with nothing to lose, or accept "
                "it: uncut = true.",
            )

    def checked(self, question: Program, columns: Mapping[str, str]) -> Program:
        if not question.entry_point.isidentifier() or f"def {question.entry_point}(" not in question.prompt:
            raise BadValueError(
                f"'{columns['entry_point']}' does not name a function of '{columns['prompt']}'",
                f"'{columns['prompt']}' holds the line 'def NAME(...', and '{columns['entry_point']}' its name",
            )
        try:
            defined = ast.parse(question.test).body
        except (SyntaxError, ValueError):
            raise BadValueError(
                f"'{columns['test']}' is not Python", "It defines check(candidate), which asserts what must hold"
            ) from None
        if not any(isinstance(one, ast.FunctionDef) and one.name == "check" for one in defined):
            raise BadValueError(
                f"'{columns['test']}' defines no function 'check'", "It is given the candidate: def check(candidate)"
            )
        return question

    def instruction(self, question: Program) -> Instruction:
        return Instruction(f"Create a Python script for this problem:\n{question.prompt}")

    def plain(self, question: Program) -> str:
        return question.prompt

    def judge(self, questions: Sequence[Program], answers: Sequence[str]) -> list[Verdict]:
        """Run the programs, which takes ``seconds`` of the options for each at most."""
        limits = sandbox.SandboxLimits(self.config.seconds, self.config.memory * 2**20, self.config.uncut)
        trials = [
            sandbox.ProgramRun(self._program(question, answer), question.test, question.entry_point)
            for question, answer in zip(questions, answers, strict=True)
        ]
        return [Verdict(outcome == "right", outcome) for outcome in sandbox.outcomes(trials, limits)]

    def _program(self, question: Program, answer: str) -> str:
        return question.prompt + answer if self.config.form == "plain" else program(question, answer)

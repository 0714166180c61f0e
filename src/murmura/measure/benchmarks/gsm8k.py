"""GSM8K (Cobbe et al. 2021): word problems from primary school, judged by the number that an answer ends in."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal

from murmura.data.layout import BadValueError
from murmura.data.records import Instruction
from murmura.measure.benchmarks.benchmark import UNPARSED, Benchmark, Verdict
from murmura.measure.benchmarks.config import GSM8KConfig
from murmura.measure.figure import SHARE, Drawn, Figure

_NUMBER = re.compile(
    r"(?P<sign>(?<![\w.)])[-−](?=[$€£.0-9]))?[$€£]?\s?(?P<digits>(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+)"
)
_MARKED = re.compile(r"#{4,}(?:[^\S\n]|[*:$€£\\])*(?=(?P<rest>[^\n]*))")
_SAID = re.compile(r"\banswer\s+is\b:?(?P<rest>[^\n]*)", re.IGNORECASE)


def final_number(answer: str) -> Decimal | None:
    """The number that an answer comes to, or None where it holds no number.

    It is the number right behind the first ``####`` that has one there, as in GSM8K's own solutions and unlike the
    heading "#### Step 1"; else the first one behind the first "answer is" on its line, as solutions of MathInstruct
    end; else the last number of all. Signs of currency, commas between thousands and what follows the number are passed
    over: "$1,200.00 a day." is 1200. A minus belongs to the number only where no space parts them: "7 - 5" ends in 5,
    and the item "- 18" of a list is 18.
    """
    if number := _marked(answer):
        return _value(number)
    for found in _SAID.finditer(answer):
        if number := _NUMBER.search(found["rest"]):
            return _value(number)
    numbers = list(_NUMBER.finditer(answer))
    return _value(numbers[-1]) if numbers else None


def _marked(answer: str) -> re.Match[str] | None:
    return next(filter(None, (_NUMBER.match(found["rest"]) for found in _MARKED.finditer(answer))), None)


def _value(number: re.Match[str]) -> Decimal:
    value = Decimal(number["digits"].replace(",", ""))
    return -value if number["sign"] else value


class GSM8K(Benchmark[GSM8KConfig]):
    """Exact match of the final number: 42, 42.0 and $42 are the same."""

    name = "gsm8k"
    options = GSM8KConfig
    kind = Instruction
    outcomes = ("right", "wrong", UNPARSED)
    stop = (*Benchmark.stop, "\nQuestion:")

    @classmethod
    def figures(cls) -> tuple[Figure, ...]:
        return (
            Figure(
                key="gsm8k",
                title="GSM8K, right answers",
                short="GSM8K",
                unit=SHARE,
                meaning="The share of word problems whose solution, as the model writes it, comes to the right number "
                "(Cobbe et al. 2021). The small print gives the number of problems (n) and a 95 % interval (Wilson’s).",
                better="higher",
                column="measured",
                line=True,
                drawn=Drawn("share (0 to 1)", shows="right answers"),
            ),
            Figure(
                key="gsm8k_parsed",
                title="GSM8K, answers with a number",
                short="GSM8K,\nparsed",
                unit=SHARE,
                meaning="The share of the model’s solutions in which a number was found that could be judged.",
                better="higher",
                column="measured",
                drawn=Drawn(beside="gsm8k", shows="answers with a number"),
            ),
        )

    def checked(self, question: Instruction, columns: Mapping[str, str]) -> Instruction:
        if not _marked(question.output):
            raise BadValueError(
                f"'{columns['output']}' has no line with '####' and a number",
                "Its last line is the right number: '#### 42'",
            )
        return question

    def instruction(self, question: Instruction) -> Instruction:
        return Instruction(question.instruction, question.input)

    def plain(self, question: Instruction) -> str:
        return f"Question: {question.question}\nAnswer:"

    def judge(self, questions: Sequence[Instruction], answers: Sequence[str]) -> list[Verdict]:
        return [self._verdict(question, answer) for question, answer in zip(questions, answers, strict=True)]

    def _verdict(self, question: Instruction, answer: str) -> Verdict:
        number = final_number(answer)
        right = number is not None and number == final_number(question.output)
        return Verdict(right, UNPARSED if number is None else "right" if right else "wrong")

"""Questions whose options stand under letters, behind examples with their answers, as MMLU asks them (Hendrycks et al.
2021)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from string import ascii_uppercase

from murmura.data.files import stem
from murmura.data.hub import is_hub_id
from murmura.data.records import Choice

MOST = len(ascii_uppercase)
"""Most options that have letters."""


def lettered(question: Choice, subject: str, examples: Sequence[Choice] = ()) -> Choice:
    """The question with its options in it, to be answered by a letter.

    Args:
        question: with at most ``MOST`` options.
        subject: what it is about, for the line that opens the prompt.
        examples: questions that stand before it with the letters of their answers.
    """
    opening = f"The following are multiple choice questions (with answers) about {subject}."
    answered = [f"{_shown(one)} {ascii_uppercase[one.answer]}" for one in examples]
    letters = tuple(ascii_uppercase[: len(question.options)])
    return Choice("\n\n".join([opening, *answered, _shown(question)]), "", letters, question.answer)


def _shown(question: Choice) -> str:
    asked = f"{question.instruction}\n{question.input}" if question.input else question.instruction
    options = (f"{letter}. {option}" for letter, option in zip(ascii_uppercase, question.options, strict=False))
    return "\n".join([asked, *options, "Answer:"])


def subject_of(source: str) -> str:
    """What the questions of a file are about, by its name or by the configuration of a hub data set: ``anatomy`` of
    ``cais/mmlu:anatomy``, ``college biology`` of ``mmlu/college_biology.csv``."""
    name = source.rpartition(":")[2] if is_hub_id(source) else stem(Path(source))
    return name.rpartition("/")[2].replace("_", " ").replace("-", " ")

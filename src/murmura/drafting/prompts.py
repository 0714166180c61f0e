"""The two prompts, and how what comes back is read (Zhang et al. 2024, arXiv 2403.06131).

Both are plain texts to be continued, for every model: no chat template stands around them.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from murmura.data.records import Instruction
from murmura.generation.loops import complete_sentences, whole

INSTRUCTION_STOP = ("\nTask", "\n\n")
EXAMPLE_STOP = ("\nTask:",)

_ASK_FOR_TASKS = "Write a series of different tasks."
_ASK_FOR_EXAMPLES = (
    "Write an example for each task: first its input, and then the response. Where the task needs no input, write None "
    "as the input."
)
_ASK_FOR_RESPONSES = "Write a response to each task."
_NO_INPUT = "None"
_NO_INPUT_WORDS = {"", "none", "no", "n/a", "no input", "not needed"}
_EXAMPLE = re.compile(
    r"\s*Input:(?:\s*Input:)?(?P<input>.*?)^\s*Response:(?:\s*Response:)?(?P<output>.*)", re.DOTALL | re.MULTILINE
)
_REPEATED_TASK = re.compile(r"\A\s*Task \d+:")
_NEXT_MARKER = re.compile(r"\n\s*(?:Task(?: \d+)?|Input|Response):")


def instruction_prompt(shown: Sequence[str]) -> str:
    """Prompt (a): the site's instructions as ``Task 1:`` to ``Task n:``, then ``Task n+1:`` to be completed."""
    tasks = "".join(f"Task {i}: {one_line(text).rstrip(':')}\n" for i, text in enumerate(shown, 1))
    return f"{_ASK_FOR_TASKS}\n\n{tasks}Task {len(shown) + 1}:"


def example_prompt(shown: Sequence[Instruction], task: str, inputs: bool) -> str:
    """Prompt (b): the site's records as demonstrations, then the new task whose input and response are wanted.

    It ends in the first marker of the answer: a model that was tuned to answer leaves it out.

    Args:
        inputs: whether any record of the site has one. Where none has, no draft gets one.
    """
    if not inputs:
        answered = "".join(f"Task: {one_line(r.instruction)}\nResponse: {_block(r.output)}\n\n" for r in shown)
        return f"{_ASK_FOR_RESPONSES}\n\n{answered}Task: {one_line(task)}\nResponse:"
    demonstrations = "".join(
        f"Task: {one_line(r.instruction)}\nInput: {_block(r.input) or _NO_INPUT}\nResponse: {_block(r.output)}\n\n"
        for r in shown
    )
    return f"{_ASK_FOR_EXAMPLES}\n\n{demonstrations}Task: {one_line(task)}\nInput:"


def alternating(records: Sequence[Instruction], count: int, rng: random.Random) -> list[Instruction]:
    """``count`` records at random, with and without input by turns; where one kind runs out, the other fills up.

    Of an odd number one kind gets more. Which one is drawn, so that a single record is any of them alike.
    """
    kinds = [[r for r in records if r.input], [r for r in records if not r.input]]
    if count % 2 and all(kinds) and rng.randrange(len(records)) >= len(kinds[0]):
        kinds.reverse()
    for kind in kinds:
        rng.shuffle(kind)
    chosen: list[Instruction] = []
    while len(chosen) < min(count, len(records)):
        kinds = [kind for kind in kinds if kind]
        for kind in kinds:
            chosen.append(kind.pop())
    return chosen[:count]


def read_instruction(text: str, finished: bool) -> tuple[str, bool]:
    """The new instruction, which is the first line that is not empty, and whether it is complete.

    Where the line was cut off, its complete sentences are the instruction, if it has any. A marker that repeats that of
    the prompt is no part of it.
    """
    first, _, rest = _REPEATED_TASK.sub("", text).lstrip().partition("\n")
    if finished or rest:
        return one_line(first), True
    sentences = complete_sentences(first)
    return one_line(sentences or first), bool(sentences)


def read_example(task: str, text: str, finished: bool, inputs: bool) -> Instruction | None:
    """The record that was written for ``task`` where the prompt ended; None where it lacks the marker that was asked
    for after the input, or a response.

    An input of "None" or the like, or of nothing, means that the task needs none. An unfinished response keeps its
    complete sentences. A model may repeat a marker once, the one that the prompt ends in too: that is no part of the
    record.
    """
    found = _EXAMPLE.match(f"Input:{text}" if inputs else f"Input:\nResponse:{text}")
    if found is None:
        return None
    given = found["input"].strip()
    output, *more = _NEXT_MARKER.split(found["output"])
    output = whole(output, finished or bool(more))
    if not output:
        return None
    return Instruction(task, "" if given.lower().rstrip(".") in _NO_INPUT_WORDS else given, output)


def one_line(text: str) -> str:
    """The text with each run of white space as one space."""
    return " ".join(text.split())


def _block(text: str) -> str:
    """The text without blank lines, since these stand between demonstrations."""
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())

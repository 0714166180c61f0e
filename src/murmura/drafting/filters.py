"""What is dropped of what a model wrote, and why: every rule has a name under which it is counted."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from murmura.data.records import Instruction
from murmura.drafting.prompts import one_line
from murmura.drafting.rejections import Rejection
from murmura.measure.text import References
from murmura.words import count_words

_REFUSAL = re.compile(r"(as an?|sorry|i[’']m sorry)\b", re.IGNORECASE)
_KEYWORD = re.compile(r"\b(images?|graphs?|pictures?|files?|maps?|draw|plot|go to)\b", re.IGNORECASE)
_FEWEST_WORDS, _MOST_WORDS = 4, 150  # of an instruction
_FEWEST_TOKENS = 3  # of a response


def format_fault(instruction: str, complete: bool, alpaca_filters: bool, *, in_ascii: bool = True) -> Rejection | None:
    """The first rule that a new instruction breaks, or None (Wang et al. 2023, Self-Instruct, §2.3).

    Args:
        instruction: in one line.
        complete: False where the model was cut off before its end.
        alpaca_filters: also the two rules for data like Alpaca's.
        in_ascii: it must begin in ASCII, as all of Self-Instruct's do.
    """
    words, start = count_words(instruction), instruction[:1]
    rules: dict[Rejection, object] = {
        "empty": not instruction,
        "unfinished": not complete,
        "refusal": _REFUSAL.match(instruction),
        "too_short": words < _FEWEST_WORDS,
        "too_long": words > _MOST_WORDS,
        "bad_start": _is_punctuation(start) or (in_ascii and not start.isascii()),
        "keyword": alpaca_filters and _KEYWORD.search(instruction),
        "program": alpaca_filters and instruction.startswith("Write a program"),
    }
    return next((name for name, broken in rules.items() if broken), None)


def _is_punctuation(letter: str) -> bool:
    return letter != "" and unicodedata.category(letter)[0] in "PS"  # of ASCII just those of string.punctuation


def response_fault(draft: Instruction, tokens: int, threshold: float) -> Rejection | None:
    """The first rule that a draft's response breaks, or None.

    A response that says its question again, or the input, is an ``echo``: it is likely after its prompt and unlikely
    without, so that IFS would rank it first.

    Args:
        draft: with its response.
        tokens: of the response.
        threshold: of ROUGE-L, above which a response counts as an echo.
    """
    if tokens < _FEWEST_TOKENS:
        return "short_response"
    questions = {draft.instruction, draft.input, draft.question} - {""}
    return "echo" if draft.output in Similar(questions, threshold) else None


class Similar:
    """Texts that a new one must not resemble: ROUGE-L F1 above a threshold (Zhang et al. 2024), or equal but for
    white space.

    Equality also catches a copy of a text that holds no letters.
    """

    def __init__(self, texts: Iterable[str], threshold: float) -> None:
        self._references, self._exact, self._threshold = References(), set[str](), threshold
        for text in texts:
            self.add(text)

    def add(self, text: str) -> None:
        self._references.add(text)
        self._exact.add(one_line(text))

    def __contains__(self, text: str) -> bool:
        return one_line(text) in self._exact or self._references.exceeds(text, self._threshold)


class Copies:
    """A site's own records, to tell whether a draft repeats one (Zhang et al. 2024), in question or response."""

    def __init__(self, records: Iterable[Instruction], threshold: float) -> None:
        records = list(records)
        self._questions = Similar((r.question for r in records), threshold)
        self._responses = Similar((r.output for r in records), threshold)

    def __contains__(self, draft: Instruction) -> bool:
        return draft.question in self._questions or draft.output in self._responses

"""What a judge is asked, and what of its answer counts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

ASPECTS = ("helpfulness", "relevance", "correctness", "coherence")
"""What answers are rated by, each from 1 to 5 (Zhang et al. 2024, appendix)."""
_PROMPT = """\
You compare two answers to the same question. Rate each answer from 1 (bad) to 5 (excellent) for each of:
- helpfulness: does it help whoever asked?
- relevance: is it about what was asked?
- correctness: is what it says true?
- coherence: is it clear and well put?
The order in which the answers stand must not matter, nor their length.

Write exactly four lines and nothing else, such as these for a question that only answer 2 understood:
helpfulness: 2 4
relevance: 1 5
correctness: 3 4
coherence: 4 4
The first number is for answer 1, the second one for answer 2.

[Question]
{question}

[Answer 1]
{first}

[Answer 2]
{second}

[End]
"""
_LINE = re.compile(
    r"^\W*({})\W*:?\W*([1-5])(?:\s*/\s*5)?[\s,;|]+([1-5])(?:\s*/\s*5)?\W*$".format("|".join(ASPECTS)), re.I | re.M
)


@dataclass(frozen=True, slots=True)
class Ratings:
    """What a judge gave two answers, by aspect, in the order in which it saw them."""

    first: Mapping[str, int]
    second: Mapping[str, int]

    @property
    def swapped(self) -> Ratings:
        """The same of the answers the other way round."""
        return Ratings(self.second, self.first)


def prompt(question: str, first: str, second: str) -> str:
    """What the judge is asked about two answers."""
    return _PROMPT.format(question=question, first=first or "(nothing)", second=second or "(nothing)")


def parse(answer: str) -> Ratings | None:
    """The ratings in a judge's answer; None unless every aspect is rated, once and for both answers.

    Nothing is guessed: a judge that rates three aspects, or one twice and differently, has given no verdict.
    """
    found: dict[str, set[tuple[int, int]]] = {}
    for name, first, second in _LINE.findall(answer):
        found.setdefault(name.lower(), set()).add((int(first), int(second)))
    if set(found) != set(ASPECTS) or any(len(given) > 1 for given in found.values()):
        return None
    pairs = {name: next(iter(found[name])) for name in ASPECTS}
    return Ratings({name: one for name, (one, _) in pairs.items()}, {name: other for name, (_, other) in pairs.items()})

"""Small models that decode greedily fall into a loop sooner or later: noticing it, and keeping what came before."""

from __future__ import annotations

import re

_CLAUSE_END = re.compile(r"[.!?,;:\n。！？，；：]+")
_SENTENCE_END = re.compile(r"[.!?。！？]+[\"'”’)]*(?=\s|$)|[。！？]+|\n+")
_NOT_A_LETTER = re.compile(r"[\W\d_]+")
_ENOUGH = 4  # times that a round of clauses begins before it counts as a loop


def goes_round(text: str) -> bool:
    """Whether the last complete clause begins the same round of clauses for the fourth time.

    Clauses are compared by their letters alone, so that a numbered list of one item over and over is a loop too. Greedy
    decoding hardly ever leaves one, so that writing can stop there. A clause that returns among others, as "Step 4:" or
    "No." do, is none.
    """
    clauses = [letters for clause in _CLAUSE_END.split(text)[:-1] if (letters := _letters(clause))]
    longest = (len(clauses) - 1) // (_ENOUGH - 1)
    ends = ((n, clauses[-(_ENOUGH - 1) * n - 1 :]) for n in range(1, longest + 1))
    return any(end[n:] == end[:-n] for n, end in ends)


def whole(text: str, finished: bool) -> str:
    """What can be trained on of a written text: all of it if the model ended it, else its complete sentences.

    Tokenising puts an end-of-sequence token behind every response, so half a sentence would teach a model to stop
    there.
    """
    return text.strip() if finished else complete_sentences(text)


def complete_sentences(text: str) -> str:
    """The beginning of an unfinished text: its complete sentences up to the first that repeats an earlier one."""
    return text[: max(sentence_ends(text), default=0)].strip()


def sentence_ends(text: str) -> list[int]:
    """Where each sentence ends that is complete, up to the first that repeats an earlier one."""
    seen: set[str] = set()
    ends, start = list[int](), 0
    for match in _SENTENCE_END.finditer(text):
        sentence = _letters(text[start : match.end()])
        start = match.end()
        if sentence in seen:
            break
        if sentence:  # not the bare number of a list's next item
            seen.add(sentence)
            ends.append(match.end())
    return ends


def _letters(text: str) -> str:
    return _NOT_A_LETTER.sub("", text).lower()

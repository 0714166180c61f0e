"""Text metrics: ROUGE-L, token F1 and distinct-n.

Scores of ROUGE-L are those of Google's `rouge_score` without stemming, to the last bit, and so are tokens of ASCII, so
that a filter at 0.7 decides as the published systems do. Other letters are no tokens there, and a copy of a text in
another script scores 0. Here they are.
"""

from __future__ import annotations

import re
import string
import sys
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from rapidfuzz.distance import LCSseq
from rapidfuzz.process import cdist

from murmura.errors import DataError
from murmura.words import apart

_LETTER = r"[^\W_a-z0-9]"
_MARKS = "\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0900-\u0963\u0966-\u0dff"  # accents, points, and signs from India
_TOKEN = re.compile(rf"[a-z0-9]+|{_LETTER}(?:{_LETTER}|[{_MARKS}])*")
_UNSEEN = "\0"
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def tokens(text: str) -> list[str]:
    """The maximal runs of a-z and 0-9 in the lower-cased text, and between them those of other letters and digits, with
    their marks; letters of scripts without spaces are tokens each. So "café" is two: "caf", as published, and "é"."""
    return _TOKEN.findall(apart(text.lower()))


def rouge_l(candidate: str, reference: str) -> float:
    """ROUGE-L F1 (Lin 2004): the harmonic mean of LCS / |candidate| and LCS / |reference|, in [0, 1], in tokens.

    0 if either text has no tokens. For one text against many, or many times the same reference, use `References`.
    """
    return References([reference]).best(candidate)


def answer_words(text: str) -> list[str]:
    """The words of an answer as SQuAD compares them (Rajpurkar et al. 2016): in lower case, without ASCII's punctuation
    and without articles; in scripts without spaces each letter, as MLQA (Lewis et al. 2020) has it for Chinese."""
    return _ARTICLE.sub(" ", apart(text.lower().translate(_PUNCTUATION))).split()


def token_f1(answer: str, reference: str) -> float:
    """The F1 of two bags of words (``answer_words``), in [0, 1]: what share of either the other has, in whatever order.

    Where one has no words it is 1 if neither has, else 0, as in SQuAD 2.0 (Rajpurkar et al. 2018).
    """
    own, other = answer_words(answer), answer_words(reference)
    if not own or not other:
        return float(own == other)
    return 2 * (Counter(own) & Counter(other)).total() / (len(own) + len(other))


def distinct(texts: Sequence[str], n: int) -> float:
    """Distinct-n (Li et al. 2016, "A Diversity-Promoting Objective Function", §5.1): the number of different runs of n
    tokens in texts, divided by the number of all their tokens, in [0, 1]; 0 where they have none. No run goes from one
    text into the next. It falls as texts become more, so compare as many.
    """
    words = [tokens(text) for text in texts]
    runs = {tuple(one[start : start + n]) for one in words for start in range(len(one) - n + 1)}
    return len(runs) / max(1, sum(map(len, words)))


class References:
    """Texts that candidates are compared with by ROUGE-L F1, each tokenised once.

    Each distinct token of the references becomes one character, so that a text is a string whose characters are words
    and rapidfuzz runs over all references in one call: 10,000 references of 100 tokens take milliseconds.

    Args:
        texts: The references; more can be added.

    Raises:
        DataError: The references hold more than a million distinct tokens.
    """

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._characters: dict[str, str] = {}
        self._texts: list[str] = []
        self._lengths = array("q")
        for text in texts:
            self.add(text)

    def __len__(self) -> int:
        return len(self._texts)

    def add(self, text: str) -> None:
        """Adds a reference."""
        words = tokens(text)
        for word in words:
            if word not in self._characters:
                if len(self._characters) == sys.maxunicode:
                    fix = "Compare with fewer texts at once."
                    raise DataError(f"the reference texts hold more than {sys.maxunicode} distinct words", fix=fix)
                self._characters[word] = chr(len(self._characters) + 1)  # 0 is _UNSEEN
        self._texts.append("".join(self._characters[word] for word in words))
        self._lengths.append(len(words))

    def best(self, candidate: str) -> float:
        """The highest ROUGE-L F1 of the candidate with any reference; 0 without references."""
        return self._best(self._spell(candidate), np.arange(len(self)))

    def exceeds(self, candidate: str, threshold: float) -> bool:
        """Whether `best(candidate) > threshold`, for a threshold of 0 or more.

        Texts of very different lengths cannot score high: the LCS is at most the shorter one. Only references whose
        lengths leave the question open are compared.
        """
        text = self._spell(candidate)
        lengths = np.asarray(self._lengths)
        possible = _f1(np.minimum(lengths, len(text)), len(text), lengths)
        return self._best(text, np.flatnonzero(possible > threshold)) > threshold

    def _spell(self, candidate: str) -> str:
        return "".join(self._characters.get(word, _UNSEEN) for word in tokens(candidate))

    def _best(self, text: str, among: np.ndarray) -> float:
        if not text or not among.size:
            return 0.0
        lcs = cdist([text], [self._texts[i] for i in among], scorer=LCSseq.similarity, dtype=np.int64)[0]
        return float(_f1(lcs, len(text), np.asarray(self._lengths)[among]).max())


def _f1(overlap: np.ndarray, candidate: int, references: np.ndarray) -> np.ndarray:
    """2PR / (P + R) of P = overlap / candidate and R = overlap / reference; 0 where nothing overlaps.

    Written as `rouge_score` computes it. 2 overlap / (candidate + reference) is the same number, but for its last bit.
    """
    precision, recall = overlap / max(candidate, 1), overlap / np.maximum(references, 1)
    return np.divide(2 * precision * recall, precision + recall, out=np.zeros(len(overlap)), where=overlap > 0)

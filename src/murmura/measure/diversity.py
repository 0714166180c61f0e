"""How diverse texts are: distinct-n."""

from __future__ import annotations

from collections.abc import Sequence

from murmura.measure.text import tokens


def distinct(texts: Sequence[str], n: int) -> float:
    """Distinct-n (Li et al. 2016, "A Diversity-Promoting Objective Function", §5.1): the number of different runs of n
    tokens in texts, divided by the number of all their tokens, in [0, 1]; 0 where they have none. Tokens are those of
    ``text.tokens``, and no run goes from one text into the next. It falls as texts become more, so compare as many.
    """
    words = [tokens(text) for text in texts]
    runs = {tuple(one[start : start + n]) for one in words for start in range(len(one) - n + 1)}
    return len(runs) / max(1, sum(map(len, words)))

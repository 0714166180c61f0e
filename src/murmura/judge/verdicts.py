"""Wins, ties and losses out of ratings in both orders, and what they say together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from murmura.judge.prompts import ASPECTS, Ratings

Outcome = Literal["win", "tie", "lose"]
OUTCOMES: tuple[Outcome, ...] = ("win", "tie", "lose")
OVERALL = "overall"
_WORTH = {"win": 1, "tie": 0, "lose": -1}


def compare(ratings: Ratings, aspect: str = OVERALL) -> Outcome:
    """Whether the first answer was rated higher: in one aspect, or in the mean of all four."""
    aspects = ASPECTS if aspect == OVERALL else (aspect,)
    ahead = sum(ratings.first[one] - ratings.second[one] for one in aspects)
    return "win" if ahead > 0 else "lose" if ahead < 0 else "tie"


def both_orders(one: Outcome, other: Outcome) -> Outcome:
    """The outcome of two orders, both seen from the same answer: a win is two wins or a win and a tie, a win and a
    loss are a tie (Zhang et al. 2024)."""
    worth = _WORTH[one] + _WORTH[other]
    return "win" if worth > 0 else "lose" if worth < 0 else "tie"


@dataclass(frozen=True, slots=True)
class JudgedPair:
    """What a judge made of one question: ratings of our answer and of the other one, as it saw ours first and as it saw
    ours second; None where it gave no verdict."""

    ours_first: Ratings | None
    ours_second: Ratings | None

    @property
    def whole(self) -> bool:
        return self.ours_first is not None and self.ours_second is not None

    def outcome(self, aspect: str = OVERALL) -> Outcome:
        """Of our answer. Only of a pair that is whole."""
        assert self.ours_first is not None and self.ours_second is not None
        return both_orders(compare(self.ours_first, aspect), compare(self.ours_second.swapped, aspect))

    @property
    def turned(self) -> bool:
        """Whether another order gave another outcome."""
        assert self.ours_first is not None and self.ours_second is not None
        return compare(self.ours_first) != compare(self.ours_second.swapped)


def counted(pairs: Iterable[JudgedPair]) -> dict[str, Any]:
    """What all questions that were asked come to: ``counts``, ``unparsed``, ``asked``, ``turned`` and ``first`` of a
    ``runs.judgement.Judgement``."""
    every = list(pairs)
    whole = [pair for pair in every if pair.whole]
    verdicts = [one for pair in every for one in (pair.ours_first, pair.ours_second)]
    found = {aspect: Counter(pair.outcome(aspect) for pair in whole) for aspect in (OVERALL, *ASPECTS)}
    settled = [compare(one) for one in verdicts if one is not None and compare(one) != "tie"]
    return {
        "counts": {aspect: {outcome: own[outcome] for outcome in OUTCOMES} for aspect, own in found.items()},
        "unparsed": sum(one is None for one in verdicts),
        "asked": len(verdicts),
        "turned": sum(pair.turned for pair in whole),
        "first": settled.count("win") / len(settled) if settled else None,
    }

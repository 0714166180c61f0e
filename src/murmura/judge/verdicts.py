"""Wins, ties and losses out of ratings in both orders, and what they say together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from murmura.judge.prompts import ASPECTS, Ratings
from murmura.measure.figure import interval

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
class Pair:
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


@dataclass(frozen=True)
class Standing:
    """Our answers against the others', over all questions with a verdict in both orders.

    Attributes:
        counts: of wins, ties and losses, by aspect and overall.
        unparsed: verdicts that could not be read.
        asked: verdicts that were asked for, two for each question.
        turned: questions whose outcome changed with the order.
        first: of verdicts that were no tie, the share that the answer that stood first won; None where all were ties.
    """

    counts: dict[str, dict[Outcome, int]]
    unparsed: int
    asked: int
    turned: int
    first: float | None

    @classmethod
    def of(cls, pairs: Iterable[Pair]) -> Standing:
        """Of all questions that were asked."""
        every = list(pairs)
        whole = [pair for pair in every if pair.whole]
        verdicts = [one for pair in every for one in (pair.ours_first, pair.ours_second)]
        counts: dict[str, dict[Outcome, int]] = {}
        for aspect in (OVERALL, *ASPECTS):
            found = Counter(pair.outcome(aspect) for pair in whole)
            counts[aspect] = {outcome: found[outcome] for outcome in OUTCOMES}
        settled = [compare(one) for one in verdicts if one is not None and compare(one) != "tie"]
        return cls(
            counts,
            sum(one is None for one in verdicts),
            len(verdicts),
            sum(pair.turned for pair in whole),
            settled.count("win") / len(settled) if settled else None,
        )

    @property
    def n(self) -> int:
        """Questions with a verdict in both orders."""
        return sum(self.counts[OVERALL].values())

    def share(self, outcomes: Sequence[Outcome], aspect: str = OVERALL) -> tuple[float, float, float]:
        """How often it came to one of them, with the ends of the 95 % interval (Wilson 1927). ``["win", "tie"]`` is the
        paper's WT. Only where there is a verdict."""
        hits = sum(self.counts[aspect][outcome] for outcome in outcomes)
        share = float(Fraction(hits, self.n))
        return (share, *interval(share, self.n))

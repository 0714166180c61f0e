"""What a judge made of a run's answers (``murmura judge``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

HERE = "here"
BEFORE = "its model before training"


@dataclass(frozen=True, slots=True)
class Judgement:
    """A file ``judged/NAME.json``: the run's answers against others.

    Attributes:
        against: Whose they were: another run, or the model before training (``BEFORE``).
        judge: The model that judged.
        where: Where it was: ``HERE``, or the addresses of servers that were asked.
        questions: How many were asked.
        private: Whether the questions came out of the sites' records.
        source: Where these come from: held out, or the name of a file.
        counts: Of questions with a verdict in both orders, how many were a ``win``, ``tie`` or ``lose`` for the run, by
            aspect and ``overall``.
        unparsed: Verdicts that could not be read.
        refused: Verdicts that the judge's server would not give, or a judge here had no room for.
        asked: Verdicts that were asked for, two for each question.
        turned: Questions whose outcome changed with the order of the answers.
        first: Of verdicts that were no tie, the share that the answer that stood first won; None where all were ties.
        site: Whose own adapter has answered; None where an adapter of all sites has.
    """

    against: str
    judge: str
    where: str
    questions: int
    counts: Mapping[str, Mapping[str, int]]
    unparsed: int
    asked: int
    turned: int
    first: float | None
    private: bool
    source: str = ""
    refused: int = 0
    site: str | None = None

    @property
    def is_against_run(self) -> bool:
        """Whether another run has answered."""
        return self.against.removesuffix(f", at site {self.site}") != BEFORE


@dataclass(frozen=True, slots=True)
class Posted:
    """An entry of ``endpoints.json``: that questions were sent to a server, with two answers to each.

    Attributes:
        where: The address of the server.
        private: Whether the questions came out of the sites' records.
        site: Whose own adapter has answered; None where an adapter of all sites has.
    """

    where: str
    private: bool
    site: str | None = None

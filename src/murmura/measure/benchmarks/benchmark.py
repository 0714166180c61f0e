"""A benchmark: what is asked, how much may be written, and how an answer is judged."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from murmura.data.records import Instruction
from murmura.measure.benchmarks.config import BenchmarkConfig
from murmura.measure.figure import Figure

C = TypeVar("C", bound=BenchmarkConfig)

UNPARSED = "no answer found"
"""The outcome of an answer in which nothing is found that could be judged."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether an answer counts as right, and its outcome in a word or two."""

    right: bool
    outcome: str


class Benchmark(ABC, Generic[C]):
    """Questions of one kind, asked of a model that answers in its own words.

    Args:
        config: its options.

    Attributes:
        name: what its table and its figure are called.
        options: what kind of section its options are.
        kind: what a question is: a record of ``murmura.data.records``.
        outcomes: what can become of an answer.
        stop: strings that end an answer.
        runs_programs: whether what a model wrote, and what comes with a question, is run to judge it.
    """

    name: ClassVar[str]
    options: ClassVar[type[BenchmarkConfig]]
    kind: ClassVar[Any]
    outcomes: ClassVar[tuple[str, ...]]
    stop: tuple[str, ...] = ("\n### Instruction:",)
    runs_programs: ClassVar[bool] = False

    def __init__(self, config: C) -> None:
        self.config = config

    @classmethod
    @abstractmethod
    def figures(cls) -> tuple[Figure, ...]:
        """Its entries in the catalogue of figures, the share of right answers first. Where there is a second one, it is
        the share of answers in which an answer was found."""

    def prepare(self) -> None:
        """Find out whether answers can be judged here, before any is written.

        Raises:
            ConfigError: they cannot.
        """

    @abstractmethod
    def checked(self, question: Any, columns: Mapping[str, str]) -> Any:
        """A question that was read, as it is asked.

        Args:
            columns: field to column, for messages.

        Raises:
            BadValueError: it cannot be asked.
        """

    def guess(self, questions: Sequence[Any]) -> float | None:
        """The share of right answers that can be had without skill, of at least one question; None where it is next to
        none, or not known."""
        return None

    @abstractmethod
    def instruction(self, question: Any) -> Instruction:
        """The question for the run's template."""

    @abstractmethod
    def plain(self, question: Any) -> str:
        """The question as it was published."""

    @abstractmethod
    def judge(self, questions: Sequence[Any], answers: Sequence[str]) -> list[Verdict]:
        """Judge what was written behind each question."""

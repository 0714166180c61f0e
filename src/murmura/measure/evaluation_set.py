"""What the server measures with: records that no site trains on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from murmura.data.records import KINDS, Choice, digest
from murmura.federation.wire.messages import Ask
from murmura.measure import choices
from murmura.measure.benchmarks import benchmark_set
from murmura.measure.benchmarks.benchmark_set import BenchmarkSet
from murmura.measure.harness.tasks import HarnessSet
from murmura.measure.labelled import Validation
from murmura.measure.reader import Reader
from murmura.model_runtime import ModelRuntime
from murmura.runs.schema import MeasuredOn, RecordSet
from murmura.training.adapter import State

if TYPE_CHECKING:
    from murmura.federation.site.site import Site
    from murmura.tasks.task import Task

Figures = dict[str, Any]
"""Figures by name: numbers, or None; ``calibration`` holds the bins of a plot, ``confusion`` and ``answers`` tables of
counts."""


@dataclass(frozen=True)
class EvaluationSet:
    """Public records. They are the server's; a site is sent those that it is to measure its own adapter with.

    Attributes:
        task: the kind of record that the run is about.
        heldout: records of that kind, at least one.
        nonmembers: records like the sites' own, to compare attacks on members with; the held-out ones if empty.
        validation: labelled records that decide what patterns are worth. They stay with the server; a site has none.
        choices: questions with options.
        benchmarks: questions that are answered in the model's own words.
        harness: tasks of lm-evaluation-harness.
        asks: what all these questions ask, in the words that a record with the same question would have.
        sample: how many held-out questions the model also answers.
    """

    task: Task
    heldout: Sequence[Any]
    nonmembers: Sequence[Any] = ()
    validation: Validation = field(default_factory=Validation)
    choices: Sequence[Choice] = ()
    benchmarks: Sequence[BenchmarkSet] = ()
    harness: HarnessSet | None = None
    asks: Sequence[str] = ()
    sample: int = 16

    def __post_init__(self) -> None:
        object.__setattr__(self, "nonmembers", self.nonmembers or self.heldout)

    @cached_property
    def reader(self) -> Reader:
        """What reads them, for losses and attacks alike."""
        return Reader(self.task.token_scores)

    @property
    def subjects(self) -> list[str]:
        """What the run is measured with, in the words that a record with the same question would have."""
        return [*(one.subject for one in (*self.heldout, *self.nonmembers)), *self.asks]

    def measure(
        self, runtime: ModelRuntime, adapters: Sequence[State], *, completes: bool = False, poses: bool = True
    ) -> list[Figures]:
        """Figures of each adapter on the held-out records, and on questions of other kinds if there are any.

        Args:
            completes: as many non-members are completed too, to compare memorisation with.
            poses: benchmarks are measured too.
        """
        figures = self.task.measure(runtime, self, adapters, completes=completes)
        if self.choices:
            asked = choices.measure(runtime, adapters, self.choices)
            figures = [one | more for one, more in zip(figures, asked, strict=True)]
        if self.benchmarks and poses:
            asked = benchmark_set.measure(runtime, adapters, self.benchmarks)
            figures = [one | more for one, more in zip(figures, asked, strict=True)]
        if self.harness and poses:
            asked = self.harness.measure(runtime, adapters)
            figures = [one | more for one, more in zip(figures, asked, strict=True)]
        return figures

    def to_payload(self, *, completes: bool = False, poses: bool = True) -> dict[str, Any]:
        """What a site needs to ``measure``, as a payload; no task of the harness, which a site would run code of."""
        others = self.nonmembers if completes and self.nonmembers is not self.heldout else ()
        return {
            "sample": self.sample,
            "completes": completes,
            "heldout": [asdict(record) for record in self.heldout],
            "nonmembers": [asdict(record) for record in others],
            "choices": [asdict(question) | {"options": list(question.options)} for question in self.choices],
            "benchmarks": [one.to_payload() for one in self.benchmarks] if poses else [],
        }

    def measured(self, *, secret: bool) -> MeasuredOn:
        """What is measured on, for the run's folder.

        Args:
            secret: some of the records were private, and the run promises an ε: nothing but their number is told.
        """
        heldout, nonmembers = (record_set(records, secret=secret) for records in (self.heldout, self.nonmembers))
        asked = _questions(self.choices, self.benchmarks) + (self.harness.questions if self.harness else [])
        return MeasuredOn(heldout, nonmembers, record_set(asked, secret=False))

    @classmethod
    def from_payload(cls, task: Task, payload: Mapping[str, Any] | Ask) -> EvaluationSet:
        """The records of ``to_payload``, from an ask that may hold more, for records of a kind."""
        made = KINDS[task.kind]
        records, others = ([made(**fields) for fields in payload[name]] for name in ("heldout", "nonmembers"))
        asked = [Choice(**fields | {"options": tuple(fields["options"])}) for fields in payload["choices"]]
        benchmarks = [BenchmarkSet.from_payload(one) for one in payload["benchmarks"]]
        return cls(task, records, others, choices=asked, benchmarks=benchmarks, sample=payload["sample"])


def brought(site: Site, task: Task, verb: str, fields: Sequence[Mapping[str, Any]]) -> list[Any]:
    """The public records that an ask brings a site, by their fields.

    Raises:
        RefusedError: they are others than the site's federation has agreed on.
    """
    records = [KINDS[task.kind](**one) for one in fields]
    site.require_agreed(verb, digests(records))
    return records


def digests(
    records: Iterable[Any], choices: Sequence[Choice] = (), benchmarks: Sequence[BenchmarkSet] = ()
) -> Iterator[str]:
    """Of each record and question that is measured on, by which a site knows those that its federation has agreed on
    (``Site.require_agreed``)."""
    return (digest([one]) for one in (*(record.identity for record in records), *_questions(choices, benchmarks)))


def _questions(choices: Sequence[Choice], benchmarks: Sequence[BenchmarkSet]) -> list[Any]:
    return [*choices, *((one.benchmark.name, question) for one in benchmarks for question in one.questions)]


def record_set(records: Iterable[Any], *, secret: bool) -> RecordSet:
    """How many they are and, unless it is to be kept secret, their digest."""
    lines = sorted(map(repr, records))
    return RecordSet(len(lines), None if secret else hashlib.sha256("\0".join(lines).encode()).hexdigest())

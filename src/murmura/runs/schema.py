"""What is in the files of a run folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator, StrictInt
from pydantic_core import PydanticCustomError

DEPLOYED = "flower"
"""The engine (``run.engine``) of runs whose sites are on machines of their own, which `murmura serve` leads. All
others, those of other packages too, play them on one machine."""
FEW = 20
"""An attack with fewer members than this, or fewer other records, says little."""


@dataclass(frozen=True, slots=True)
class Attack:
    """What was the strongest of several attacks, how many members and other records it was measured on, and of each
    attack its AUC on these with the ends of its 95 % interval; of none in runs of versions that did not keep them.
    Where an ε is promised it is not told how many members there were, but whether they were ``few``."""

    attack: str
    members: int | None
    others: int
    each: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    few: bool = False

    @property
    def says_little(self) -> bool:
        """That it had too few records."""
        return self.few or any(number < FEW for number in (self.members, self.others) if number is not None)


def _figure(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PydanticCustomError("figure", "Input should be a number")
    return value


Figure = Annotated[float, PlainValidator(_figure)]
"""A whole number stays one, and true is none."""


@dataclass(frozen=True, slots=True)
class Round:
    """One row of ``metrics.jsonl``; round 0 is the model before training.

    Attributes:
        number: The round.
        values: Every measured figure of the row by its key, finite or not. A key that is absent was not measured.
        seconds: Seconds spent in each phase.
        counts: How many candidates met each rejection, e.g. ``drafts.too_short``.
        events: What went otherwise than planned, in words.
        told: What is worth knowing besides, in words.
        privacy: The guarantee so far: ``epsilon`` (or ``refused``, why there is none), ``delta``, ``unit``,
            ``adjacency``, ``accountant``, ``plan``, where a paper claims another ε ``claimed_per_step``, and, if there
            is anything to add, ``caveat``. After the last round ``epsilon`` counts the runs by which options were
            chosen, and ``alone`` is the run's own.
        calibration: Of a classifier: mean confidence, accuracy and number of texts in each bin of the confidence.
        confusion: Of a classifier: for each label how many of its texts were given which label.
        expected: Keys of ``values`` that were not counted: expected values, which follow from public numbers.
        attacks: The strongest one on the model (``attack``) and on single uploads (``upload``).
        answers: By benchmark, how many of the model's answers met which rejection.
    """

    number: Annotated[StrictInt, Field(alias="round")]
    values: Mapping[str, Figure]
    seconds: Mapping[str, Figure] = field(default_factory=dict)
    counts: Mapping[str, Figure] = field(default_factory=dict)
    events: tuple[str, ...] = ()
    privacy: Mapping[str, Any] = field(default_factory=dict)
    calibration: tuple[tuple[float, float, int], ...] = ()
    confusion: Mapping[str, Mapping[str, Figure]] = field(default_factory=dict)
    expected: tuple[str, ...] = ()
    attacks: Mapping[str, Attack] = field(default_factory=dict)
    answers: Mapping[str, Mapping[str, Figure]] = field(default_factory=dict)
    told: tuple[str, ...] = ()

    @property
    def row(self) -> dict[str, Any]:
        """Its figures with the attacks that some come of: what a figure of the catalogue is written from."""
        return {**self.values, "attacks": {target: asdict(one) for target, one in self.attacks.items()}}


@dataclass(frozen=True, slots=True)
class SiteReport:
    """A row of ``sites.json``, what became of a site's records: how many it has, also of those that are held out or not
    drawn, how many are used, had a prompt shortened, did not fit; in a run that promises an ε none of these is told,
    and of sites elsewhere only how many are used is known. And how many of them are canaries, which an audit has
    written. Of one file that is shared out a site has what it was given, all of which fits."""

    site: str
    records: int | None
    used: int | None
    truncated: int | None
    dropped: int | None
    canaries: int = 0


@dataclass(frozen=True, slots=True)
class Exclusions:
    """``data.json``: how many records no site was given and nothing is measured on.

    Attributes:
        bad: unusable ones and those of an unknown label; only with ``data.skip_bad``. Not told where an ε is promised,
            or where sites are elsewhere, as the other numbers of private records.
        overlap: held-out ones that a site has too; only with ``data.skip_bad``. Not told where an ε is promised.
        heldout: ones of the file ``data.heldout`` that do not fit the model.
        train: such ones of one file that is shared out, which are no site's. Not told where an ε is promised.
        person_at: at how many sites one person has records, at most; only where persons are told apart
            (``data.user``). Not told where the run protects whole sites.
        asked: how many held-out ones ask what a record of a site asks too, with another answer. Not told where an ε is
            promised.
    """

    bad: int | None
    overlap: int | None
    heldout: int
    train: int | None = 0
    person_at: int | None = None
    asked: int | None = 0


@dataclass(frozen=True, slots=True)
class RecordSet:
    """Public records that something is measured on.

    Attributes:
        count: how many.
        digest: SHA-256 of them, whatever their order, so that two runs can be told to have the same ones; None in a run
            that promises an ε and took them out of the private records.
    """

    count: int
    digest: str | None


@dataclass(frozen=True, slots=True)
class MeasuredOn:
    """``measured.json``: what the run is measured on.

    Attributes:
        heldout: held-out records.
        nonmembers: records that attacks compare members with.
        questions: questions with options and those of benchmarks, all of them.
    """

    heldout: RecordSet
    nonmembers: RecordSet
    questions: RecordSet


@dataclass(frozen=True, slots=True)
class Input:
    """A line of ``inputs.jsonl``.

    Attributes:
        option: that names files, a folder of them, or a model.
        name: what it says.
        files: SHA-256 of each, in hexadecimal, by its name.
    """

    option: str
    name: str
    files: Mapping[str, str]


@dataclass(slots=True)
class Disclosure:
    """A row of ``disclosure.json``: one field of one verb's replies, over the whole run.

    Attributes:
        protection: as ``federation.wire.releases.protection_to_json`` has it.
        messages: how many replies held the field.
        bytes: how many bytes it had in all of them.
        expected: the two were not counted: expected values, which follow from public numbers.
    """

    verb: str
    field: str
    kind: str
    what: str
    protection: dict[str, Any] | None
    note: str
    messages: int = 0
    bytes: int = 0
    expected: bool = False


@dataclass(frozen=True, slots=True)
class OtherModel:
    """An entry of ``environment.json``, a model that is used besides the base.

    Attributes:
        option: The option that names it: the method's, or another table's with that.
        name: What that says.
        kind: What it is, in words.
        place: On which side it is used, in words.
        parameters: How many it has; None where that is not known.
        source: Where it came from; None where nothing was fetched.
    """

    option: str
    name: str
    kind: str
    place: str
    parameters: int | None
    source: str | None


@dataclass(frozen=True, slots=True)
class Environment:
    """``environment.json``: what the run was started on.

    Attributes:
        murmura: Murmura's version.
        python: Python's.
        torch: PyTorch's, with its build.
        platform: The operating system.
        cpu_count: Of the machine.
        device: Where the model is, e.g. ``cuda: NVIDIA H100``.
        started: When, in ISO 8601 with the time zone; the day alone (UTC) where how long it took is not told.
        model: Where the model came from.
        parameters: How many the model has.
        trained: How many of them the run trains.
        training_precision: In which numbers frozen weights are multiplied in training.
        writing_precision: The same in writing.
        packages: Versions of the libraries that matter.
        resources: Models that the method uses besides.
        trained_at: Who trains them.
        adapter: The digest of ``model.adapter`` (``fingerprint``), where training begins with one.
        brought: Methods, engines and trackers that other packages bring: which packages, with their versions.
    """

    murmura: str | None
    python: str
    torch: str
    platform: str
    cpu_count: int | None
    device: str
    started: str
    model: str
    parameters: int
    trained: int
    training_precision: str
    writing_precision: str
    packages: Mapping[str, str]
    resources: tuple[OtherModel, ...] = ()
    trained_at: Literal["sites", "server"] = "sites"
    adapter: str | None = None
    brought: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PersonalModel:
    """A row of ``personal.json``: what one site gains, in held-out losses.

    Attributes:
        site: Its name.
        records: How many of its own records it has set apart, on which these losses are.
        before: Of the model before training.
        shared: Of the global model after the last round.
        personal: Of the site's own model.
        public_before, public_shared, public_personal: The same on the server's public held-out records.
    """

    site: str
    records: int
    before: float
    shared: float
    personal: float
    public_before: float
    public_shared: float
    public_personal: float


@dataclass(frozen=True, slots=True)
class Resumption:
    """An entry of ``resumed.json``.

    Attributes:
        after: The round after which the run was resumed.
        changed: Options, dotted key to what it was and what it is from then on.
        events: What is different from then on, in words.
    """

    after: int
    changed: Mapping[str, tuple[Any, Any]]
    events: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """``summary.json`` of a finished run.

    Attributes:
        name: The run's name.
        method: As the report names it.
        seed: The run's seed.
        rounds: How many there were.
        final: The last row of ``metrics.jsonl``.
        bytes_up: Bytes that the sites sent, over the whole run; the expected number where cohorts are secret.
        bytes_down: Bytes that the server sent, likewise.
        wall: Seconds that the rounds took; None where the run guarantees something.
        peak_memory: Bytes at most; None likewise.
        silent: Sites that never took part; none are named where cohorts are secret.
    """

    name: str
    method: str
    seed: int
    rounds: int
    final: Mapping[str, Any]
    bytes_up: int
    bytes_down: int
    wall: float | None
    peak_memory: int | None
    silent: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PatternWeights:
    """``outcomes/classifier.json``: what each cloze pattern is worth to the final model."""

    weights: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Evaluated:
    """One model of ``evaluation.json``.

    Attributes:
        model: What the run began with, what it has made of it, or a site's own adapter; in words.
        figures: Of each task its figure, by key (``measure.harness.figures``), with ``..._n``, or ``..._low`` and
            ``..._high``, as in ``metrics.jsonl``.
    """

    model: str
    figures: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """``evaluation.json``: how good models are on tasks of lm-evaluation-harness.

    Attributes:
        murmura: Murmura's version.
        made: When, in ISO 8601 with the time zone.
        models: What the run began with first.
        limit: Most questions of each task; None: all.
        few_shot: Answered questions before each; None: as many as each task has of its own.
        form: ``plain`` or ``template``.
    """

    murmura: str
    made: str
    models: tuple[Evaluated, ...]
    limit: int | None
    few_shot: int | None
    form: str


@dataclass(frozen=True, slots=True)
class ShownDraft:
    """A line of a site's ``drafts.jsonl``: what a model has written after its records, and so as private as these.

    Attributes:
        round: in which it was written.
        text: all of what was written, or as much of it as there was when it was dropped.
        kept: whether the site trained on it.
        why: it was kept or dropped, in words.
    """

    round: int
    text: str
    kept: bool
    why: str

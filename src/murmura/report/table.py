"""The table that answers a run's questions: a row a method, a column a figure, seeds put together."""

from __future__ import annotations

import statistics
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from murmura.report.record import Round, RunRecord
from murmura.report.units import DASH, bound, count, decimal, duration, listing, signed, size

_TOLD = 3  # most options that tell rows apart


@dataclass(frozen=True, slots=True)
class Cell:
    """Mean and sample standard deviation (divisor n - 1) of the ``n`` runs that measured a figure.

    ``mean`` is None where none did, ``sd`` where fewer than two did.
    """

    mean: float | None
    sd: float | None
    n: int

    @staticmethod
    def of(values: Iterable[float | None]) -> Cell:
        known = [value for value in values if value is not None]
        if not known:
            return Cell(None, None, 0)
        return Cell(statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else None, len(known))

    @staticmethod
    def worst(values: Iterable[float | None]) -> Cell:
        """The largest, and none where any is missing: what holds for all runs."""
        found = list(values)
        known = [value for value in found if value is not None]
        return Cell(max(known), None, len(known)) if known and len(known) == len(found) else Cell(None, None, 0)


@dataclass(frozen=True, slots=True)
class Column:
    """One figure of the table: its key in the run folder, its name, its unit and what it means in plain words."""

    key: str
    title: str
    short: str
    meaning: str
    write: Callable[[float], str]
    write_sd: Callable[[float], str]
    total: bool = False  # of the whole run, not of its last round
    only: str = ""  # the kind of record it is about; shown where there is a run of that kind
    of_labels: str = ""  # what it means where records are labelled texts, if that is something else
    promise: bool = False  # of several runs the largest holds, not the mean

    def meant(self, kinds: Sequence[str]) -> str:
        """What it means in a report on such kinds of record."""
        if not self.of_labels or "labelled" not in kinds:
            return self.meaning
        return self.of_labels if len(kinds) == 1 else f"{self.meaning} Of a classifier: {self.of_labels}"

    def of(self, run: RunRecord) -> float | None:
        return (run.totals if self.total else run.last.values).get(self.key)

    def cell(self, runs: Iterable[RunRecord]) -> Cell:
        """The figure of the runs of a row."""
        return (Cell.worst if self.promise else Cell.of)(self.of(run) for run in runs)

    def value(self, cell: Cell) -> str:
        return DASH if cell.mean is None else self.write(cell.mean)

    def spread(self, cell: Cell) -> str:
        """``± 0.012``, or nothing where there is no spread to speak of."""
        if cell.sd is None:
            return ""
        return f"± {self.write_sd(cell.sd)}" if cell.sd else "± 0"


COLUMNS: tuple[Column, ...] = (
    Column(
        "heldout_loss",
        "Held-out loss",
        "held-out\nloss",
        "How badly the model predicts good answers to questions that no site trained on (mean over answers, in nats "
        "per token). Lower is better.",
        decimal,
        decimal,
        of_labels="How improbable the model finds the right labels of texts that no site trained on (mean of "
        "−log p(label) over the texts, in nats). Lower is better.",
    ),
    Column(
        "heldout_rouge",
        "Held-out ROUGE-L",
        "held-out\nROUGE-L",
        "How much of the wording of the model's own answers agrees, in order, with the reference answers to those same "
        "questions: 0 is nothing, 1 is word for word. Higher is better.",
        decimal,
        decimal,
        only="instruction",
    ),
    Column(
        "accuracy",
        "Accuracy",
        "accuracy",
        "How many of the held-out texts, which no site trained on, get the right label: 0 is none, 1 is all. Higher is "
        "better.",
        decimal,
        decimal,
        only="labelled",
    ),
    Column(
        "calibration_error",
        "Calibration error",
        "calibration\nerror",
        "How far the model's confidence is from how often it is right, on average (ECE): 0 is a model that is right as "
        "often as it says. Lower is better.",
        decimal,
        decimal,
        only="labelled",
    ),
    Column(
        "leakage",
        "Leakage",
        "leakage",
        "An attack, carried out: the model is given the question of a record and its answer is compared (ROUGE-L) with "
        "the real one, for records it was trained on (members) and for records it never saw (non-members). Leakage is "
        "the difference. Above 0, the model gives away more of the training records than its skill alone explains. "
        "Near 0, this attack found nothing; another one may.",
        signed,
        decimal,
        only="instruction",
    ),
    Column(
        "upload_leakage",
        "Leakage of single uploads",
        "leakage of\nuploads",
        "The same attack on what one site sends, before the server mixes it with the others: what a curious server, or "
        "whoever breaks into it, would see. A dash where nothing is sent or the attack was switched off.",
        signed,
        decimal,
        only="instruction",
    ),
    Column(
        "epsilon",
        "Guaranteed ε",
        "ε",
        "What is guaranteed, whatever the attack: the bound of differential privacy on how much one record, or one "
        "site, can change what is sent; computed from what the run really did (where there is one, see “What is "
        "guaranteed”). Of several seeds it is the largest. Smaller is stronger; a dash means that nothing is "
        "guaranteed.",
        bound,
        bound,
        promise=True,
    ),
    Column(
        "bytes_up",
        "Sent up",
        "up",
        "Everything the sites sent to the server for the method itself, in all rounds together; what it took to "
        "measure the other figures is not counted. 1 MB is a million bytes.",
        size,
        size,
        total=True,
    ),
    Column(
        "bytes_down",
        "Sent down",
        "down",
        "Everything the server sent to the sites for the method itself, in all rounds together.",
        size,
        size,
        total=True,
    ),
    Column(
        "wall",
        "Wall time",
        "wall\ntime",
        "Time from start to end on the machine named above, with everything that was measured.",
        duration,
        duration,
        total=True,
    ),
    Column(
        "peak_memory",
        "Peak memory",
        "peak\nmemory",
        "The most memory the run took at any moment: of the graphics card where the model was on one, else of the "
        "process.",
        size,
        size,
        total=True,
    ),
)


def kinds(rows: Sequence[Row]) -> list[str]:
    """The kinds of record that these rows are about."""
    return sorted({run.kind for row in rows for run in row.runs})


def columns(rows: Sequence[Row]) -> list[Column]:
    """The columns that say something about these rows: those of another kind of record are left out."""
    return [column for column in COLUMNS if not column.only or column.only in kinds(rows)]


@dataclass(frozen=True, slots=True)
class Point:
    """A figure at one round, over the runs of a row."""

    round: int
    cell: Cell


@dataclass(frozen=True, slots=True)
class Row:
    """One run, or the runs of one method that differ in their seed.

    Attributes:
        label: The method; with the run's name where several rows would else look alike.
        runs: At least one.
        cells: A cell for each of ``COLUMNS``, by key.
    """

    label: str
    runs: tuple[RunRecord, ...]
    cells: dict[str, Cell]

    @property
    def finished(self) -> bool:
        return all(run.finished for run in self.runs)

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(run.seed for run in self.runs if run.seed is not None)

    @property
    def remark(self) -> str:
        """What the figures stand for: a seed, or how many."""
        if len(self.runs) > 1:
            return f"mean ± sd of {len(self.runs)} seeds"
        return f"seed {self.seeds[0]}" if self.seeds else ""

    @property
    def state(self) -> str:
        """How far an unfinished run came; nothing for a finished one."""
        if self.finished:
            return ""
        run = self.runs[0]
        of = f" of {run.planned}" if run.planned is not None else ""
        return f"unfinished: round {run.last.number}{of}"

    def before(self, key: str) -> Cell:
        """The figure before training (round 0)."""
        return Cell.of(run.before.values.get(key) if run.before else None for run in self.runs)

    def series(self, key: str) -> list[Point]:
        """The figure round by round; rounds in which no run measured it are left out."""
        numbers = sorted({one.number for run in self.runs for one in run.rounds})
        by_run = [{one.number: one for one in run.rounds} for run in self.runs]
        points = [Point(number, Cell.of(_value(run.get(number), key) for run in by_run)) for number in numbers]
        return [point for point in points if point.cell.n]


def table(records: Sequence[RunRecord]) -> list[Row]:
    """Rows in the order of the runs; finished runs of one method with different seeds share a row.

    Runs share a row only if their experiments are the same in all but seed, name and folder, and if their seeds are
    known and all different: else a mean would hide what differs.
    """
    groups: dict[object, list[RunRecord]] = {}
    for position, run in enumerate(records):
        alone = not run.finished or run.seed is None
        sites = None if run.sites is None else len(run.sites)
        key = position if alone else repr((run.label, _settings(run), sites, run.last.number))
        groups.setdefault(key, []).append(run)
    members: list[tuple[RunRecord, ...]] = []
    for group in groups.values():
        distinct = len({run.seed for run in group}) == len(group)
        members.extend([tuple(group)] if distinct else [(run,) for run in group])
    return [
        Row(label, group, {column.key: column.cell(group) for column in COLUMNS})
        for label, group in zip(_labels(members), members, strict=True)
    ]


def promises(rows: Sequence[Row]) -> list[str]:
    """A sentence on each kind of ε in the table: for whom it holds, and with which δ."""
    found: dict[str, list[str]] = {}
    for row in rows:
        for told in (run.last.privacy for run in row.runs if run.last.privacy.get("epsilon") is not None):
            sentence = f"bounds what one {told['unit']} changes ({told['adjacency']}), but for δ = {told['delta']:g}"
            labels = found.setdefault(sentence, [])
            if row.label not in labels:
                labels.append(row.label)
    if len(found) == 1:
        return [f"ε {sentence}." for sentence in found]
    return [f"ε of {listing(labels)} {sentence}." for sentence, labels in found.items()]


def _labels(members: Sequence[tuple[RunRecord, ...]]) -> list[str]:
    """The method of each row; where rows would look alike, with the options that differ, or else with a run's name."""
    labels = [group[0].label for group in members]
    found = []
    for label, group in zip(labels, members, strict=True):
        alike = [other[0] for other, name in zip(members, labels, strict=True) if name == label]
        found.append(label if len(alike) == 1 else f"{label} ({_difference(group[0], alike)})")
    return found


def _difference(run: RunRecord, alike: Sequence[RunRecord]) -> str:
    """The few options in which a run differs from others; its name where those do not tell it from all of them."""
    settings = [_settings(other) for other in alike]
    known = dict.fromkeys(key for one in settings for key in one)
    # How a run was worked off ([run]) is the last thing that a row is known by.
    keys = [key for key in known if not key.startswith("run.") and len({one.get(key) for one in settings}) > 1]
    told = [tuple(one.get(key) for key in keys) for one in settings]
    if not 0 < len(keys) <= _TOLD or len(set(told)) < len(told):
        return run.name
    own = _settings(run)
    return ", ".join(f"{key} = {own.get(key, DASH)}" for key in keys)


def _settings(run: RunRecord) -> dict[str, str]:
    """The experiment's options, dotted key to value, but for seed, name and folder of the run."""
    if run.config is None:
        return {"model": str(run.model), "sites": str(run.sites and len(run.sites))}
    flat: dict[str, str] = {}
    _flatten(tomllib.loads(run.config), "", flat)
    return {key: value for key, value in flat.items() if key not in ("run.seed", "run.name", "run.folder")}


def _flatten(table: Mapping[str, object], path: str, flat: dict[str, str]) -> None:
    for key, value in table.items():
        if isinstance(value, Mapping):
            _flatten(value, f"{path}{key}.", flat)
        else:
            flat[f"{path}{key}"] = str(value)


def _value(one: Round | None, key: str) -> float | None:
    return None if one is None else one.values.get(key)


# Figures of a round that have no column in the table: name and how they are written.
OTHERS: dict[str, tuple[str, Callable[[float], str]]] = {
    "train_loss": ("Training loss", decimal),
    "validation_accuracy": ("Accuracy on the server's validation set", decimal),
    "pseudo_accuracy": ("Accuracy of the labels given to unlabelled texts", decimal),
    "annotated": ("Texts annotated after the round", count),
    "left_unlabelled": ("Texts left without a label", count),
    "bytes_measuring": ("Sent for these measurements", size),
    "member_rouge": ("ROUGE-L, members", decimal),
    "nonmember_rouge": ("ROUGE-L, non-members", decimal),
    "upload_member_rouge": ("ROUGE-L, members, single uploads", decimal),
    "upload_nonmember_rouge": ("ROUGE-L, non-members, single uploads", decimal),
    "member_exact": ("Exact answers, members (share)", decimal),
    "nonmember_exact": ("Exact answers, non-members (share)", decimal),
    "upload_member_exact": ("Exact answers, members, single uploads (share)", decimal),
    "member_prefix": ("Tokens right from the start, members", lambda value: decimal(value, 1)),
    "nonmember_prefix": ("Tokens right from the start, non-members", lambda value: decimal(value, 1)),
    "upload_member_prefix": ("Tokens right from the start, members, single uploads", lambda value: decimal(value, 1)),
}


def naming(key: str) -> tuple[str, Callable[[float], str]]:
    """Name and writing of any figure of a round; one that is not known keeps its key as its name."""
    for column in COLUMNS:
        if column.key == key:
            return column.title, column.write
    return OTHERS.get(key, (key, lambda value: count(value) if value == int(value) else decimal(value)))

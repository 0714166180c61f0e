"""The table that answers a run's questions: a row a method, a column a figure, seeds put together."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from murmura.config import leaves
from murmura.data.records import Kind
from murmura.errors import CheckpointError
from murmura.measure.catalogue import described, figure
from murmura.measure.figure import AUC, GUESSING, LEAST_EPSILON, SHARE, Figure, interval
from murmura.measure.statistics import estimate
from murmura.report.content import Block, Entry, Heading, Span, entry
from murmura.report.style import Style, style
from murmura.report.together import together
from murmura.runs.record import RunRecord
from murmura.tasks import TASKS
from murmura.units import DASH, count, decimal

OUTSIDE = "outside ε"
"""Marks figures that sites computed from their own records in a run that promises an ε."""
_OF_ONE_SEED = ("run.seed", "run.name", "run.folder", "run.chosen_by")
_TOLD = 3  # most options that tell rows apart
ATTACKED = ("attack_auc", "upload_auc", "memorisation")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Cell:
    """Mean and sample standard deviation (divisor n - 1) of the ``n`` runs that measured a figure, and found it finite.

    ``mean`` is None where none did, ``sd`` where fewer than two did. ``texts`` is how many texts the figure is a share
    of, in the run that has fewest; None where it is no share, or some run does not tell. ``together`` says what the
    runs come to taken together, where that is not what one of them has. ``ends`` are those of its 95 % interval where
    the runs tell it, or it is a share; of several runs the wider, at each end, of that over seeds and the mean of those
    within runs. ``remarks`` is what each run says of the attack that it comes of, and that no ε covers it. ``guess`` is
    what the figure comes to without skill, where the runs tell it.
    """

    mean: float | None
    sd: float | None
    n: int
    texts: float | None = None
    together: str = ""
    ends: tuple[float, float] | None = None
    remarks: tuple[str, ...] = ()
    guess: float | None = None

    @staticmethod
    def of(values: Iterable[float | None]) -> Cell:
        known = [value for value in values if value is not None and math.isfinite(value)]
        if not known:
            return Cell(None, None, 0)
        return Cell(statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else None, len(known))

    @staticmethod
    def worst(values: Iterable[float | None]) -> Cell:
        """The largest, and none where any is missing: what holds for all runs."""
        found = list(values)
        known = [value for value in found if value is not None]
        return Cell(max(known), None, len(known)) if known and len(known) == len(found) else Cell(None, None, 0)

    @staticmethod
    def least(values: Iterable[float | None]) -> Cell:
        """The smallest of those that are known."""
        known = [value for value in values if value is not None]
        return Cell(min(known), None, len(known)) if known else Cell(None, None, 0)

    def value(self, figure: Figure) -> str:
        return DASH if self.mean is None else figure.unit.write(self.mean)

    def spread(self, figure: Figure) -> str:
        """``± 0.012``, or nothing where there is no spread to speak of."""
        if self.sd is None:
            return ""
        return f"± {figure.unit.write_sd(self.sd)}" if self.sd else "± 0"

    def entry(self, figure: Figure) -> Entry:
        """The figure with what is known of it as small print."""
        small = self.spread(figure), *self.interval(), *self.remarks, self.together, self.guessing(figure)
        return entry(self.value(figure), *small)

    def span(self, figure: Figure) -> Span | None:
        """A bar for the 95 % interval of a share or an AUC, where there is one."""
        if self.mean is None or figure.unit not in (AUC, SHARE):
            return None
        guess = GUESSING if figure.unit is AUC else self.guess
        return None if self.ends is None else Span(*self.ends, self.mean, guess)

    def guessing(self, figure: Figure) -> str:
        """``guessing 0.463``, or nothing."""
        return "" if self.mean is None else "".join(figure.guessed(self.guess))

    def interval(self) -> list[str]:
        """The 95 % interval, of a share with its n; or nothing."""
        between = " to " if self.ends and self.ends[0] < 0 else "–"
        told = [] if self.ends is None else [between.join(map(decimal, self.ends))]
        return told + ([] if self.texts is None else [f"n = {count(self.texts)}"])


def kinds(rows: Sequence[Row]) -> list[Kind]:
    """The kinds of record that these rows are about."""
    return sorted({_kind(run) for row in rows for run in row.runs})


def _kind(run: RunRecord) -> Kind:
    for kind in TASKS:
        if kind == run.kind:
            return kind
    what = f"the run is about records of the kind '{run.kind}', which this version of Murmura does not know"
    raise CheckpointError(what, where=str(run.folder), fix="Report it with the version that it was run with.")


def columns(rows: Sequence[Row]) -> list[Figure]:
    """The figures that have a column in a table of these rows: those of another kind of record are left out."""
    known = kinds(rows)

    def belongs(figure: Figure) -> bool:
        if figure.column == "measured":
            return any(row.cells[figure.key].n for row in rows)
        return figure.column == "always" and (not figure.kind or figure.kind in known)

    return [figure for figure in described(key for row in rows for key in row.cells) if belongs(figure)]


@dataclass(frozen=True, slots=True)
class Point:
    """A figure at one round, over the runs of a row."""

    round: int
    cell: Cell


@dataclass(frozen=True, slots=True)
class Row:
    """One run, or the runs of one method that differ in their seed.

    Attributes:
        position: Among the rows.
        label: The method; with the run's name where several rows would else look alike.
        runs: At least one.
        cells: A cell for each figure of the catalogue that can have a column, by key.
    """

    position: int
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

    @property
    def look(self) -> Style:
        """Its mark and colour, in pictures and beside its name."""
        return style(self.position)

    @property
    def name(self) -> Entry:
        """Its label and mark, for headings and legends."""
        return Entry(self.label, look=self.look)

    def before(self, key: str) -> Cell:
        """The figure before training (round 0)."""
        return _measured(key, [run.before.row if run.before else {} for run in self.runs])

    def series(self, key: str) -> list[Point]:
        """The figure round by round; rounds in which no run measured it are left out."""
        numbers = sorted({one.number for run in self.runs for one in run.rounds})
        by_run = [{one.number: one.row for one in run.rounds} for run in self.runs]
        points = [Point(number, _measured(key, [run.get(number, {}) for run in by_run])) for number in numbers]
        return [point for point in points if point.cell.n]


def table(records: Sequence[RunRecord], labels: Mapping[Path, str] | None = None) -> list[Row]:
    """Rows in the order of the runs; finished runs of one method with different seeds share a row.

    Runs share a row only if their experiments are the same in all but seed, name, folder and what they were chosen by,
    or their labels are, if what they are measured on is the same where no seed draws it, and if their seeds are known
    and all different: else a mean would hide what differs.

    Args:
        labels: by the folder of a run what its row is called, where something else than its options says so.
    """
    labels = labels or {}
    groups: dict[object, list[RunRecord]] = {}
    for position, run in enumerate(records):
        alone = not run.finished or run.seed is None
        sites = None if run.sites is None else len(run.sites)
        same = labels[run.folder] if run.folder in labels else _settings(run)
        alike = (same, run.label, _measured_on(run), sites, run.last.number)
        groups.setdefault(position if alone else repr(alike), []).append(run)
    members: list[tuple[RunRecord, ...]] = []
    for group in groups.values():
        distinct = len({run.seed for run in group}) == len(group)
        members.extend([tuple(group)] if distinct else [(run,) for run in group])
    named = enumerate(zip(_labels(members), members, strict=True))
    return [Row(at, labels.get(group[0].folder, label), group, _cells(group)) for at, (label, group) in named]


def runs_of(rows: Sequence[Row]) -> list[RunRecord]:
    """All runs, in the order of the rows."""
    return [run for row in rows for run in row.runs]


def legend(rows: Sequence[Row]) -> list[Entry]:
    """The names of the rows; none where there is one alone."""
    return [row.name for row in rows] if len(rows) > 1 else []


def heading(rows: Sequence[Row], row: Row) -> list[Block]:
    """The name of a row above what is its own, where there are several."""
    return [Heading([row.name])] if len(rows) > 1 else []


def each_run(rows: Sequence[Row], runs: Sequence[RunRecord], of: Callable[[RunRecord], list[Block]]) -> list[Block]:
    """What some of the runs have, below their names where there are several."""
    several = len(rows) > 1 or len(runs) > 1
    return [block for run in runs for block in ([Heading([Entry(run.name)])] * several + of(run))]


def of_seeds(rows: Sequence[Row], words: str) -> str:
    """What is to be said where a row stands for several seeds."""
    return words if any(len(row.runs) > 1 for row in rows) else ""


def attacked(rows: Sequence[Row]) -> bool:
    """Whether any leakage was measured."""
    return any(row.series(key) for row in rows for key in ATTACKED)


def as_measured(row: Row, keys: Sequence[str]) -> Row:
    """A row as it stood after the last round in which any of these figures was measured: a run that stopped may not
    have measured its last ones. It is the row itself where that was its last round, or none since training began."""
    run = row.runs[0]
    having = [one for one in run.rounds if one.number and any(key in one.values for key in keys)]
    if len(row.runs) > 1 or not having or having[-1] is run.last:
        return row
    then = (replace(run, rounds=run.rounds[: run.rounds.index(having[-1]) + 1]),)
    return replace(row, runs=then, cells=_cells(then))


def distinct(runs: Iterable[RunRecord], part: Callable[[RunRecord], T]) -> list[tuple[T, list[str]]]:
    """What runs have in common is shown once: each different value with the names of its runs."""
    found: dict[str, tuple[T, list[str]]] = {}
    for run in runs:
        value = part(run)
        found.setdefault(repr(value), (value, []))[1].append(run.name)
    return list(found.values())


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
    # How a run was worked off ([run]) tells rows apart in one way alone: by what machinery.
    keys = [
        key
        for key in known
        if (not key.startswith("run.") or key == "run.engine") and len({one.get(key) for one in settings}) > 1
    ]
    told = [tuple(one.get(key) for key in keys) for one in settings]
    if not 0 < len(keys) <= _TOLD or len(set(told)) < len(told):
        return run.name
    own = _settings(run)
    return ", ".join(f"{key} = {own.get(key, DASH)}" for key in keys)


def _settings(run: RunRecord) -> dict[str, str]:
    """The experiment's options, dotted key to value, but for seed, name and folder of the run."""
    told = leaves(run.options)
    return {key: str(value) for key, value in told if key not in _OF_ONE_SEED}


def _measured_on(run: RunRecord) -> tuple[str | None, ...]:
    """Digests of the public records that it is measured on, where no seed decides which they are: of those taken out of
    others each takes its own, of labelled ones it sets some apart for validation, and it may decide which are bad."""
    data, measured = run.options.get("data", {}), run.measured
    if measured is None or run.kind == "labelled" or data.get("heldout_records") or data.get("skip_bad"):
        return ()
    return measured.heldout.digest, None if data.get("nonmember_records") else measured.nonmembers.digest


class _Cells(dict[str, Cell]):
    """Cells by key; an empty one for a figure that other runs alone have."""

    def __missing__(self, key: str) -> Cell:
        return Cell(None, None, 0)


def _cells(group: Sequence[RunRecord]) -> dict[str, Cell]:
    keys = [key for run in group for key in run.last.row]
    cells = _Cells((one.key, _cell(one, group)) for one in described(keys) if one.column)
    for key in [key for key in cells if cells[key].n and figure(key).of_members and promises_privacy(group)]:
        cells[key] = replace(cells[key], remarks=(*cells[key].remarks, OUTSIDE))
    if len(group) > 1 and cells["epsilon"].mean is not None:
        cells["epsilon"] = replace(cells["epsilon"], together=together(group))
    return cells


def promises_privacy(runs: Sequence[RunRecord]) -> bool:
    """Whether any of the runs promises an ε, kept or refused."""
    return any(run.last.privacy for run in runs)


def _cell(one: Figure, runs: Sequence[RunRecord]) -> Cell:
    """A figure of the runs of a row, at their end."""
    values = [run.totals if one.total else run.last.row for run in runs]
    if one.unit is LEAST_EPSILON:  # each is a lower bound with 95 % confidence, and so is the smallest; not their mean
        return Cell.least(row.get(one.key) for row in values)
    return Cell.worst(row.get(one.key) for row in values) if one.promise else _measured(one.key, values)


def _measured(key: str, rows: Sequence[Mapping[str, Any]]) -> Cell:
    """A figure of rows of several runs, with all that is known of it."""
    having = [row for row in rows if row.get(key) is not None and math.isfinite(row[key])]
    sizes = [row.get(f"{key}_n") for row in having]
    attacked = [figure(key).attacked(row) for row in having]
    return replace(
        Cell.of(row[key] for row in having),
        texts=min(size for size in sizes if size) if sizes and all(sizes) else None,
        guess=Cell.of(row.get(f"{key}_guess") for row in having).mean,
        ends=_ends(figure(key), having),
        remarks=tuple(dict.fromkeys(remark for told in attacked for remark in told)),
    )


def _ends(one: Figure, rows: Sequence[Mapping[str, Any]]) -> tuple[float, float] | None:
    """Of the 95 % interval of the mean over runs; None where some run has none of its own."""
    within = [_ends_within(one.key, row) for row in rows]
    known = [ends for ends in within if ends is not None]
    if not known or len(known) < len(within):
        return None
    over_seeds = estimate(one, [row[one.key] for row in rows])
    return over_seeds.wider([low for low, _ in known], [high for _, high in known])


def _ends_within(key: str, row: Mapping[str, Any]) -> tuple[float, float] | None:
    """Of the 95 % interval within a run: over its records or texts."""
    low, high, texts = (row.get(f"{key}_{end}") for end in ("low", "high", "n"))
    if low is not None and high is not None:
        return low, high
    return interval(row[key], texts) if texts else None


def means(tables: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Of each key, over all tables; 0 where one lacks it."""
    keys = dict.fromkeys(key for one in tables for key in one)
    return {key: Cell.of(one.get(key, 0.0) for one in tables).mean or 0.0 for key in keys}


def moved(rows: Sequence[Row], key: str) -> bool:
    """Whether a figure was measured, and differs between rounds as it is written. One round alone is worth a picture,
    which says how it lies to others'."""
    write = figure(key).unit.write
    series = [[write(point.cell.mean or 0.0) for point in row.series(key)] for row in rows]
    return any(len(values) == 1 or len(set(values)) > 1 for values in series)

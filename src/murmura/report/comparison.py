"""What was not the same for all rows of a table, so that some of its columns cannot be compared from row to row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from murmura.measure.catalogue import figure
from murmura.measure.figure import Figure
from murmura.report import run_facts
from murmura.report.table import Row, columns
from murmura.runs.record import RunRecord
from murmura.units import DASH, listing

_Told = Callable[[RunRecord], str]
_DIGITS = 12  # of a digest: enough to compare by, and few enough to be shown


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Something that figures depend on, and that rows do not have in common.

    Attributes:
        what: it is.
        told: each of its values, with the labels of the rows that have it.
        figures: titles of the columns that cannot be compared because of it.
    """

    what: str
    told: tuple[tuple[str, tuple[str, ...]], ...]
    figures: tuple[str, ...]

    @property
    def words(self) -> str:
        """``Held-out records: 32 of a.jsonl in FedAvg; 20 of b.jsonl in FewFedPIT``."""
        told = "; ".join(f"{value} in {listing(list(labels))}" for value, labels in self.told)
        return f"{self.what[0].upper()}{self.what[1:]}: {told}"

    def beside(self, other: Mismatch) -> Mismatch:
        """Both at once; their values are the same."""
        figures = dict.fromkeys(self.figures + other.figures)
        return Mismatch(f"{self.what} and {other.what}", self.told, tuple(figures))


@dataclass(frozen=True, slots=True)
class _Aspect:
    """Something that figures depend on.

    Attributes:
        touches: whether a figure does.
        value: of a run, in words.
        exact: what tells two of them apart that these words do not; empty where the run does not say.
    """

    what: str
    touches: Callable[[Figure], bool]
    value: _Told
    exact: _Told | None = None


def differences(rows: Sequence[Row]) -> list[Mismatch]:
    """What differs between the rows, in the order of the aspects below; of a single row nothing."""
    shown = [one for one in columns(rows) if sum(row.cells[one.key].n > 0 for row in rows) > 1]
    found: dict[object, Mismatch] = {}
    for one in (_difference(aspect, rows, shown) for aspect in _ASPECTS):
        if one is not None:  # what differs in the same way is told once
            known = found.get(one.told)
            found[one.told] = known.beside(one) if known else one
    return list(found.values())


def apart(rows: Sequence[Row], key: str) -> str:
    """Why a figure cannot be compared from row to row; empty where it can."""
    title = figure(key).title
    return "; ".join(one.what for one in differences(rows) if title in one.figures)


def sentences(rows: Sequence[Row]) -> list[str]:
    """The same, a sentence each."""
    return [
        f"Not to be compared from row to row: {listing(list(one.figures))}. {one.words}." for one in differences(rows)
    ]


def _difference(aspect: _Aspect, rows: Sequence[Row], shown: Sequence[Figure]) -> Mismatch | None:
    figures = tuple(one.title for one in shown if aspect.touches(one))
    if not figures:
        return None
    values, exact = _of_rows(aspect.value, rows), _of_rows(aspect.exact or aspect.value, rows)
    keys = exact if all(all(row) for row in exact) else values  # where a run does not say, there are only words
    if len(set(map(frozenset, keys))) == 1:
        return None
    labels: dict[str, list[str]] = {}
    plain = len(set(map(frozenset, values))) == len(set(map(frozenset, keys)))
    for row, told, key in zip(rows, values, keys, strict=True):
        words = told if plain else [f"{one}: {more}" for one, more in zip(told, key, strict=True)]
        labels.setdefault(" or ".join(dict.fromkeys(words)), []).append(row.label)
    return Mismatch(aspect.what, tuple((value, tuple(names)) for value, names in labels.items()), figures)


def _of_rows(told: _Told, rows: Sequence[Row]) -> list[list[str]]:
    """Of each run of each row."""
    return [list(map(told, row.runs)) for row in rows]


# ---- what figures depend on -----------------------------------------------------------------------------------------


def _of_records(one: Figure) -> bool:
    """Measured on records, public or private."""
    return not (one.total or one.promise or one.key in ("coverage", "audit_epsilon"))


def _leakage(one: Figure) -> bool:
    return one.of_members


def _heldout(one: Figure) -> bool:
    return one.key.startswith(("heldout_", "accuracy", "calibration_error"))


def _asked(one: Figure) -> bool:
    return _of_records(one) and not _leakage(one) and not _heldout(one)


def _per_token(one: Figure) -> bool:
    return one.key in ("heldout_loss", "heldout_fall")


def _written(one: Figure) -> bool:
    return one.key in ("heldout_rouge", "memorisation")


def _cost(one: Figure) -> bool:
    return one.key in ("wall", "peak_memory")


def _option(name: str) -> _Told:
    section, _, key = name.partition(".")
    return lambda run: str(run.options.get(section, {}).get(key, DASH))


def _digest(which: str) -> _Told:
    def told(run: RunRecord) -> str:
        records = getattr(run.measured, which, None)
        return "" if records is None else (records.digest or "")[:_DIGITS]

    return told


def _machine(run: RunRecord) -> str:
    return run_facts.machine(run.environment) if run.environment else DASH


def _model(run: RunRecord) -> str:
    return DASH if run.kind in ("labelled", "preference") else run.model or DASH  # their losses are not by token


_ASPECTS: tuple[_Aspect, ...] = (
    _Aspect("kind of record", _of_records, lambda run: run.kind),
    _Aspect("sites’ records", _of_records, run_facts.records, _option("data.train")),
    _Aspect("held-out records", _heldout, run_facts.heldout, _digest("heldout")),
    _Aspect("non-members", _leakage, run_facts.nonmembers, _digest("nonmembers")),
    _Aspect("questions asked besides", _asked, run_facts.questions, _digest("questions")),
    _Aspect("model, and with it what a token is", _per_token, _model),
    _Aspect("template", _of_records, _option("data.template")),
    _Aspect("tokens of a record at most", _of_records, _option("data.max_length")),
    _Aspect("questions that the model answers", _written, _option("evaluation.sample")),
    _Aspect("pool", lambda one: one.key == "coverage", _option("augment.pool")),
    _Aspect("domain", lambda one: one.key == "coverage", _option("augment.domain")),
    _Aspect("machine", _cost, _machine),
    _Aspect("engine", _cost, _option("run.engine")),
)

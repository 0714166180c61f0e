"""All runs below a folder, a line each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from murmura.errors import CheckpointError, MurmuraError
from murmura.measure.catalogue import figure
from murmura.runs import files, names, schema
from murmura.runs.previous import is_run
from murmura.runs.record import RunRecord, read
from murmura.status.status import HEADLINES, Status, look
from murmura.units import DASH, bound, duration

_CAVEAT = ", but see murmura status"
_DEPTH = 4  # folders below the one that is named, as in runs/COMPARISON/search/RUN


@dataclass(frozen=True)
class Listed:
    """One run.

    Attributes:
        folder: where it is.
        method: as reports name it; of a run that has recorded no round, its name in the experiment.
        state: in words.
        epsilon: that it guarantees, or guaranteed so far; None where it guarantees none.
        figure: the headline figure in words, a dash where there is none.
        started: when, in ISO 8601, the day alone where a run told no more; None where that is not known.
        seconds: that its rounds took; None where that is not known, or not told.
        problem: why it cannot be read; empty where it can.
        caveat: what makes the ε worth less than it looks.
        refused: it promises an ε, and none can be told.
    """

    folder: str
    method: str
    state: str
    epsilon: float | None = None
    figure: str = DASH
    started: str | None = None
    seconds: float | None = None
    problem: str = ""
    caveat: str | None = None
    refused: bool = False

    @property
    def cells(self) -> list[str]:
        """As a line of a table."""
        promise = "refused" if self.refused else DASH
        if self.epsilon is not None:
            promise = bound(self.epsilon) + (_CAVEAT if self.caveat else "")
        took = DASH if self.seconds is None else duration(self.seconds)
        begun = DASH if self.started is None else self.started[:16].replace("T", " ")
        return [self.folder, self.method, self.problem or self.state, promise, self.figure, begun, took]


COLUMNS = ("Run", "Method", "State", "ε", "Figure", "Started", "Took")


def listing(folders: Sequence[Path]) -> list[Listed]:
    """All runs in these folders and below, the newest last. One that cannot be read is listed with the reason, and so
    is a folder below that may not be looked into.

    Raises:
        CheckpointError: there is no such folder.
    """
    for folder in folders:
        if not folder.is_dir():
            raise CheckpointError("there is no such folder", where=str(folder), fix="Name one that holds runs.")
    found = {one.folder: one for folder in folders for one in _runs(folder, _DEPTH)}
    return sorted(found.values(), key=lambda one: (one.started or "", one.folder))


def _runs(folder: Path, depth: int) -> Iterator[Listed]:
    """Run folders, without looking into them for others; and those that nobody can look into."""
    try:
        run = is_run(folder)
        inside = [] if run or not depth else [inner for inner in sorted(folder.iterdir()) if _is_plain(inner)]
    except OSError as error:
        yield _unreadable(folder, error.strerror or str(error))
        return
    if run:
        yield _listed(folder)
    for inner in inside:
        yield from _runs(inner, depth - 1)


def _is_plain(folder: Path) -> bool:
    return folder.is_dir() and not folder.is_symlink() and not folder.name.startswith(".")


def _listed(folder: Path) -> Listed:
    try:
        status = look(folder)
        if status.done is None and status.state != "finished":
            return Listed(str(folder), status.method, _state(status), started=_started(folder))
        record = read(folder)
        return Listed(
            str(folder),
            record.label,
            _state(status),
            status.epsilon,
            _headline(record),
            _started(folder),
            record.totals.get("wall"),
            caveat=status.caveat,
            refused=status.epsilon is None and bool(status.refused or status.by),
        )
    except MurmuraError as error:
        where = (error.where or "").removeprefix(f"{folder}/")  # the folder stands before it already
        return _unreadable(folder, f"{where}: {error.what}" if where else error.what)
    except Exception as error:  # one folder, whatever is wrong with it, does not hide the others
        return _unreadable(folder, f"{type(error).__name__}: {error}")


def _unreadable(folder: Path, why: str) -> Listed:
    return Listed(str(folder), DASH, "unreadable", problem=f"unreadable: {why}")


def _state(status: Status) -> str:
    of = "" if status.rounds is None else f" of {status.rounds}"
    if status.state == "finished":
        return "finished"
    if status.state == "running" and status.round is not None:
        return f"running: round {status.round}{of}"
    return status.state if status.done is None else f"{status.state}: round {status.done}{of}"


def _headline(record: RunRecord) -> str:
    """Of the last round in which any was measured, with its interval where there is one."""
    wanted = ("accuracy", "heldout_loss", *HEADLINES)
    for one in reversed(record.rounds):
        for key in wanted:
            if key in one.values:
                return f"{figure(key).name} {figure(key).words(one.row)}"
    return DASH


def _started(folder: Path) -> str | None:
    told = files.value(folder / names.ENVIRONMENT, schema.Environment)
    return None if told is None else told.started

"""A run at one moment, from what its folder holds. The run itself takes no notice of who looks."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from murmura.errors import CheckpointError
from murmura.federation.server.ledger import Ledger
from murmura.measure.catalogue import CATALOGUE
from murmura.privacy.standing import PrivacySpent, standing
from murmura.runs import files, names, schema
from murmura.runs.folder import RunFolder
from murmura.runs.locks import is_running
from murmura.runs.previous import is_run

State = Literal["waiting", "running", "stopped", "finished"]
HEADLINES = tuple(one.key for one in CATALOGUE if one.column == "always" and not (one.total or one.promise))
"""Figures that are worth a look while a run goes on. ε is told by itself, by all that has been spent."""
_PROMISE = ("epsilon", "delta", "unit", "caveat", "refused")
_RECENT = 3  # rounds that tell how long the next ones take


@dataclass(frozen=True)
class Status:
    """What there is to tell; None or empty wherever it is not known.

    Attributes:
        name: of the run.
        method: by its name in the experiment.
        state: ``waiting`` for sites to be there, before the first round or after a restart.
        rounds: how many there are to be.
        done: the last round that was saved; 0: the measurement before training.
        round: that is being worked on; None while it is none after the last saved one.
        verb: what sites are being asked.
        asked: how many of them.
        left: how many of those have not answered yet.
        waiting: sites that are waited for, by name, the first few of them.
        events: what went otherwise than planned in this round, in words.
        bytes_up, bytes_down: that have travelled so far for the method, in lost rounds too.
        epsilon, delta, unit: that are guaranteed; of a run that is not finished by all that its ledgers hold, which may
            be more than it has saved; ``unit`` is what one of is hidden.
        by: what says so, in words, where that is more than the last saved round tells; empty where it is that.
        caveat: what makes that worth less than it looks.
        refused: why there is no ε, of a run that promises one, as the last saved round tells.
        figures: by key (``measure.catalogue``), of the last round in which any was measured, ``measured`` its number.
        seconds_left: at the pace of the last rounds.
        withheld: why nobody but the run's owner may watch it before its end, in words; empty: anybody may.
    """

    name: str
    method: str
    state: State
    rounds: int | None = None
    done: int | None = None
    round: int | None = None
    verb: str | None = None
    asked: int | None = None
    left: int | None = None
    waiting: tuple[str, ...] = ()
    events: tuple[str, ...] = ()
    bytes_up: int | None = None
    bytes_down: int | None = None
    epsilon: float | None = None
    delta: float | None = None
    unit: str | None = None
    by: str = ""
    caveat: str | None = None
    refused: str | None = None
    figures: Mapping[str, float] = field(default_factory=dict)
    measured: int | None = None
    seconds_left: float | None = None
    withheld: str = ""

    @property
    def published(self) -> Status:
        """What anybody may see.

        Raises:
            CheckpointError: that is nothing before the end of a run that promises an ε: to see when a round ends, or an
                answer comes, would be to see how many records it has read, or how many sites it has asked.
        """
        if self.withheld:
            what = f"before the run has ended nobody but its owner may watch it: {self.withheld}"
            raise CheckpointError(what, where=self.name, fix="Look at it yourself: `murmura status RUN`.")
        return self


def look(folder: Path) -> Status:
    """How a run is doing, for its owner.

    Raises:
        CheckpointError: there is no run, or a file of it cannot be understood.
    """
    if not is_run(folder):
        fix = "Give a folder in which `murmura run` or `murmura serve` has begun a run."
        raise CheckpointError("there is no run in this folder", where=str(folder), fix=fix)
    live = files.state(folder / names.CHECKPOINTS / names.LIVE)
    config = folder / names.CONFIG
    experiment = files.toml(files.text(config) or "", config)
    run, method = experiment.get("run", {}), experiment.get("method", {})
    rows = [row for _, row in files.lines(folder / names.METRICS)]
    up, down = _traffic(folder, rows)
    state, recorded = _state(folder, live), _recorded(rows)
    # Methods may have rounds in which no site is asked, beside those that their options name.
    over = recorded.get("done") if state == "finished" else None
    found = Status(
        name=str(run.get("name") or folder.resolve().name),
        method=str(method.get("name", "")),
        state=state,
        withheld="" if state == "finished" else _withheld(folder),
        rounds=over or live.get("rounds") or method.get("rounds"),
        bytes_up=up,
        bytes_down=down,
        **recorded,
    )
    if state != "finished" and not found.refused:
        found = _counting(found, standing(folder, found.done or 0, method))
    if found.state == "waiting":
        return replace(found, waiting=tuple(live["expected"]))
    if found.state != "running":
        return found
    round = live.get("round")
    if round is not None and found.done is not None and round <= found.done:
        round = None  # the run is being taken up again, or is at its end
    timed = [row for _, row in files.lines(folder / names.FIGURES) if "round" in row]  # where times are not published
    return replace(
        found,
        round=round,
        verb=live.get("verb"),
        asked=live.get("asked"),
        left=live.get("left"),
        waiting=tuple(live.get("waiting", ())),
        events=tuple(live.get("events", ())),
        seconds_left=_seconds_left(timed or rows, found, round, live),
    )


def _withheld(folder: Path) -> str:
    """Why nobody else may watch a run; that it has not been noted where it has not, or what has is damaged."""
    noted = files.state(folder / names.CHECKPOINTS / names.WITHHELD)
    return str(noted.get("why", "what others may see of it is noted when it begins or is resumed, and is not yet"))


def _state(folder: Path, live: Mapping[str, Any]) -> State:
    works = is_running(folder)  # in it: once it is finished, maybe to measure or to audit it
    if not works or not live:
        finished = files.value(folder / names.SUMMARY, schema.Summary) is not None
        return "finished" if finished else "running" if works else "stopped"
    return "waiting" if "expected" in live else "running"


def _recorded(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the rows of saved rounds tell."""
    if not rows:
        return {}
    last = rows[-1]
    privacy = last.get("privacy") or {}
    told = {"done": last["round"], **{key: privacy.get(key) for key in _PROMISE}}
    for row in reversed(rows):
        figures = {key: float(row[key]) for key in HEADLINES if isinstance(row.get(key), int | float)}
        if figures:
            return {**told, "figures": figures, "measured": row["round"]}
    return told


def _counting(found: Status, spent: PrivacySpent | None) -> Status:
    """With what the ledgers hold, where that is more than the last saved round tells, which may tell nothing yet."""
    if spent is None or (found.epsilon is None and not spent.unsaved):
        return found
    if found.epsilon is not None and spent.epsilon is not None and spent.epsilon <= found.epsilon:
        return found
    delta, unit = found.delta or spent.delta, found.unit or spent.unit
    return replace(found, epsilon=spent.epsilon, by=spent.by, delta=delta, unit=unit)


def _traffic(folder: Path, rows: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    """Bytes up and down: of all that has travelled, or where that is no longer kept, in the rounds that were saved."""
    sent = RunFolder(folder).sent()
    if sent:
        ledger = Ledger()
        ledger.restore(sent.get("told", sent["ledger"]))
        return ledger.traffic().up, ledger.traffic().down
    return sum(row.get("bytes_up") or 0 for row in rows), sum(row.get("bytes_down") or 0 for row in rows)


def _seconds_left(
    rows: Sequence[Mapping[str, Any]], found: Status, round: int | None, live: Mapping[str, Any]
) -> float | None:
    """At the pace of the last rounds; None before one is over."""
    walls = [float(row["wall"]) for row in rows if row.get("round") and row.get("wall") is not None][-_RECENT:]
    if not walls or not found.rounds:
        return None
    pace = sum(walls) / len(walls)
    if round is None:
        return (found.rounds - (found.done or 0)) * pace
    return (found.rounds - round) * pace + max(pace - (time.time() - live["began"]), 0.0)

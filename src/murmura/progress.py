"""Progress bars and phase times: one place that knows how a long thing is shown and measured.

Bars appear when standard error is a terminal; otherwise (a log file, CI) a line is printed now and then, with the date
and time. Both tell how much time is left. With ``MURMURA_LOG=json`` in the environment, which worker processes inherit,
each line is a JSON object instead: ``time`` (UTC), ``message``, and what it is about.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Literal, get_args

LOG_FORMAT = "MURMURA_LOG"
"""In the environment: ``json``, or ``text``."""
_SECONDS_BETWEEN_LINES = 15.0

PhaseName = Literal["train", "generate", "score", "evaluate", "attack", "audit"]
"""What time is spent on. No other name is told to another process: one that is put together may hold what a site keeps
to itself."""

Told = dict[str, Any]
"""How far a process has come, as JSON: ``phase`` (its name) and ``tenths`` that are done; None when it is over."""

_relay: Callable[[Told], None] | None = None
_asides: list[Callable[[str], None]] = []  # of blocks that are discreet, in whatever threads
_said: list[set[str]] = []  # what was said where each line is said once
_others: dict[str, Bar] = {}  # what other processes work on, shown here


def clock(seconds: float) -> str:
    """A time as 4:05 or 1:04:05."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class Bar:
    """A handle on one long thing: call ``advance`` as it goes on.

    Args:
        done: what was done before, by an earlier process; it says nothing of how fast this one is.
    """

    def __init__(self, description: str, total: float | None, done: float = 0) -> None:
        self.description, self.total, self.done, self._before = description, total, done, done
        self._begun = self._last = time.monotonic()
        self._task = None
        if _is_terminal():
            with _display:
                self._task = _live().add_task(description, total=total, completed=done, bar=self)

    def advance(self, amount: float = 1) -> None:
        self.done += amount
        if self._task is not None:
            _live().advance(self._task, amount)
        elif not _asides and time.monotonic() - self._last > _SECONDS_BETWEEN_LINES:
            self._last = time.monotonic()
            of = f"/{self.total:g}" if self.total else ""
            left = f", {self.left_in_words}" if self.left_in_words else ""
            about = {"event": "progress", "done": self.done, "total": self.total, "seconds_left": self.left}
            _log(f"{self.description}: {self.done:g}{of}{left}", about)

    @property
    def left(self) -> float | None:
        """Seconds until all is done at the rate so far; None where nothing is done yet, or nobody knows how much."""
        rate = (self.done - self._before) / max(time.monotonic() - self._begun, 1e-9)
        return max(self.total - self.done, 0) / rate if self.total and rate else None

    @property
    def left_in_words(self) -> str:
        """``left`` as 4:05 left or 1:04:05 left, empty where it is not known."""
        return "" if self.left is None else f"{clock(self.left)} left"

    def close(self) -> None:
        if self._task is not None:
            with _display:
                _live().remove_task(self._task)
                _stop_if_idle()


@contextmanager
def bar(description: str, total: float | None = None, done: float = 0) -> Iterator[Bar]:
    """A bar for the time of a ``with`` block; bars inside each other stand one below the other. See ``Bar``."""
    handle = Bar(description, total, done) if _relay is None else Relayed(total, _relay)
    try:
        yield handle
    finally:
        handle.close()


@contextmanager
def discreet(aside: Callable[[str], None]) -> Iterator[None]:
    """For the time of a ``with`` block, print only what is said to be public, and that without the time: the rest tells
    what a run does, and how long that takes. On a terminal bars are shown all the same, since they are gone in the end.

    Args:
        aside: gets the other lines, with date and time.
    """
    _asides.append(aside)
    try:
        yield
    finally:  # of blocks that overlap, none ends another
        _asides.remove(aside)


@contextmanager
def once() -> Iterator[None]:
    """For the time of a ``with`` block, or of a function that this decorates, say each line once."""
    said: set[str] = set()
    _said.append(said)
    try:
        yield
    finally:
        _said[:] = [one for one in _said if one is not said]


def say(message: str, *, public: bool = False, **about: Any) -> None:
    """A line for the person who watches the run; it does not disturb the bars.

    Args:
        public: anybody may read it, whatever the run keeps secret; see ``discreet``.
        about: what it is about, JSON, for programs that read the lines: ``event`` (``round``, ``planned``,
            ``unplanned``, ``progress``), ``round``, ``site``, figures.
    """
    if _said:
        if message in _said[-1]:
            return
        _said[-1].add(message)
    if _asides and _relay is None and not public:
        _asides[-1](f"{_now()} {message}")
    elif _relay is not None:
        _print(_object(message, about) if _is_json() else message)
    elif _is_terminal():
        with _display:
            _live().console.print(message, markup=False, highlight=False)
            _stop_if_idle()
    else:
        _log(message, about)


def _log(message: str, about: Mapping[str, Any]) -> None:
    dated: Mapping[str, Any] = {} if _asides else {"time": datetime.now(UTC).isoformat(timespec="milliseconds")}
    plain = message if _asides else f"{_now()} {message}"
    _print(_object(message, about, dated) if _is_json() else plain)


def _print(line: str) -> None:
    """Write a line at once, so that those of several threads stand below each other."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _object(message: str, about: Mapping[str, Any], dated: Mapping[str, Any] | None = None) -> str:
    known = {name: value for name, value in about.items() if value is not None}
    return json.dumps({**(dated or {}), "message": message, **known}, ensure_ascii=False, default=str)


def _is_json() -> bool:
    return os.environ.get(LOG_FORMAT) == "json"


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S")


class Relayed(Bar):
    """In a process that shows no bars: of a bar within a phase, that phase's name and the tenths that are done. See
    ``relay``."""

    def __init__(self, total: float | None, send: Callable[[Told], None]) -> None:
        self.total, self.done, self._send = total, 0.0, send
        self._phase, self._tenths = _phase.get(), 0
        self._tell(0)

    def advance(self, amount: float = 1) -> None:
        self.done += amount
        tenths = min(int(10 * self.done / self.total), 10) if self.total else 0
        if tenths != self._tenths:
            self._tenths = tenths
            self._tell(tenths)

    def close(self) -> None:
        self._tell(None)

    def _tell(self, tenths: int | None) -> None:
        if self._phase is not None:
            self._send({"phase": self._phase, "tenths": tenths})


def relay(send: Callable[[Told], None]) -> None:
    """From now on show no bars in this process, and send how far it is to one that will ``show`` it. Lines are printed
    here and are not sent: what they say is for whoever owns this process."""
    global _relay
    _relay = send


def show(told: Told, who: str) -> None:
    """Show what another process, known as ``who``, has relayed. What ``relay`` would not have sent is not shown."""
    phase, tenths = told.get("phase"), told.get("tenths")
    if phase not in get_args(PhaseName) or not (tenths is None or tenths in range(11)):
        return
    shown, description = _others.get(who), f"{who}: {phase}"
    if shown is None or tenths is None or tenths < shown.done or description != shown.description:
        forget(who)
        if tenths is None:
            return
        shown = _others[who] = Bar(description, 10)
    shown.advance(tenths - shown.done)


def forget(who: str) -> None:
    """Close the bar of another process that is gone."""
    if who in _others:
        _others.pop(who).close()


class Phases:
    """What is spent while it collects.

    Attributes:
        seconds: in each phase, by its name.
        memory: bytes that other processes have had at their peaks so far, added up.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.memory = 0

    def add(self, name: str, seconds: float) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds


_phases: ContextVar[Phases | None] = ContextVar("phases", default=None)
_phase: ContextVar[PhaseName | None] = ContextVar("phase", default=None)


def add_phases(seconds: Mapping[str, float], memory: int) -> None:
    """Count what other processes have spent; see ``Phases``."""
    collector = _phases.get() or Phases()
    collector.memory = memory
    for name, spent in seconds.items():
        collector.add(name, spent)


def collect_phases() -> Phases:
    """Start collecting phase times anew; returns the collector."""
    phases = Phases()
    _phases.set(phases)
    return phases


@contextmanager
def phase(name: PhaseName) -> Iterator[None]:
    """Count the block's time towards phase ``name``; of phases inside each other the outermost counts.

    Raises:
        ValueError: there is no phase of that name.
    """
    if name not in get_args(PhaseName):
        raise ValueError(f"no phase is called {name!r}")
    if _phase.get():
        yield
        return
    token = _phase.set(name)
    start = time.perf_counter()
    try:
        yield
    finally:
        _phase.reset(token)
        collector = _phases.get()
        if collector is not None:
            collector.add(name, time.perf_counter() - start)


def _is_terminal() -> bool:
    return sys.stderr.isatty() and not _is_json()


_progress = None
_display = threading.RLock()  # for whoever starts or stops the display, or relies on its being there


def _live():  # type: ignore[no-untyped-def]
    """The one rich display of the process, started when first needed."""
    global _progress
    if _progress is None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
        from rich.table import Column

        _progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[bar].left_in_words}", table_column=Column(no_wrap=True)),
            console=Console(stderr=True),
            transient=True,
        )
        _progress.start()
    return _progress


def _stop_if_idle() -> None:
    global _progress
    if _progress is not None and not _progress.tasks:
        _progress.stop()
        _progress = None

"""Sites in worker processes of this machine, each with a model and a share of the sites of its own: one a GPU, or as
many as asked for. Only bytes pass between them and the server."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from murmura.errors import RunError
from murmura.federation.engines.process import WorkerProcess
from murmura.federation.wire.frames import answer_of, ask_frame, frame, unframe
from murmura.federation.wire.messages import LATE, Ask, Failure, Payload, Reply
from murmura.progress import add_phases, bar, forget, say, show

if TYPE_CHECKING:
    from murmura.experiment.simulation import Simulated

_NAMED = 5  # sites named in a message


class ProcessesEngine:
    """Sends every worker the asks for its sites at once, and hands on replies in the order of the sites, so that sums
    come out the same in every run.

    A worker that dies is noticed at once; its sites do not answer any more.

    Args:
        processes: the workers, each of which is told the folders of its share of the sites, and nothing else.
        folders: of the sites, in the order of the run.
        protected: whole sites are, so that none may keep another's answer out of a sum: a worker that dies with several
            ends the run.

    Raises:
        RunError: a worker could not open its sites.
    """

    def __init__(
        self, processes: Sequence[WorkerProcess], folders: Mapping[str, Path], *, protected: bool = False
    ) -> None:
        self.sites, self._number, self._protected = list(folders), 0, protected
        self._lines = [_Line(process, self.sites[place :: len(processes)]) for place, process in enumerate(processes)]
        self._line_of = {site: line for line in self._lines for site in line.sites}
        number = self._next()
        for line in self._lines:
            own = [str(folders[site]) for site in line.sites]
            line.send(number, frame({"folders": own, "number": number}))
        for line in self._lines:
            if (why := line.rest(number, None)) is not None:
                what, fix = f"{line.name} could not be set up ({why})", "What it said itself stands above."
                raise RunError(what, where=f"sites {line.named}", fix=fix)
        self._add_phases(self._lines)

    def ask(self, ask: Ask, sites: Sequence[str]) -> Iterator[Reply | Failure]:
        """Replies in the order of ``sites``. A failure names a class of error, a worker that died, or that time is
        up.

        Raises:
            RunError: a worker died with several sites that are protected as wholes.
        """
        number = self._next()
        asked: dict[_Line, list[str]] = {}
        for site in sites:
            asked.setdefault(self._line_of[site], []).append(site)
        for line, names in asked.items():
            line.send(number, ask_frame(ask.narrowed(names), names, number=number))
        until = None if ask.seconds is None else time.monotonic() + ask.seconds
        found: dict[str, Reply | Failure] = {}
        with bar(f"answers to '{ask.verb}'", len(sites)) as progress:
            for site in sites:
                line = self._line_of[site]
                while site not in found:
                    answer = line.take(number, until)
                    if isinstance(answer, str):
                        self._require_alone(line)
                        answer = Failure(site, answer)
                    found[answer.site] = answer
                progress.advance()
                yield found.pop(site)
        for line in asked:
            line.rest(number, until)
        self._add_phases(asked)

    def _require_alone(self, line: _Line) -> None:
        """Stop once the worker of several protected sites is dead, by what one of them may have in its records."""
        if self._protected and line.end is not None and len(line.sites) > 1:
            raise RunError(
                f"{line.name} {line.end}, and so {len(line.sites)} sites do not answer any more; one of them may have "
                "kept the others out of a sum, which the ε of whole sites does not cover",
                where=f"sites {line.named}",
                fix=f"Give each site a worker of its own (run.workers = {len(self.sites)}), and start with --resume.",
            )

    def close(self) -> None:
        """Let the workers go."""
        for line in self._lines:
            line.process.release()
        for line in self._lines:
            line.process.end()
            forget(line.name)

    def _add_phases(self, lines: Iterable[_Line]) -> None:
        """Count what the busiest worker has spent in phases: the others worked at the same time."""
        spent = [line.phases() for line in lines]
        memory = sum(line.memory for line in self._lines)
        add_phases(max(spent, key=lambda seconds: sum(seconds.values()), default={}), memory)

    def _next(self) -> int:
        self._number += 1
        return self._number


class _Line:
    """The line to one worker. A thread reads it, so that neither end ever waits for the other to make room.

    Args:
        sites: that live there.

    Attributes:
        end: how the worker ended, once it has.
        memory: its peak memory so far, in bytes.
    """

    def __init__(self, process: WorkerProcess, sites: Sequence[str]) -> None:
        self.name, self.process, self.sites = process.name, process, list(sites)
        self.end: str | None = None
        self.memory = 0
        self._received: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._outstanding: deque[int] = deque()
        self._failed: dict[int, str | None] = {}
        self._seconds: dict[str, float] = {}
        threading.Thread(target=self._read, name=self.name, daemon=True).start()

    @property
    def named(self) -> str:
        """The first of its sites, for messages."""
        return ", ".join(self.sites[:_NAMED]) + (" ..." if len(self.sites) > _NAMED else "")

    def _read(self) -> None:
        with suppress(EOFError, OSError):
            while True:
                self._received.put(self.process.connection.recv_bytes())
        self._received.put(None)

    def send(self, number: int, message: bytes) -> None:
        self._outstanding.append(number)
        with suppress(OSError):  # of a worker that is gone the reader learns too
            self.process.connection.send_bytes(message)

    def take(self, number: int, until: float | None) -> Reply | Failure | str:
        """The next answer to message ``number``; or why there is none, in words. Answers that come too late, to earlier
        messages, are dropped."""
        while True:
            if self.end is not None:
                return f"{self.name} {self.end}"
            if number in self._failed:
                return self._failed[number] or "it was not answered for"
            try:
                message = self._received.get(timeout=None if until is None else max(0.0, until - time.monotonic()))
            except queue.Empty:
                return LATE
            if message is None:
                self.end = self.process.end()
                forget(self.name)
                say(f"{self.name} {self.end}; its sites do not answer any more: {self.named}")
                continue
            head, parts = unframe(message)
            if "told" in head:
                show(head["told"], self.name)
            elif "done" in head:
                self._finish(head["done"])
            elif self._outstanding[0] == number:
                return answer_of(head, parts)

    def rest(self, number: int, until: float | None) -> str | None:
        """Wait until message ``number`` is done with; why that went wrong, in words, or None."""
        while number not in self._failed:
            answer = self.take(number, until)
            if isinstance(answer, str) and number not in self._failed:
                return answer
        return self._failed[number]

    def _finish(self, done: Payload) -> None:
        self._outstanding.popleft()
        self._failed = {done["number"]: done["failed"]}
        self.memory = done["memory"]
        for name, seconds in done["seconds"].items():
            self._seconds[name] = self._seconds.get(name, 0.0) + seconds

    def phases(self) -> dict[str, float]:
        """Seconds that the worker has spent in phases since this was last asked."""
        seconds, self._seconds = self._seconds, {}
        return seconds


def start(simulation: Simulated) -> ProcessesEngine:
    """Play the sites in worker processes, which share the processor's cores.

    Raises:
        RunError: a process could not be started, or could not open its sites; none is left.
    """
    count = min(simulation.workers, len(simulation.folders))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with ExitStack() as started:
        workers = []
        for place in range(count):
            workers.append(WorkerProcess(f"worker {place}", max(cores // count, 1), simulation.program))
            started.callback(workers[-1].end)
        engine = ProcessesEngine(workers, simulation.folders, protected=simulation.protected)
        started.pop_all()
    return engine

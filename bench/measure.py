"""Time and memory of a program from its start to its exit, and the machine in words."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_MARK = "MURMURA_BENCH_MARK"
_INTERVAL = 0.2  # seconds between two looks at memory

HAS_PSS = Path("/proc/self/smaps_rollup").exists()
MEMORY_IN_WORDS = (
    f"largest proportional set size (PSS) of the process tree, looked at every {_INTERVAL:g} s"
    if HAS_PSS
    else "largest resident set (max RSS) of any one process"
)


class ProgramFailedError(Exception):
    """A measured program did not end well; carries the end of what it wrote."""


@dataclass(frozen=True)
class Cost:
    """Seconds from start to exit, and peak memory in bytes (see ``MEMORY_IN_WORDS``)."""

    wall: float
    memory: int


def measure(command: Sequence[str], environment: Mapping[str, str], log: Path) -> Cost:
    """Run a program; what it writes goes to ``log``.

    Raises:
        ProgramFailedError: its exit status is not 0.
    """
    mark = uuid.uuid4().hex
    with log.open("wb") as file:
        begun = time.perf_counter()
        process = subprocess.Popen(
            command, env={**os.environ, **environment, _MARK: mark}, stdout=file, stderr=subprocess.STDOUT
        )
        watch = _Watch(mark)
        status = process.wait()
        wall = time.perf_counter() - begun
        memory = watch.stop()
    if status:
        raise ProgramFailedError(f"{' '.join(command)} ended with status {status}:\n{log.read_text()[-3000:]}")
    return Cost(wall, memory)


class _Watch:
    """Adds up, now and then, the memory of all processes that inherited a mark in their environment.

    Going by the environment finds those too that let go of their parent, as Ray's do.
    """

    def __init__(self, mark: str) -> None:
        self._mark, self._is_ours, self._peak = f"{_MARK}={mark}".encode(), {}, 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def stop(self) -> int:
        self._ended.set()
        self._thread.join()
        if HAS_PSS:
            return self._peak
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024

    def _look(self) -> None:
        while HAS_PSS and not self._ended.wait(_INTERVAL):
            self._peak = max(self._peak, sum(self._pss(name) for name in os.listdir("/proc") if name.isdigit()))

    def _pss(self, pid: str) -> int:
        """Bytes of a process, 0 if it is not ours or has gone."""
        try:
            if pid not in self._is_ours:
                self._is_ours[pid] = self._mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            if not self._is_ours[pid]:
                return 0
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
            return next(int(line.split()[1]) * 1024 for line in rollup.splitlines() if line.startswith("Pss:"))
        except (OSError, StopIteration):
            return 0


def machine() -> str:
    """Processor, cores, memory, GPU where there is one, and how busy it is."""
    words = [f"{_processor()}, {cores()} cores"]
    if hasattr(os, "sysconf"):
        words.append(f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 1e9:.0f} GB")
    try:
        query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"]
        words += subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip().splitlines()
    except (OSError, subprocess.CalledProcessError):
        words.append("no GPU")
    return f"{', '.join(words)}; load average {os.getloadavg()[0]:.1f} at the start"


def cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()

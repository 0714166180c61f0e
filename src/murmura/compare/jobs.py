"""The runs of a comparison: each in a process of its own, kept once it is finished, resumed if it was stopped."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL, SIGTERM, Signals
from statistics import fmean
from threading import Event, Lock
from typing import Any

from murmura import atomic
from murmura.compare.arms import Candidate
from murmura.errors import MAY_PASS, MISTAKE, RunError, explaining
from murmura.experiment.config import Experiment
from murmura.experiment.resume import has_more_to_do
from murmura.progress import clock, say
from murmura.runs import files, jsontext
from murmura.runs.folder import RunFolder
from murmura.runs.locks import is_running
from murmura.runs.names import NOT_FOR_PUBLICATION, PRIVATE, REPORT, STATES
from murmura.runs.record import RunRecord, read
from murmura.training.states import SHARED
from murmura.units import several

_BESIDE_UTILITY = {"attacks", "attack_records", "uploads", "memorisation", "choices", "benchmarks"}
"""Options of [evaluation] that are about other figures than the utility."""
NOT_SEARCHED = {"evaluation.sample", "audit.keep", "personal.steps"}
"""Options that are others in a search, by which it comes to the same rate."""
RUNS, SEARCH = "runs", "search"
"""Folders in that of a comparison."""
FIGURES, TABLE, PICTURE = "comparison.json", "comparison.md", "comparison.svg"
AT_ONCE = "at_once.json"
"""Beside runs: how many shared the machine with each at most, by the names of their folders."""
WRITTEN = (FIGURES, TABLE, PICTURE, REPORT)
"""Files in it, besides its runs."""
_AGAIN = "Fix what they report, and give the same command again: it keeps finished runs, and resumes the others."
_LOOK = 1.0  # seconds from one look at whether another process still works in a run's folder to the next
_LAST = 12  # lines of a failed run's log that are shown
_SHARED = ".murmura-states"
"""In a comparison's folder, what its runs share while it goes on. All that is in it is removed, so it has a name that
nobody else gives."""


@dataclass(frozen=True)
class Job:
    """One run of an arm.

    Attributes:
        arm: whose.
        seed: of the run.
        rate: that it trains at.
        folder: where it is kept.
        searching: it looks for a rate, and so nothing is measured that no rate is chosen by, attacks least of all.
        chosen_by: folders of the runs by which its rate was chosen, or other options.
    """

    arm: Candidate
    seed: int
    rate: float
    folder: Path
    searching: bool = False
    chosen_by: tuple[Path, ...] = ()

    @property
    def tables(self) -> dict[str, Any]:
        """What is run, as the tables of an experiment file."""
        tables = self.arm.experiment.tables()
        tables["run"] |= {"name": self.folder.name, "folder": str(self.folder), "seed": self.seed}
        tables["run"] |= {"chosen_by": [str(one) for one in self.chosen_by]} if self.chosen_by else {}
        tables["training"]["lr"] = self.rate
        if self.searching:
            measured = tables["evaluation"]
            tables["evaluation"] = {key: value for key, value in measured.items() if key not in _BESIDE_UTILITY}
            tables["evaluation"] |= {"attacks": False, "every": self.arm.experiment.method.total_rounds}
            tables["evaluation"] |= {"sample": 0} if self.arm.experiment.task.writes else {}
            tables["audit"] = {key: value for key, value in tables["audit"].items() if key != "keep"}
            if "personal" in tables:  # what it sets apart stays apart, and nobody reads what it trains
                tables["personal"]["steps"] = 1
        return tables

    @property
    def experiment(self) -> Experiment:
        """What is run.

        Raises:
            ConfigError: the rate does not go with other options.
        """
        return Experiment.of(self.tables, where=self.title)

    @property
    def finished(self) -> bool:
        return RunFolder(self.folder).is_finished

    @property
    def is_over(self) -> bool:
        """Whether it is finished, and has nothing left to write or to remove."""
        return self.finished and not has_more_to_do(RunFolder(self.folder))

    @property
    def title(self) -> str:
        return f"{self.arm.name}, seed {self.seed}, rate {self.rate:g}"

    @property
    def states(self) -> Path:
        """Where runs of its comparison share what frozen layers compute: see ``shared_states``."""
        return self.folder.resolve().parent.parent / _SHARED / STATES


@dataclass(frozen=True)
class Ended:
    """How the process of a run has ended.

    Attributes:
        seconds: that it took.
        problem: the end of what it printed, where it failed.
        from_outside: it failed by what was done to it, or by no error that is known, as where memory runs out: so that
            says nothing of what it ran.
        may_pass: it failed by what may pass by itself, as with a full disk or all workers gone. Where sites have
            workers, or an ε is promised, so does one at whose rate all sites diverge.
    """

    seconds: float
    problem: str = ""
    from_outside: bool = False
    may_pass: bool = False


@contextmanager
def shared_states(folder: Path) -> Iterator[None]:
    """Let runs within share what frozen layers compute of their records, which are mostly the same.

    Args:
        folder: of the comparison; when it ends, whatever way, none of that is left in it.
    """
    place = folder / _SHARED
    shutil.rmtree(place, ignore_errors=True)  # of one that was killed
    try:
        yield
    finally:
        shutil.rmtree(place, ignore_errors=True)


def work(
    jobs: Sequence[Job], at_once: int, told: Callable[[Job], str], before: Sequence[Job] = ()
) -> list[tuple[Job, Ended]]:
    """Do all runs that are not over, so many at once.

    Args:
        told: of a run that has finished, what to say of it.
        before: others of the same arms, by which to tell how long theirs will take.

    Returns:
        those that failed, and how. The others were done all the same.
    """
    open_ones = [job for job in jobs if not job.is_over]
    if not open_ones:
        return []
    failed: list[tuple[Job, Ended]] = []
    watch, under_way = _Watch(jobs, before, at_once), _UnderWay(jobs[0].folder.parent / AT_ONCE)
    pool = ThreadPoolExecutor(at_once)
    try:
        waiting = {pool.submit(_beside, job, at_once, under_way): job for job in open_ones}
        for future in as_completed(waiting):
            job = waiting[future]
            ended = future.result()
            watch.done(job, None if ended.problem else ended.seconds)
            if ended.problem:
                failed.append((job, ended))
            came_to = "failed" if ended.problem else told(job)
            say(f"{job.title}: {came_to}; {watch.words}", event="run", run=str(job.folder))
    except BaseException:
        under_way.end()
        pool.shutdown(wait=True, cancel_futures=True)
        raise
    pool.shutdown()
    return failed


class _Watch:
    """How many runs are done, and how long the others will take: as those of the same arm that were done."""

    def __init__(self, jobs: Sequence[Job], before: Sequence[Job], at_once: int) -> None:
        self._open = [job.arm.name for job in jobs if not job.is_over]
        self._total, self._at_once = len(jobs), at_once
        self._before, self._took = _times(before), _times(jobs)

    def done(self, job: Job, seconds: float | None) -> None:
        """
        Args:
            seconds: that it took; None where it failed, which says nothing of the others.
        """
        self._open.remove(job.arm.name)
        if seconds is not None:
            whole = read(job.folder).totals.get("wall", 0.0)  # with what an earlier process did of it
            self._took.setdefault(job.arm.name, []).append(max(seconds, whole))

    @property
    def words(self) -> str:
        done = f"{self._total - len(self._open)} of {self._total} runs done"
        known = self._before | self._took  # what has measured less says something where there is nothing else
        if not self._open or not known:
            return done
        mean = fmean(map(fmean, known.values()))
        left = sum(fmean(known[name]) if name in known else mean for name in self._open)
        return f"{done}, about {clock(left / min(self._at_once, len(self._open)))} left"


def _times(jobs: Sequence[Job]) -> dict[str, list[float]]:
    """Seconds of finished runs, by arm; without those that keep them secret."""
    found: dict[str, list[float]] = {}
    for job in jobs:
        if job.finished and (wall := read(job.folder).totals.get("wall")):
            found.setdefault(job.arm.name, []).append(wall)
    return found


class _UnderWay:
    """The processes of runs that work now, which end when the comparison is ended.

    Args:
        file: where it is noted of each run with how many others, itself among them, it has shared the machine at most.
    """

    def __init__(self, file: Path) -> None:
        self._processes = set[subprocess.Popen[bytes]]()
        self._lock, self._ended = Lock(), Event()
        self._file, self._now = file, set[str]()

    @contextmanager
    def sharing(self, job: Job) -> Iterator[None]:
        """A run's time on the machine."""
        name, again = job.folder.name, RunFolder(job.folder).holds_run
        with self._lock:
            self._now.add(name)
            noted = {one: most for one, most in files.state(self._file).items() if one != name or again}
            noted |= {one: max(noted.get(one, 1), len(self._now)) for one in self._now}
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with atomic.replacing(self._file) as stream:
                stream.write(jsontext.dumps(noted).encode())
        try:
            yield
        finally:
            with self._lock:
                self._now.discard(name)

    def wait_for(self, job: Job) -> None:
        """Wait until no other process works in a run's folder: where a comparison was killed, its runs go on."""
        if is_running(job.folder):
            what = "waits for another process in its folder, such as a run whose comparison was killed"
            say(f"{job.title}: {what}", event="run waits", run=str(job.folder))
        while is_running(job.folder) and not self._ended.wait(_LOOK):
            pass

    def run(self, command: Sequence[str], **options: Any) -> int:
        """Run a command to its end, in a session of its own: a terminal's Ctrl-C is for the comparison, which hands it
        on once. Where all has been ended, none starts any more.

        Returns:
            its exit code.
        """
        with self._lock:
            if self._ended.is_set():
                return -SIGTERM
            process = subprocess.Popen(command, start_new_session=True, **options)
            self._processes.add(process)
        code = process.wait()
        with self._lock:
            self._processes.discard(process)
        return code

    def end(self) -> None:
        """End them, as by hand: they save what they have."""
        with self._lock:
            self._ended.set()
            for process in self._processes:
                process.terminate()


def shared(folder: Path, runs: Iterable[RunRecord]) -> int:
    """Most runs that have shared the machine with one of these that tell how long they took.

    Args:
        folder: of the comparison.
    """
    noted = files.state(folder / RUNS / AT_ONCE)
    return max([1, *(noted.get(run.folder.name, 1) for run in runs if run.totals.get("wall"))])


def _beside(job: Job, at_once: int, under_way: _UnderWay) -> Ended:
    """A run, among others."""
    began = time.monotonic()
    what, fix = "the runs of a comparison cannot be kept here", "and give the same command again"
    with explaining(what, job.folder.parent, fix), nullcontext() if job.searching else under_way.sharing(job):
        under_way.wait_for(job)
        return Ended(time.monotonic() - began) if job.is_over else _run(job, at_once, under_way)


def _run(job: Job, at_once: int, under_way: _UnderWay) -> Ended:
    """A run in a process of its own.

    Args:
        under_way: what its process is among while it works.
    """
    kept, began = RunFolder(job.folder), time.monotonic()
    job.folder.parent.mkdir(parents=True, exist_ok=True)
    file = job.folder.with_name(f"{job.folder.name}.toml")
    log = job.folder.parent / PRIVATE / f"{job.folder.name}.log"
    with atomic.replacing(file) as stream:
        stream.write(job.experiment.dump().encode())
    again = ["--resume"] if kept.holds_run else []
    threads = str(max(1, (os.cpu_count() or 1) // at_once))
    limited = {"OMP_NUM_THREADS": threads} if at_once > 1 else {}
    begins = f"{'goes on' if again else 'begins'}, and tells how far it is in {log}"
    say(f"{job.title}: {begins}", event="run begins", run=str(job.folder))
    if not log.exists() or not log.stat().st_size:  # the disk may have been full
        atomic.append(log, f"{NOT_FOR_PUBLICATION}\n".encode())
    with log.open("ab") as output:
        code = under_way.run(
            [sys.executable, "-m", "murmura", "run", str(file), *again],
            env={**os.environ, **limited, SHARED: str(job.states)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[1:]
    problem = "" if code == 0 else "\n".join([*lines[-_LAST:], *_last_words(code)])
    return Ended(time.monotonic() - began, problem, code not in (0, MISTAKE, MAY_PASS), code == MAY_PASS)


def _last_words(code: int) -> Iterator[str]:
    """What a process that ended so could not say itself."""
    if code > 0:
        yield f"It ended with exit code {code}."
    elif code == -SIGKILL:
        yield "It was killed. If the system ran out of memory, run fewer at once (--jobs)."
    else:
        yield f"It was ended by {Signals(-code).name}."


def require_done(failed: Sequence[tuple[Job, Ended]], instead: str = "", where: Path | None = None) -> None:
    """
    Args:
        instead: what else may be done, in a sentence.
        where: the page without them.

    Raises:
        RunError: some runs failed; with what each printed last.
    """
    if failed:
        told = "\n".join(f"{job.folder}:\n{ended.problem}" for job, ended in failed)
        done = sum(job.finished for job, _ in failed)
        what = f"{'; '.join(_failures(len(failed) - done, done))}:\n{told}"
        raise RunError(what, where=str(where) if where else None, fix=f"{_AGAIN} {instead}".strip())


def _failures(unfinished: int, finished: int) -> Iterator[str]:
    """How many runs failed without their figures, and how many with them, as where a disk is full in the end."""
    if unfinished:
        yield f"{several(unfinished, 'run')} failed, and stand{'s' * (unfinished == 1)} in no figure"
    if finished:
        yield f"{several(finished, 'run')} failed with all figures made, before the rest was written or removed"

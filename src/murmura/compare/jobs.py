"""The runs of a comparison: each in a process of its own, kept once it is finished, resumed if it was stopped."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL, SIGTERM, Signals
from statistics import fmean
from threading import Lock
from typing import Any

from murmura import atomic
from murmura.audit.subject import hold_to_digests
from murmura.compare.arms import Candidate
from murmura.compare.config import RATE
from murmura.config import leaves, shown
from murmura.errors import CheckpointError, MurmuraError, RunError, explaining
from murmura.experiment.augmenting import opened
from murmura.experiment.config import Experiment
from murmura.experiment.inputs import require_same_inputs
from murmura.experiment.prepare import Plan
from murmura.measure.evaluation_set import record_set
from murmura.progress import clock, say
from murmura.runs import jsontext
from murmura.runs.folder import RunFolder
from murmura.runs.names import NOT_FOR_PUBLICATION, PRIVATE, REPORT, STATES
from murmura.runs.record import read
from murmura.training.states import SHARED
from murmura.units import listing

_RUN = ("engine", "workers", "answer_seconds", "slots", "cache_bytes", "decode_rows", "name", "folder", "chosen_by")
_SPEED = {f"run.{key}" for key in _RUN}
"""Options that change no result, or only how the run is called."""
_BESIDE_UTILITY = {"attacks", "attack_records", "uploads", "memorisation", "choices", "benchmarks"}
"""Options of [evaluation] that are about other figures than the utility."""
RUNS, SEARCH = "runs", "search"
"""Folders in that of a comparison."""
FIGURES, TABLE, PICTURE = "comparison.json", "comparison.md", "comparison.svg"
WRITTEN = (FIGURES, TABLE, PICTURE, REPORT)
"""Files in it, besides its runs."""
_AGAIN = "Fix what they report, and give the same command again: it keeps finished runs, and resumes the others."
_ELSEWHERE = (
    "Give another folder (--out). Where an ε is promised, name this run and the arm's search in run.chosen_by of the "
    "file: they count there too, and removing them does not undo what they have spent."
)
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
        tables = tomllib.loads(self.arm.experiment.dump())
        tables["run"] |= {"name": self.folder.name, "folder": str(self.folder), "seed": self.seed}
        tables["run"] |= {"chosen_by": [str(one) for one in self.chosen_by]} if self.chosen_by else {}
        tables["training"]["lr"] = self.rate
        if self.searching:
            measured = tables["evaluation"]
            tables["evaluation"] = {key: value for key, value in measured.items() if key not in _BESIDE_UTILITY}
            tables["evaluation"] |= {"attacks": False, "every": self.arm.experiment.method.total_rounds}
            tables["evaluation"] |= {"sample": 0} if self.arm.experiment.task.writes else {}
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
    def title(self) -> str:
        return f"{self.arm.name}, seed {self.seed}, rate {self.rate:g}"


def require_own(folder: Path) -> None:
    """Hold a comparison's folder to being no file and no run's, and what would be written there to an earlier one's.

    Raises:
        CheckpointError: it is not; nothing of it is touched.
    """
    fix = "Give the comparison another one (--out, or compare.folder)."
    if folder.exists() and not folder.is_dir():
        raise CheckpointError("this is a file, and a comparison is kept in a folder", where=str(folder), fix=fix)
    if RunFolder(folder).holds_run:
        raise CheckpointError("a run is kept in this folder", where=str(folder), fix=fix)
    there = [name for name in WRITTEN if (folder / name).exists()]
    if there and not _is_comparison(folder):
        what = f"{listing(there)} is here already, and no comparison has written it"
        raise CheckpointError(what, where=str(folder), fix=fix)


def _is_comparison(folder: Path) -> bool:
    """Whether a comparison has left its figures here, or a run. Any folder may have one called ``runs``."""
    kept = (run for name in (RUNS, SEARCH) for run in (folder / name).glob("*"))
    return "murmura" in _figures(folder) or any(RunFolder(run).holds_run for run in kept)


def side_by_side(folder: Path) -> int:
    """Most runs that shared the machine when an earlier command made this comparison; 1 where that is not known."""
    found = _figures(folder).get("at_once")
    return found if isinstance(found, int) else 1


def _figures(folder: Path) -> dict[str, Any]:
    """What a comparison has left; nothing where that cannot be read."""
    try:
        found = jsontext.loads((folder / FIGURES).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def require_same(jobs: Sequence[Job], rates: Collection[float] = ()) -> None:
    """Hold runs that are there already to what would be run, and to the files that it would read.

    Args:
        rates: of which they may have any, where it is not known yet which it will be; if not given, their own alone.

    Raises:
        CheckpointError: a folder holds another experiment, or one that has read something else; nothing of it is
            touched.
        DataError, ConfigError: the pool of [augment] is not there, or is not what is asked for.
    """
    for job in jobs:
        kept = RunFolder(job.folder)
        if not kept.holds_run:
            continue
        # Read as an experiment, a run of an earlier version has the defaults of options that came later; and it has
        # written out what its pool was made with.
        asked, _ = opened(job.experiment)
        there, wanted = (_deciding(one.dump()) for one in (Experiment.load(kept.config), asked))
        # A finished search was measured in its last round, however often besides.
        no_matter = {"evaluation.every"} if job.searching and job.finished else set[str]()
        no_matter |= {"evaluation.sample"} if job.searching else set()  # by which no rate is chosen
        no_matter |= {RATE} if there.get(RATE) in rates else set()
        for key in sorted({*there, *wanted} - no_matter):
            if there.get(key) != wanted.get(key) and wanted.get(key) != "auto":  # for which a run writes what it took
                asks = " or ".join(map(shown, rates)) if key == RATE and rates else shown(wanted.get(key))
                what = f"this run has {key} = {shown(there.get(key))}, and the comparison asks for {asks}"
                fix = _ELSEWHERE
                if key == RATE and not rates and not job.searching and len(job.arm.rates) > 1:
                    what += ", the best of the rates as the search has it now"
                    fix = f"To keep these runs, leave {asks} out of the arm's rates. Or: {fix}"
                raise CheckpointError(what, where=str(job.folder), fix=fix)
        if kept.metrics.exists():
            require_same_inputs(kept, asked)


def looks_for(arm: Candidate, folder: Path) -> bool:
    """Whether a run of a search is one for an arm, by its experiment, whatever that was called; true where that cannot
    be read."""
    try:
        there, wanted = (_deciding(one.dump()) for one in (Experiment.load(RunFolder(folder).config), arm.experiment))
    except MurmuraError:
        return True
    keys = {key for key in {*there, *wanted} - {RATE, "run.seed"} if not key.startswith("evaluation.")}
    return all(there.get(key) == wanted.get(key) or wanted.get(key) in ("auto", None) for key in keys)


def require_same_records(job: Job, plan: Plan) -> None:
    """Hold a finished run to the records that it would be made with now, where files do not tell: of a hub's data set.

    Args:
        plan: of a dry run, which has no encoder: where one shares records out, they are not compared.

    Raises:
        CheckpointError: one of them has changed since.
    """
    records = None if plan.decided.data.may_cluster else plan.records
    if not job.finished or records is None:
        return
    try:
        hold_to_digests(RunFolder(job.folder), records.planted.sites)
    except MurmuraError as error:
        raise _on_others(job, f"{error.what} ({error.where})") from None
    noted = read(job.folder).measured
    heldout = record_set(records.public.heldout, secret=False).digest
    if noted is not None and noted.heldout.digest not in (None, heldout):
        raise _on_others(job, "it was measured on other held-out records than there are now")


def _on_others(job: Job, what: str) -> CheckpointError:
    what = f"this run cannot be compared with others: {what}"
    fix = "Bring it back as it was, or give another folder (--out)."
    return CheckpointError(what, where=str(job.folder), fix=fix)


def _deciding(text: str) -> dict[str, Any]:
    """The options in an experiment's file that its results depend on, by their full names."""
    return {key: value for key, value in leaves(tomllib.loads(text)) if key not in _SPEED}


@contextmanager
def shared_states(folder: Path) -> Iterator[None]:
    """Let runs within share what frozen layers compute of their records, which are mostly the same.

    Args:
        folder: of the comparison; when it ends, whatever way, none of that is left in it.
    """
    place = folder / _SHARED
    shutil.rmtree(place, ignore_errors=True)  # of one that was killed
    os.environ[SHARED] = str(place.resolve() / STATES)
    try:
        yield
    finally:
        del os.environ[SHARED]
        shutil.rmtree(place, ignore_errors=True)


def work(
    jobs: Sequence[Job], at_once: int, told: Callable[[Job], str], before: Sequence[Job] = ()
) -> list[tuple[Job, str]]:
    """Do all runs that are not finished, so many at once.

    Args:
        told: of a run that has finished, what to say of it.
        before: others of the same arms, by which to tell how long theirs will take.

    Returns:
        those that failed, each with the last lines that it printed. The others were done all the same.
    """
    open_ones = [job for job in jobs if not job.finished]
    if not open_ones:
        return []
    failed: list[tuple[Job, str]] = []
    watch, under_way = _Watch(jobs, before, at_once), _UnderWay()
    pool = ThreadPoolExecutor(at_once)
    try:
        waiting = {pool.submit(_run, job, at_once, under_way): job for job in open_ones}
        for future in as_completed(waiting):
            job = waiting[future]
            seconds, problem = future.result()
            watch.done(job, None if problem else seconds)
            if problem:
                failed.append((job, problem))
            say(f"{job.title}: {'failed' if problem else told(job)}; {watch.words}", event="run", run=str(job.folder))
    except BaseException:
        under_way.end()
        pool.shutdown(wait=True, cancel_futures=True)
        raise
    pool.shutdown()
    return failed


class _Watch:
    """How many runs are done, and how long the others will take: as those of the same arm that were done."""

    def __init__(self, jobs: Sequence[Job], before: Sequence[Job], at_once: int) -> None:
        self._open = [job.arm.name for job in jobs if not job.finished]
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
        return f"{done}, about {clock(left / self._at_once)} left"


def _times(jobs: Sequence[Job]) -> dict[str, list[float]]:
    """Seconds of finished runs, by arm; without those that keep them secret."""
    found: dict[str, list[float]] = {}
    for job in jobs:
        if job.finished and (wall := read(job.folder).totals.get("wall")):
            found.setdefault(job.arm.name, []).append(wall)
    return found


class _UnderWay:
    """The processes of runs that work now, which end when the comparison is ended."""

    def __init__(self) -> None:
        self._processes = set[subprocess.Popen[bytes]]()
        self._lock, self._ended = Lock(), False

    def run(self, command: Sequence[str], **options: Any) -> int:
        """Run a command to its end, in a session of its own: a terminal's Ctrl-C is for the comparison, which hands it
        on once. Where all has been ended, none starts any more.

        Returns:
            its exit code.
        """
        with self._lock:
            if self._ended:
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
            self._ended = True
            for process in self._processes:
                process.terminate()


def _run(job: Job, at_once: int, under_way: _UnderWay) -> tuple[float, str]:
    """Seconds that a run took, and the end of what it printed where it failed.

    Args:
        under_way: what its process is among while it works.
    """
    what, fix = "the runs of a comparison cannot be kept here", "and give the same command again"
    with explaining(what, job.folder.parent, fix):
        return _ran(job, at_once, under_way)


def _ran(job: Job, at_once: int, under_way: _UnderWay) -> tuple[float, str]:
    kept, began = RunFolder(job.folder), time.monotonic()
    job.folder.parent.mkdir(parents=True, exist_ok=True)
    file = job.folder.with_name(f"{job.folder.name}.toml")
    log = job.folder.parent / PRIVATE / f"{job.folder.name}.log"
    with atomic.replacing(file) as stream:
        stream.write(job.experiment.dump().encode())
    again = ["--resume"] if kept.holds_run else []
    threads = str(max(1, (os.cpu_count() or 1) // at_once))
    shared = {"OMP_NUM_THREADS": threads} if at_once > 1 else {}
    begins = f"{'goes on' if again else 'begins'}, and tells how far it is in {log}"
    say(f"{job.title}: {begins}", event="run begins", run=str(job.folder))
    if not log.exists() or not log.stat().st_size:  # the disk may have been full
        atomic.append(log, f"{NOT_FOR_PUBLICATION}\n".encode())
    with log.open("ab") as output:
        code = under_way.run(
            [sys.executable, "-m", "murmura", "run", str(file), *again],
            env={**os.environ, **shared},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[1:]
    return time.monotonic() - began, "" if code == 0 else "\n".join([*lines[-_LAST:], *_last_words(code)])


def _last_words(code: int) -> Iterator[str]:
    """What a process that ended so could not say itself."""
    if code > 0:
        yield f"It ended with exit code {code}."
    elif code == -SIGKILL:
        yield "It was killed. If the system ran out of memory, run fewer at once (--jobs)."
    else:
        yield f"It was ended by {Signals(-code).name}."


def require_done(failed: Sequence[tuple[Job, str]], instead: str = "") -> None:
    """
    Args:
        instead: what else may be done, in a sentence.

    Raises:
        RunError: some runs failed; with what each printed last.
    """
    if failed:
        told = "\n".join(f"{job.folder}:\n{problem}" for job, problem in failed)
        runs = "1 run failed, and stands" if len(failed) == 1 else f"{len(failed)} runs failed, and stand"
        what = f"{runs} in no figure:\n{told}"
        raise RunError(what, fix=f"{_AGAIN} {instead}".strip())

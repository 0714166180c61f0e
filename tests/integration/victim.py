"""Runs experiments in child processes that are killed at given moments, then resumes them.

Called as ``victim.py FOLDER``, where FOLDER/NAME.toml are experiments, with the stories of each on standard input as
JSON: {NAME: [STORY, ...]}. A story is a few moments in turn: a run is started in FOLDER/NAME/NUMBER and killed at the
first moment, resumed and killed at the second, and so on; then resumed to its end. FOLDER/NAME/whole is never killed.
The children are forks of one process, so that what takes long to import is imported once.

A moment is ``WHERE:N``, at the N-th call of that place in the child's life, or a share of the time that a whole run
takes, after which the parent kills it. ``flip:FILES`` kills nobody: a bit of the first of those files in the newest
checkpoint turns over, or of the newest of those files that sites keep. ``sync@SHARE`` is as many calls of fsync into
the child's life as that share of all that a whole run makes. ``WHO@SHARE`` is the same in messages to and from worker
processes, and kills the server, a worker, or both.

FOLDER/NAME NUMBER.uploads has a line for each upload that has reached the server's process from a worker, with the name
of the site.

Workers are forks too, for the same reason; all that they do is what worker processes do.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sys
import time
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import murmura.experiment.run as running
from murmura.augment import lead
from murmura.errors import RunError
from murmura.experiment import Experiment, worker
from murmura.federation import exporting
from murmura.federation.engines import process, processes
from murmura.federation.server import checkpoint
from murmura.federation.site import cohort
from murmura.methods.dplora import method as dplora
from murmura.runs import folder, names

STOPPED = 3  # exit status of a child whose run had to stop


def die():
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass
class Clock:
    """Counts calls of a function, and does something at one of them."""

    count: int = 0
    at: int = 0
    then: object = None

    def ticking(self, function):
        def called(*args, **options):
            self.count += 1
            if self.count == self.at:
                self.then()
            return function(*args, **options)

        return called

    def set(self, share, total, then):
        self.count, self.at, self.then = 0, max(1, round(share * total)), then


SYNCS, FRAMES = Clock(), Clock()
UPLOADS = {"at": None}  # where they are noted


class Forked(process.WorkerProcess):
    """A worker process without the time that imports take."""

    last = None  # one that this process has made
    alive = None  # a pipe's end that all processes of a run hold open

    def __init__(self, name, threads, program):
        self.name, self.ended = name, None
        ours, theirs = socket.socketpair()
        self.process = os.fork()
        if not self.process:
            SYNCS.at = 0
            kept = sorted({theirs.fileno(), Forked.alive or 2})
            for low, high in zip([2, *kept], [*kept, os.sysconf("SC_OPEN_MAX")], strict=True):
                os.closerange(low + 1, high)
            worker.main(theirs.detach())
            os._exit(0)
        theirs.close()
        self._pipe, self.connection = ours, Connection(os.dup(ours.fileno()))
        Forked.last = self.process

    def end(self):
        self.release()
        if self.ended is None:
            self.ended = os.waitpid(self.process, 0)[1]
        return f"ended with {self.ended}"


def kill(who):
    """Kill the server, which this process is, a worker, or both."""
    if who in ("worker", "both"):
        os.kill(Forked.last, signal.SIGKILL)
    if who in ("server", "both"):
        die()


def noting(function):
    """``function``, which decodes what a site answers; uploads are noted, whatever becomes of this process then."""

    def noted(*args):
        answer = function(*args)
        if "adapter" in getattr(answer, "fields", {}):
            with UPLOADS["at"].open("a") as file:
                file.write(f"{answer.site}\n")
        return answer

    return noted


def dying(function, at, part_of=None):
    """``function``, which at its ``at``-th call does a part of its work, or none, and then ends the process."""
    calls = 0

    def called(*args, **options):
        nonlocal calls
        calls += 1
        if calls == at:
            if part_of is not None:
                part_of(*args, **options)
            die()
        return function(*args, **options)

    return called


def half_written(path, data, **_):
    path.write_bytes(data[: len(data) // 2])


def half_removed(path, **_):
    next(file for file in sorted(Path(path).rglob("*")) if file.is_file()).unlink()


def arm(moment):
    """Make this process die at ``moment``."""
    where, _, number = moment.partition(":")
    at = int(number)
    match where:
        case "train":
            cohort.train = dying(cohort.train, at)
        case "upload":  # it has reached the server, and its round is not saved
            dplora.guarantee.note = dying(dplora.guarantee.note, at)
        case "send":  # public records are chosen
            lead.Augmentation._fitting = dying(lead.Augmentation._fitting, at)
        case "told":  # they are at the sites
            plain, of_records = folder.RunFolder.write, dying(folder.RunFolder.write, at)
            folder.RunFolder.write = lambda *a: (of_records if a[1] == names.AUGMENT else plain)(*a)
        case "write":
            checkpoint.atomic.write = dying(checkpoint.atomic.write, at, half_written)
        case "rename":
            checkpoint.Path.rename = dying(Path.rename, at)
        case "renamed":
            checkpoint.Path.rename = dying(Path.rename, at, Path.rename)
        case "remove":
            real, of_a_whole_one = shutil.rmtree, dying(shutil.rmtree, at, half_removed)
            shutil.rmtree = lambda path, **o: (of_a_whole_one if (path / "run.json").exists() else real)(path, **o)
        case "metrics":
            folder.RunFolder.write_metrics = dying(folder.RunFolder.write_metrics, at)
        case "describe":
            running._describe = dying(running._describe, at)
        case "finish":
            running.leave_adapter = exporting.leave_adapter = dying(running.leave_adapter, at)
        case _:
            raise ValueError(moment)


def child(experiment, moment=None, totals=None):
    """Fork a process that runs the experiment, or resumes it; returns its id, and a pipe's end at which nothing
    comes until it and its workers are gone."""
    until, Forked.alive = os.pipe()
    process = os.fork()
    if process:
        os.close(Forked.alive)
        return process, until
    try:
        who, at, share = (moment or "").partition("@")
        if who == "sync":
            SYNCS.set(float(share), totals["sync"], die)
        elif at:
            FRAMES.set(float(share), totals["frame"], lambda: kill(who))
        elif moment is not None and ":" in moment:
            arm(moment)
        running.run(experiment, resume=(experiment.run.path / "config.toml").exists())
    except RunError as error:
        print(error, file=sys.stderr)
        os._exit(STOPPED)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def flip(folder, files):
    """Turn over the last bit of a file of the newest checkpoint, or of the newest of those that a site keeps."""
    if files.startswith("private/"):
        file = max(folder.glob(files), key=lambda path: path.name)
    else:
        file = sorted(max((folder / "checkpoint").glob("round-*")).glob(files))[0]
    data = file.read_bytes()
    file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


def status(process, until):
    found = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    os.read(until, 1)
    os.close(until)
    return found


def tell(experiment, story, whole, totals):
    """One story, to its end.

    Args:
        whole: the time in seconds that a whole run takes.
        totals: how many calls of fsync and messages it makes.
    """
    saved = -1
    for moment in story.split():
        if moment.startswith("flip:"):
            flip(experiment.run.path, moment.removeprefix("flip:"))
            saved -= 1
            continue
        process, until = child(experiment, moment, totals)
        if moment.startswith("worker@"):
            assert status(process, until) in (STOPPED, 0), (story, moment)  # 0: what died had nothing left to do
        elif ":" in moment:
            assert status(process, until) == -signal.SIGKILL, (story, moment)
        elif "@" in moment:
            assert status(process, until) in (-signal.SIGKILL, 0), (story, moment)  # progress comes as it likes
        else:
            time.sleep(float(moment) * whole)
            os.kill(process, signal.SIGKILL)
            assert status(process, until) in (-signal.SIGKILL, 0), (story, moment)  # it may have been faster
        found = checkpoint.latest(experiment.run.path / "checkpoint")
        if found is None and (experiment.run.path / "summary.json").exists():
            return  # it is finished all the same, and keeps no checkpoint, since it promises privacy
        assert (found.round if found else -1) >= saved, (story, moment)  # what was saved is not lost by going on
        saved = found.round if found else -1
    assert status(*child(experiment)) == 0, story


def main():
    root = Path(sys.argv[1])
    running.build_report = lambda folders, page: None  # drawing takes longer than all the rest
    processes.WorkerProcess = Forked
    os.fsync = SYNCS.ticking(os.fsync)
    processes.unframe = FRAMES.ticking(processes.unframe)
    processes._Line.send = FRAMES.ticking(processes._Line.send)
    processes.answer_of = noting(processes.answer_of)
    for name, stories in json.load(sys.stdin).items():

        def load(folder, name=name):
            UPLOADS["at"] = root / f"{name} {folder}.uploads"
            return Experiment.load(root / f"{name}.toml", set={"run.folder": str(root / name / folder)})

        running.run(load("whole"))
        start = time.monotonic()
        SYNCS.count = FRAMES.count = 0
        running.run(load("again"))
        whole, totals = time.monotonic() - start, {"sync": SYNCS.count, "frame": FRAMES.count}
        for number, story in enumerate(stories):
            tell(load(str(number)), story, whole, totals)


if __name__ == "__main__":
    main()

"""Runs an experiment in child processes that are killed at given moments, then goes on with it.

Called as ``victim.py EXPERIMENT FOLDER < moments``: each line of standard input is one story, a few moments in turn. For
each story a run is started in its own folder and killed at the first moment, resumed and killed at the second, and so
on; then resumed to its end. The children are forks of one process, so that what takes long to import is imported once.

A moment is ``WHERE:N``, at the N-th call of that place in the child's life, or a share of the time that a whole run
takes, after which the parent kills it.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from functools import partial
from pathlib import Path

import murmura.experiment.run as running
from murmura.experiment import Experiment
from murmura.federation import checkpoint, cohort, folder


def die():
    os.kill(os.getpid(), signal.SIGKILL)


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


def half_written(path, data):
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
        case "write":
            checkpoint._write = dying(checkpoint._write, at, half_written)
        case "rename":
            checkpoint.Path.rename = dying(Path.rename, at)
        case "renamed":
            checkpoint.Path.rename = dying(Path.rename, at, Path.rename)
        case "remove":
            real = checkpoint.shutil.rmtree
            of_old = dying(real, at, half_removed)
            checkpoint.shutil.rmtree = lambda path, **o: (of_old if "round-" in Path(path).name else real)(path, **o)
        case "metrics":
            folder.RunFolder.write_metrics = dying(folder.RunFolder.write_metrics, at)
        case "describe":
            running._describe = dying(running._describe, at)
        case "finish":
            running.save_peft = dying(running.save_peft, at)
        case _:
            raise ValueError(moment)


def child(experiment, *, resume, moment=None):
    """Fork a process that runs the experiment; returns its id."""
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        if moment is not None and ":" in moment:
            arm(moment)
        running.run(experiment, resume=resume)
        code = 0
    finally:
        os._exit(code)


def status(process):
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def tell(experiment, story, whole):
    """One story; returns whether each of its moments came."""
    came = []
    for number, moment in enumerate(story):
        process = child(experiment, resume=number > 0, moment=moment)
        if ":" not in moment:
            time.sleep(float(moment) * whole)
            os.kill(process, signal.SIGKILL)
        came.append(status(process) == -signal.SIGKILL)
    assert status(child(experiment, resume=True)) == 0
    return came


def main():
    file, root = sys.argv[1:]
    load = partial(Experiment.load, file)
    start = time.monotonic()
    assert status(child(load(set={"run.folder": f"{root}/whole"}), resume=False)) == 0
    whole = time.monotonic() - start
    for number, line in enumerate(sys.stdin):
        came = tell(load(set={"run.folder": f"{root}/{number}"}), line.split(), whole)
        assert all(came), (line, came)


if __name__ == "__main__":
    main()

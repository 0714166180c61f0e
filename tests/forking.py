"""Processes of tests that are forks of one process, which has imported what takes long.

That process is started when the first fork is asked for, has a single thread, and knows nothing of any test.
"""

import multiprocessing
import os
import runpy
import socket
import subprocess
import sys
from multiprocessing.reduction import DupFd
from types import SimpleNamespace

IMPORTED = [
    "transformers.models.llama.modeling_llama",
    "peft",
    "sentence_transformers",
    "murmura.experiment.run",
    "murmura.experiment.context",
]

forks = multiprocessing.get_context("forkserver")
forks.set_forkserver_preload(IMPORTED)


class Fork:
    """What ``murmura.federation.engines.process`` needs of ``subprocess.Popen``."""

    def __init__(self, command, *, pass_fds, env, **_):
        [handle] = pass_fds
        assert command[-1] == str(handle)
        program = command[1:-1]
        reading, writing = os.pipe()
        self.stdout = os.fdopen(reading, "rb")
        with socket.socket(fileno=os.dup(handle)) as pipe:
            self._process = forks.Process(target=_work, args=(program, _Handle(pipe.fileno()), _Handle(writing), env))
            self._process.start()
        os.close(writing)

    @property
    def pid(self):
        return self._process.pid

    def wait(self, timeout=None):
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("a fork", timeout)
        return self._process.exitcode

    def kill(self):
        self._process.kill()


class _Handle:
    """A file descriptor on its way to a fork."""

    def __init__(self, number):
        self.number = number

    def __reduce__(self):
        return _arrived, (DupFd(self.number),)


def _arrived(handle):
    return handle.detach()


def _work(program, handle, printed, environment):
    """Run what Python would be told to run, with its output going to the pipe ``printed``."""
    os.setsid()
    for standard in (1, 2):
        os.dup2(printed, standard)
    os.close(printed)
    os.environ.update(environment)
    import torch

    torch.set_num_threads(int(environment["OMP_NUM_THREADS"]))
    sys.argv = [program[-1], str(handle)]
    if program[0] == "-m":
        runpy.run_module(program[1], run_name="__main__")
    else:
        runpy.run_path(program[0], run_name="__main__")


def forks_instead(monkeypatch):
    """Let worker processes be forks from now on."""
    from murmura.federation.engines import process

    instead = {name: getattr(subprocess, name) for name in ("DEVNULL", "PIPE", "STDOUT", "TimeoutExpired")}
    monkeypatch.setattr(process, "subprocess", SimpleNamespace(Popen=Fork, **instead))

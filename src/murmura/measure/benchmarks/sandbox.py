"""Runs programs that a model wrote, each in a process of its own that can do nothing but compute (``jail``).

A program has a working folder that is empty, no environment, no standard input, and its output goes nowhere. It may use
so many seconds of a processor and so much memory. On Linux (x86-64, ARM 64) the kernel refuses it everything else: it
can read files but open none for writing; it has no network, no other process, no thread, and nobody to signal to. What
it reads has no way out: nothing is learnt of a program but one of ``OUTCOMES``. It is right where the test passed to
its end, which the jail says with a token that the program is not given. That guards against what ends early, prints, or
replaces functions of modules, and not against deceit: a program shares its process with its test, and one that sets out
to pass for right can, for example by reading the token from the frames of what runs it.

Elsewhere (macOS, other processors) the limits are the system's own, and network, files and processes are not cut.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from murmura.errors import RunError

OUTCOMES = ("right", "wrong", "error", "not Python", "too long", "out of memory", "ended early", "crashed")
"""What becomes of a program: it passes its test; a comparison of the test fails; it raises something; it is no Python;
it takes too long; it takes too much memory; it ends before the test does; the interpreter dies of it."""

NOT_CUT = "the network, other processes and the files of whoever runs this"
"""What a program can reach where the kernel takes no filter of system calls."""

_JAIL = Path(__file__).with_name("jail.py")
# Nothing of the surroundings: no folder to import from but the standard library's, no site packages, no files written.
_PYTHON = ("-P", "-s", "-S", "-B", "-X", "utf8")
_ENVIRONMENT = {"PYTHONHASHSEED": "0"}  # sets have one order; the program does not see the variable
_TOLD = 4096  # most bytes of a report
_SPARE = 10.0  # seconds besides, in which a process starts on a busy machine
_AT_ONCE = 4  # processes


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """What a program may use.

    Attributes:
        seconds: Of a processor; three times as many, and a few to start in, by the clock.
        memory: Bytes.
        uncut: Run it even where it can reach what ``NOT_CUT`` says.
    """

    seconds: int
    memory: int
    uncut: bool = False

    @property
    def clock(self) -> float:
        """Seconds by the clock."""
        return 3 * self.seconds + _SPARE


@dataclass(frozen=True, slots=True)
class ProgramRun:
    """A program, and a test whose function ``check`` is given the program's function ``entry``."""

    program: str
    test: str
    entry: str


def outcomes(trials: Sequence[ProgramRun], limits: SandboxLimits) -> list[str]:
    """What becomes of each program, one of ``OUTCOMES``; a few run side by side.

    Raises:
        RunError: they cannot be run here, or only ``uncut``.
    """
    with ThreadPoolExecutor(min(_AT_ONCE, os.cpu_count() or 1)) as pool:
        return list(pool.map(lambda trial: _fate(trial, limits), trials))


def is_cut() -> bool:
    """Whether programs are kept from what ``NOT_CUT`` says.

    Raises:
        RunError: none can be run here.
    """
    trial = ProgramRun("def one():\n    return 1\n", "def check(one):\n    assert one() == 1\n", "one")
    told, _ = _tried(trial, SandboxLimits(10, 2**30, uncut=True))
    if told.get("outcome") != "right":
        raise RunError("programs cannot be run in a process of their own here", fix="Leave benchmarks of code out.")
    return bool(told["cut"])


def _fate(trial: ProgramRun, limits: SandboxLimits) -> str:
    told, code = _tried(trial, limits)
    if told.get("outcome") == "not run":
        raise RunError(f"a program that a model wrote could reach {NOT_CUT}, and was not run")
    if told.get("outcome") in OUTCOMES:
        return str(told["outcome"])
    if code is None or code in (-signal.SIGXCPU, -signal.SIGKILL):
        return "too long"
    return "crashed" if code < 0 else "ended early"


def _tried(trial: ProgramRun, limits: SandboxLimits) -> tuple[dict[str, Any], int | None]:
    """What the jail has told, empty where it was not heard; and how its process ended, None where it was stopped."""
    token = secrets.token_hex(16)
    job = asdict(trial) | asdict(limits) | {"token": token}
    hear, tell = os.pipe()
    os.set_blocking(hear, False)  # should something of the program live on and hold the other end
    try:
        with TemporaryDirectory(prefix="murmura-", ignore_cleanup_errors=True) as folder:
            code = _ran(json.dumps(job).encode(), folder, tell, limits.clock)
        try:
            told = json.loads(os.read(hear, _TOLD))
        except (BlockingIOError, ValueError):
            return {}, code
    finally:
        os.close(hear)
    return (told, code) if isinstance(told, dict) and told.get("token") == token else ({}, code)


def _ran(job: bytes, folder: str, tell: int, seconds: float) -> int | None:
    """How the process ended, None where it had to be stopped; nothing of its group is left."""
    try:
        process = subprocess.Popen(
            [sys.executable, *_PYTHON, str(_JAIL), str(tell)],
            cwd=folder,
            env=_ENVIRONMENT,
            pass_fds=(tell,),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    finally:
        os.close(tell)
    try:
        process.communicate(job, timeout=seconds)
        return process.returncode
    except subprocess.TimeoutExpired:
        return None
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

"""Programs that a model wrote can compute, and nothing else."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from murmura.errors import RunError
from murmura.measure.benchmarks import sandbox
from murmura.measure.benchmarks.sandbox import OUTCOMES, ProgramRun, SandboxLimits, is_cut, outcomes

LIMITS = SandboxLimits(seconds=1, memory=2**28, uncut=True)
TEST = "def check(candidate):\n    assert candidate() == 1\n"
RIGHT = "def f():\n    return 1\n"


def outcome(program, limits=LIMITS, test=TEST):
    [found] = outcomes([ProgramRun(program, test, "f")], limits)
    assert found in OUTCOMES
    return found


@pytest.fixture(scope="module")
def cut():
    """Only where the kernel takes a filter."""
    if not is_cut():
        pytest.skip("this system does not cut programs off")


def test_each_program_gets_its_own_fate():
    programs = {
        RIGHT: "right",
        "def f():\n    return 2\n": "wrong",
        "def f(:\n": "not Python",
        "\0": "not Python",
        "def g():\n    return 1\n": "error",
        "def f():\n    return f()\n": "error",
        "raise ValueError('right')\n": "error",
    }
    assert outcomes([ProgramRun(program, TEST, "f") for program in programs], LIMITS) == list(programs.values())


def test_whoever_ends_early_or_says_so_himself_has_not_passed():
    for end in (
        "import sys; sys.exit(0)",
        "import os; os._exit(0)",
        "print('right'); raise SystemExit(0)",
        'import os, sys\nos.write(int(sys.argv[1]), b\'{"outcome": "right", "token": ""}\')\nos._exit(0)',
        "def f():\n    import sys\n    sys.exit(0)\n",
    ):
        assert outcome(end) == "ended early", end


def test_a_test_that_is_itself_replaced_is_the_published_one_again():
    assert outcome("def check(candidate):\n    pass\n\ndef f():\n    return 2\n") == "wrong"


def test_whoever_replaces_functions_that_the_jail_uses_has_not_passed():
    wrong = "def check(candidate):\n    pass\n\ndef f():\n    return 2\n"
    for replaced in (
        "import json\nreal = json.dumps\njson.dumps = lambda told: real({**told, 'outcome': 'right'})",
        "import os\nreal = os.write\nos.write = lambda to, told: real(to, told.replace(b'wrong', b'right'))",
        "import builtins\nbuiltins.exec = lambda *of: None",
    ):
        assert outcome(f"{replaced}\n{wrong}") == "wrong", replaced


def test_a_fate_that_is_none_is_not_passed_on(monkeypatch):
    monkeypatch.setattr(sandbox, "_tried", lambda trial, limits: ({"outcome": "perfect"}, 0))
    assert outcomes([ProgramRun(RIGHT, TEST, "f")], LIMITS) == ["ended early"]


def test_it_sees_an_empty_folder_and_no_environment(monkeypatch):
    monkeypatch.setenv("SECRET", "of whoever runs this")
    assert outcome("import os\ndef f():\n    return int(not os.environ and os.listdir('.') == [])\n") == "right"


def test_what_it_prints_goes_nowhere(capfd):
    assert outcome("print('out')\nimport sys\nprint('err', file=sys.stderr)\n" + RIGHT) == "right"
    assert capfd.readouterr() == ("", "")


def test_an_interpreter_that_dies_is_told():
    assert outcome("import ctypes\ndef f():\n    ctypes.string_at(0)\n") == "crashed"


def test_modules_of_the_standard_library_can_be_used_and_no_others():
    usual = (
        "bisect, collections, copy, datetime, decimal, functools, hashlib, heapq, itertools, math, random, re, string"
    )
    own = "import dataclasses\n@dataclasses.dataclass\nclass One:\n    x: 'int' = 1\n"
    assert outcome(f"import {usual}, statistics, typing\n{own}def f():\n    return One().x\n") == "right"
    assert outcome(f"import numpy\n{RIGHT}") == "error"


def test_sets_have_the_same_order_in_every_run():
    command, fixed = [sys.executable, "-c", "print(hash('a'))"], {"PYTHONHASHSEED": "0"}
    told = subprocess.check_output(command, env=fixed, text=True)
    assert outcome(f"def f():\n    return int(hash('a') == {int(told)})\n") == "right"


REACHES = {
    "a process": "import os\nos.fork()",
    "a program": "import subprocess\nsubprocess.run(['true'])",
    "a thread": "import threading\nthreading.Thread(target=print).start()",
    "the network": "import socket\nsocket.create_connection(('127.0.0.1', {port}), timeout=1)",
    "a datagram": "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {port}))",
    "a file of its own": "open('own', 'w')",
    "a file": "open({file!r}, 'a')",
    "the end of a file": "import os\nos.open({file!r}, os.O_RDONLY | os.O_TRUNC)",
    "the length of a file": "import os\nos.truncate({file!r}, 0)",
    "removing a file": "import os\nos.remove({file!r})",
    "moving a file": "import os\nos.rename({file!r}, {file!r} + '2')",
    "the rights of a file": "import os\nos.chmod({file!r}, 0)",
    "the times of a file": "import os\nos.utime({file!r}, (0, 0))",
    "a folder": "import os\nos.mkdir('folder')",
    "a link": "import os\nos.symlink('/', 'link')",
    "a signal": "import os\nos.kill({pid}, {signal})",
    "a signal to all": "import os\nos.kill(-1, {signal})",
    "a signal to a group": "import os\nos.killpg({group}, {signal})",
    "its own limits": "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))",
    "another's memory": "open('/proc/{pid}/mem', 'r+b')",
}


def test_what_it_must_not_reach_is_refused(cut, tmp_path):
    """A signal would end the tests, were it sent; nobody hears on the port but this test."""
    kept = tmp_path / "kept"
    kept.write_text("as it was")
    before = kept.stat()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.01)
        reached = {"port": server.getsockname()[1], "file": str(kept), "pid": os.getpid(), "group": os.getpgrp()}
        reached["signal"] = int(signal.SIGTERM)
        caught = "def f():\n    try:\n{}\n    except (OSError, RuntimeError, ValueError):\n        return 1\n"
        trials = [
            ProgramRun(
                caught.format("\n".join(f"        {line}" for line in how.format(**reached).splitlines())), TEST, "f"
            )
            for how in REACHES.values()
        ]
        assert dict(zip(REACHES, outcomes(trials, LIMITS), strict=True)) == dict.fromkeys(REACHES, "right")
        with pytest.raises(TimeoutError):
            server.accept()
    after = kept.stat()
    assert kept.read_text() == "as it was" and (after.st_mode, after.st_mtime) == (before.st_mode, before.st_mtime)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_shells_find_nothing_to_run(cut, tmp_path):
    touched = tmp_path / "touched"
    assert outcome(f"import os\ndef f():\n    return int(os.system('touch {touched}') == 0)\n") == "wrong"
    assert not touched.exists()


def test_a_program_may_not_run_where_it_is_not_cut(monkeypatch, tmp_path):
    jail = tmp_path / "jail.py"
    text = sandbox._JAIL.read_text(encoding="utf-8")
    jail.write_text(text.replace('sys.platform != "linux"', "True", 1), encoding="utf-8")
    monkeypatch.setattr(sandbox, "_JAIL", jail)
    assert not is_cut()
    assert outcome(RIGHT) == "right"  # it was accepted
    with pytest.raises(RunError, match="could reach the network"):
        outcome(RIGHT, SandboxLimits(1, 2**28))


def test_where_nothing_can_be_run_that_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(sandbox, "_JAIL", tmp_path / "gone.py")
    with pytest.raises(RunError, match="cannot be run in a process of their own"):
        is_cut()


def test_time_by_the_clock_is_bounded_too(monkeypatch):
    monkeypatch.setattr(sandbox, "_SPARE", -2.5)  # half a second in all
    begun = time.monotonic()
    assert outcome("import time\ntime.sleep(1000)\n") == "too long"
    assert time.monotonic() - begun < 100


def test_nothing_is_left_behind(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = len(os.listdir("/dev/fd")), threading.active_count()
    assert outcomes([ProgramRun(RIGHT, TEST, "f")] * 3, LIMITS) == ["right"] * 3
    assert (len(os.listdir("/dev/fd")), threading.active_count()) == before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_loop_without_end_is_ended():
    stubborn = "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\n"
    assert outcome(f"{stubborn}def f():\n    while True:\n        pass\n") == "too long"
    caught = "def f():\n    while True:\n        try:\n            while True:\n                pass\n"
    assert outcome(f"{caught}        except BaseException:\n            pass\n") == "too long"


@pytest.mark.slow
def test_memory_is_bounded():
    grows = "def f():\n    found = []\n    while True:\n        found.append(bytearray(10**7))\n"
    assert outcome(grows) == "out of memory"
    assert outcome("def f():\n    return len('x' * 10**12)\n") == "out of memory"


@pytest.mark.slow
def test_processes_without_end_are_bounded():
    bomb = "import os\ndef f():\n    while True:\n        os.fork()\n"
    assert outcome(bomb) in ("error", "too long")

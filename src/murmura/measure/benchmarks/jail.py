"""Where a program that a model wrote is run: a Python of its own starts this file (``sandbox``), which nothing imports.

It needs the standard library alone. Before the program runs, the process gives up what the system lets it give up: time
and memory beyond limits, and on Linux every system call that a computation does not need. Then it can neither open a
file for writing, nor start a process or a thread, nor reach the network, nor signal another process.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import platform
import resource
import signal
import struct
import sys
import types
from collections.abc import Iterable


def _calls(table: str) -> dict[str, int]:
    """Numbers of system calls by their names."""
    return {name: int(number) for name, number in (call.split("=") for call in table.split())}


# Numbers of the system calls that a computation needs, from Linux' asm/unistd_64.h and asm-generic/unistd.h.
_X86 = _calls("""
    read=0 write=1 close=3 stat=4 fstat=5 lstat=6 poll=7 lseek=8 mmap=9 mprotect=10 munmap=11 brk=12 rt_sigaction=13
    rt_sigprocmask=14 rt_sigreturn=15 pread64=17 readv=19 access=21 select=23 sched_yield=24 mremap=25 madvise=28 dup=32
    nanosleep=35 getitimer=36 alarm=37 setitimer=38 getpid=39 exit=60 uname=63 getcwd=79 readlink=89 gettimeofday=96
    getrusage=98 sysinfo=99 times=100 getuid=102 getgid=104 geteuid=107 getegid=108 getppid=110 sigaltstack=131
    gettid=186 time=201 futex=202 sched_getaffinity=204 getdents64=217 restart_syscall=219 clock_gettime=228
    clock_getres=229 clock_nanosleep=230 exit_group=231 newfstatat=262 readlinkat=267 faccessat=269 pselect6=270
    ppoll=271 getrandom=318 statx=332 rseq=334 faccessat2=439
""")
_ARM = _calls("""
    getcwd=17 dup=23 faccessat=48 close=57 getdents64=61 lseek=62 read=63 write=64 readv=65 pread64=67 pselect6=72
    ppoll=73 readlinkat=78 newfstatat=79 fstat=80 exit=93 exit_group=94 futex=98 nanosleep=101 getitimer=102
    setitimer=103 clock_gettime=113 clock_getres=114 clock_nanosleep=115 sched_getaffinity=123 sched_yield=124
    restart_syscall=128 sigaltstack=132 rt_sigaction=134 rt_sigprocmask=135 rt_sigreturn=139 times=153 uname=160
    getrusage=165 gettimeofday=169 getpid=172 getppid=173 getuid=174 geteuid=175 getgid=176 getegid=177 gettid=178
    sysinfo=179 brk=214 munmap=215 mremap=216 mmap=222 mprotect=226 madvise=233 getrandom=278 statx=291 rseq=293
    faccessat2=439
""")
# By machine: the kernel's name of its calls (AUDIT_ARCH), those that are needed, and open (None: there is none),
# openat, fcntl and ioctl, where it depends on what is asked.
_MACHINES = {"x86_64": (0xC000003E, _X86, (2, 257, 72, 16)), "aarch64": (0xC00000B7, _ARM, (None, 56, 25, 29))}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_HARMLESS = (0, 1, 2, 3, 1030)  # fcntl's F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_DUPFD_CLOEXEC; others can send signals

# Instructions of the classic Berkeley Packet Filter, and what a filter can answer.
_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_NUMBER, _MACHINE, _ARGUMENTS = 0, 4, 16  # where struct seccomp_data has them
_KILL, _FAIL, _ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _SECCOMP_MODE_FILTER = 1, 22, 38, 2

_TOLD = ("right", "wrong", "error", "not Python", "out of memory", "ended early", "not run")
_FILES = 64  # open at once; modules are read from files


class _Filter(ctypes.Structure):
    """The kernel's struct sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def main() -> None:
    """Run the program of standard input, and write its outcome to the file descriptor that is the argument."""
    report, job = int(sys.argv[1]), json.loads(sys.stdin.buffer.read())
    os.environ.clear()
    limit(job["seconds"], job["memory"])
    cut = confine()
    # Made before the program runs, which may replace any function of any module. The token says who tells it.
    reports = {told: json.dumps({"token": job["token"], "outcome": told, "cut": cut}).encode() for told in _TOLD}
    write, leave = os.write, os._exit
    told = outcome(job["program"], job["test"], job["entry"]) if cut or job["uncut"] else "not run"
    write(report, reports[told])
    leave(0)  # whatever the program has registered to happen at the end


def outcome(program: str, test: str, entry: str) -> str:
    """What becomes of a program whose function ``entry`` is tested by the test's ``check``."""
    run, check = exec, compile(test, "test", "exec")  # the program may replace what is built in
    module = types.ModuleType("answer")  # so that what looks for its own module (dataclasses) finds one
    sys.modules["answer"] = module
    try:
        code = compile(program, "answer", "exec")
    except (SyntaxError, ValueError):
        return "not Python"
    except (MemoryError, RecursionError):
        return "error"
    try:
        run(code, module.__dict__)
        run(check, module.__dict__)
        module.__dict__["check"](module.__dict__[entry])
    except AssertionError:
        return "wrong"
    except MemoryError:
        return "out of memory"
    except (SystemExit, KeyboardInterrupt):
        return "ended early"
    except BaseException:
        return "error"
    return "right"


def limit(seconds: int, memory: int) -> None:
    """Bound this process: seconds of a processor, bytes of memory, files to write (none), processes (no other)."""
    wanted = {resource.RLIMIT_CPU: seconds, resource.RLIMIT_AS: memory, resource.RLIMIT_DATA: memory}
    wanted |= dict.fromkeys((resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC, resource.RLIMIT_CORE), 0)
    wanted |= {resource.RLIMIT_NOFILE: _FILES}
    for what, most in wanted.items():
        allowed = resource.getrlimit(what)[1]
        most = most if allowed == resource.RLIM_INFINITY else min(most, allowed)
        with contextlib.suppress(ValueError, OSError):  # some systems have no such limit
            resource.setrlimit(what, (most, most))


def confine() -> bool:
    """Give up all system calls but those that a computation needs; returns whether the kernel has agreed.

    What is left out fails as on a kernel that does not know it, so that the C library falls back to what it has.
    """
    machine = _MACHINES.get(platform.machine())
    if sys.platform != "linux" or machine is None or sys.maxsize < 2**32:
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    code = b"".join(_filter(*machine))
    memory = ctypes.create_string_buffer(code, len(code))
    program = _Filter(len(code) // 8, ctypes.addressof(memory))
    zero = ctypes.c_ulong(0)
    libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), zero, zero, zero)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), zero, zero, zero):
        return False
    mode = ctypes.c_ulong(_SECCOMP_MODE_FILTER)
    return not libc.prctl(_PR_SET_SECCOMP, mode, ctypes.byref(program), zero, zero)


def _filter(kernel: int, needed: dict[str, int], asking: tuple[int | None, int, int, int]) -> Iterable[bytes]:
    """Instructions of the filter, 8 bytes each."""
    opening, opening_at, controlling, device = asking
    yield from (_do(_LOAD, _MACHINE), _do(_EQUAL, kernel, 1, 0), _do(_RETURN, _KILL), _do(_LOAD, _NUMBER))
    for number in needed.values():
        yield from _when(number, [_do(_RETURN, _ALLOW)])
    for call, flags in ((opening, 1), (opening_at, 2)):
        if call is not None:
            asked = [_do(_LOAD, _ARGUMENTS + 8 * flags), _do(_ANY_BIT, _WRITING, 0, 1)]
            yield from _when(call, [*asked, _do(_RETURN, _FAIL | errno.EACCES), _do(_RETURN, _ALLOW)])
    commands = [one for command in _HARMLESS for one in _when(command, [_do(_RETURN, _ALLOW)])]
    yield from _when(controlling, [_do(_LOAD, _ARGUMENTS + 8), *commands, _do(_RETURN, _FAIL | errno.EPERM)])
    yield from _when(device, [_do(_RETURN, _FAIL | errno.ENOTTY)])  # nothing is a terminal
    yield _do(_RETURN, _FAIL | errno.ENOSYS)


def _when(number: int, then: list[bytes]) -> list[bytes]:
    """Instructions that are passed over unless the accumulator holds a number."""
    return [_do(_EQUAL, number, 0, len(then)), *then]


def _do(code: int, operand: int, if_so: int = 0, if_not: int = 0) -> bytes:
    """The kernel's struct sock_filter."""
    return struct.pack("HBBI", code, if_so, if_not, operand)


if __name__ == "__main__":
    main()

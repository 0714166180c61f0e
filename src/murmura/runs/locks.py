"""Locks on folders, which the system gives back when the process that holds them ends, however it ends."""

from __future__ import annotations

import fcntl
import resource
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from os.path import realpath
from pathlib import Path

from filelock import FileLock, Timeout

from murmura import atomic
from murmura.errors import CheckpointError, MurmuraError
from murmura.progress import say
from murmura.runs.names import site_of

LOCK = ".lock"
"""The file in a folder that is locked."""
_PATIENCE = 10  # seconds in which a worker whose server was killed ends
_OTHER_FILES = 512  # that a process may have open besides locks


def acquire_run(folder: Path) -> FileLock:
    """The lock of the folder of a run, or of a comparison.

    Raises:
        CheckpointError: another process works there.
        OSError: the lock cannot be opened.
    """
    lock = FileLock(folder / LOCK, timeout=0)
    try:
        lock.acquire()
    except Timeout as error:
        what, fix = "another process is running in this folder", "Wait for it, stop it, or choose another folder."
        raise CheckpointError(what, where=str(folder), fix=fix) from error
    return lock


def is_running(folder: Path) -> bool:
    """Whether a process works in a run folder just now."""
    try:
        with (folder / LOCK).open("rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def acquire(place: Path) -> FileLock:
    """The lock of what a site keeps in its folder, when no other process holds it any more.

    Raises:
        CheckpointError: another process still holds it.
        OSError: the lock cannot be opened.
    """
    lock = FileLock(place / LOCK, _PATIENCE, mode=0o600, thread_local=False)
    what = f"another process is working with what site {site_of(place.name)} keeps"
    with suppress(Timeout):
        lock.acquire(timeout=0)
        return lock
    say(f"{what}; waiting {_PATIENCE} seconds for it to end")
    try:
        lock.acquire()
    except Timeout as error:
        fix = "It may be the site itself, or a worker of a run that was killed: wait until it ends, or end it."
        raise CheckpointError(what, where=str(place), fix=fix) from error
    return lock


@contextmanager
def alone(private: Path) -> Iterator[None]:
    """Keep other processes from working with what any site keeps in this folder, as far as one ever has.

    Raises:
        CheckpointError: another process works with it.
        OSError: a lock cannot be opened.
    """
    places = sorted(path.parent for path in private.glob(f"*/{LOCK}"))
    room = allow_open_files(len(places))
    with ExitStack() as held:
        for place in places:
            lock = acquire(place)
            if room:
                held.callback(lock.release)
            else:  # nobody starts to work there but by the run's lock, which the caller has
                lock.release()
        yield


@contextmanager
def making(out: Path, doing: str, kind: type[MurmuraError]) -> Iterator[Path]:
    """Keep other processes from making the same folder, and clear up what one that was killed has left beside it: what
    was there before, and was moved aside, is put back.

    Args:
        out: as a user gave it (``--out``); yielded is where that is.
        doing: what a process does that makes it.
        kind: of the error where another one does, or where the current directory would be replaced.

    Raises:
        OSError: something cannot be written, moved or removed.
    """
    place, where = Path(realpath(out)), str(out)
    if place.is_symlink():
        raise kind("a link that leads to itself", where=where, fix="Give another --out.")
    if Path.cwd().is_relative_to(place):  # whoever started this would be left in a folder that is gone
        fix = "Start from another directory, or give another --out."
        raise kind("the current directory is in it, and would be replaced", where=where, fix=fix)
    place.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(place.parent / f".{place.name}.lock", timeout=0)
    try:
        lock.acquire()
    except Timeout as error:
        fix = "Wait until it ends, or give another --out."
        raise kind(f"another process is {doing}", where=where, fix=fix) from error
    try:
        atomic.clear_drafts(place)
        yield place
    finally:
        Path(lock.lock_file).unlink(missing_ok=True)
        lock.release()


def allow_open_files(count: int) -> bool:
    """Let this process hold so many locks beside what else it has open; returns whether the system allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + _OTHER_FILES if hard == resource.RLIM_INFINITY else min(count + _OTHER_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return hard == resource.RLIM_INFINITY or count + _OTHER_FILES <= hard

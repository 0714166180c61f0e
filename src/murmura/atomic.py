"""Files that are written whole or not at all, and are on the disk before anything relies on them."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Literal

from murmura.errors import as_os_errors

LEFT_BEHIND = ".*.partial"
"""What drafts of killed processes are called, files and folders."""


def draft_of(path: Path) -> Path:
    """Where this process writes what is to become ``path``."""
    return path.with_name(f".{path.name}.{os.getpid()}.partial")


def replaced(path: Path) -> Path:
    """Where this process moves ``path`` while something takes its place; by its name a draft, too."""
    return path.with_name(f".{draft_of(path).name}")


@contextmanager
def replacing(path: Path, *, private: bool = False, synced: bool = True) -> Iterator[BinaryIO]:
    """A draft that takes the place of ``path`` when the block ends well; readers see the old file or the new one.

    Args:
        private: nobody but its owner may read it.
        synced: wait for the disk; else it outlives the process, and not a failure of power.

    Raises:
        OSError: it cannot be written; the old file is intact.
    """
    draft = draft_of(path)
    try:
        with _written(draft, private=private, synced=synced) as stream:
            yield stream
        _hand_over(draft, path)
        os.replace(draft, path)
        if synced:
            sync(path.parent)
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def _hand_over(draft: Path, path: Path) -> None:
    """Give a draft to whom the old file belongs: a service that reads it may be another user than who replaces it."""
    with suppress(OSError, AttributeError):  # there is none, it may not be given away, or the system knows no owners
        before = path.stat()
        if before.st_uid != draft.stat().st_uid:
            os.chown(draft, before.st_uid, before.st_gid)


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """A draft of a folder, for libraries that write several files by themselves; it takes the place of ``path``, with
    all files on the disk, when the block ends well. What was there is removed only then.

    Raises:
        OSError: it cannot be written; what was there before is intact.
    """
    draft, before = draft_of(path), replaced(path)
    shutil.rmtree(draft, ignore_errors=True)
    try:
        draft.mkdir(parents=True)
        with as_os_errors():
            yield draft
        sync_all(draft)
        if path.exists():
            path.rename(before)
        draft.rename(path)
        sync(path.parent)
    finally:
        if before.exists() and not path.exists():
            before.rename(path)
        for left in (draft, before):
            shutil.rmtree(left, ignore_errors=True)


def clear_drafts(path: Path) -> None:
    """Remove what killed processes have left beside ``path`` of a file or folder that was to take its place. What was
    there before, and was moved aside when a process was killed, is put back.

    No other process may be writing to ``path``.

    Raises:
        OSError: something cannot be moved or removed.
    """
    for left in sorted(path.parent.glob(LEFT_BEHIND)):
        kind = re.fullmatch(rf"(\.\.?){re.escape(path.name)}\.\d+\.partial", left.name)
        if kind and kind[1] == ".." and not path.exists():
            left.rename(path)
        elif kind:
            shutil.rmtree(left) if left.is_dir() else left.unlink()


def write(path: Path, data: bytes, *, private: bool = False) -> None:
    """Write a file, or replace the one that is there, and have it on the disk; arguments and errors as of
    ``replacing``."""
    with replacing(path, private=private) as stream:
        stream.write(data)


def append(path: Path, data: bytes) -> None:
    """Add to the end of a file that nobody but its owner may read, made with its folder if need be; it is on the disk
    when this returns.

    Raises:
        OSError: it cannot be written, and nothing was added.
    """
    new = not path.exists()
    if new:
        make_private(path.parent)
    before = 0 if new else path.stat().st_size
    try:
        with _written(path, "ab", private=True) as stream:
            stream.write(data)
    except OSError:
        with suppress(OSError):  # a torn line would make the next one unreadable
            os.truncate(path, before)
        raise
    if new:
        sync(path.parent)


def make_private(folder: Path) -> None:
    """Make a folder, if need be, that nobody but its owner may look into."""
    new = not folder.exists()
    folder.mkdir(mode=0o700, exist_ok=True)
    folder.chmod(0o700)  # it may have been there, with other rights
    if new:
        sync(folder.parent)


def sync(path: Path) -> None:
    """Have on the disk what a file holds, or which files a folder does."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_all(folder: Path) -> None:
    """Have on the disk a folder with all that is below it."""
    for item in folder.rglob("*"):
        sync(item)
    sync(folder)


@contextmanager
def _written(
    path: Path, mode: Literal["wb", "ab"] = "wb", *, private: bool = False, synced: bool = True
) -> Iterator[BinaryIO]:
    rights = 0o600 if private else 0o666  # less what the user's umask takes away
    with open(path, mode, opener=lambda name, flags: os.open(name, flags, rights)) as stream:
        yield stream
        stream.flush()
        if synced:
            os.fsync(stream.fileno())

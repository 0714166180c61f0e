"""What must never be undone: lines that are only ever appended, each on disk before anything relies on it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from murmura import atomic
from murmura.errors import PrivacyError, explaining

Anchor = Mapping[str, Any]
"""How far a journal had come, kept in another place than the journal: ``lines`` (how many) and ``head`` (digest)."""


class Journal:
    """Objects in a file, one a line behind its digest, in the order in which they were added.

    The digests are a chain: each is the SHA-256 of the one before it and of its own line. So a line cannot be changed,
    moved or taken out unless all digests after it are made anew; and then the last of them is no longer the one that
    stands elsewhere, in an ``anchor``. Whoever changes journal and anchors together is not noticed.

    Args:
        path: of the file, which its first line makes; None keeps the lines in memory only.
        what: it is, for messages.

    Raises:
        PrivacyError: a line is not what was written.
    """

    def __init__(self, path: Path | None = None, what: str = "privacy ledger") -> None:
        self.path, self.what = path, what
        found = list(chained(path, what)) if path else []
        self.lines: list[dict[str, Any]] = [line for line, _ in found]
        self._digests = [digest for _, digest in found]
        if path and path.exists() and path.stat().st_size != (size := _size(path)):
            os.truncate(path, size)  # the process ended while it wrote a line, so that nothing left that it tells of

    @classmethod
    def peek(cls, path: Path, what: str = "privacy ledger") -> Journal:
        """A copy in memory of a journal that another process may be writing, if it has begun it: the file is left as it
        is.

        Raises:
            PrivacyError: a line is not what was written.
            OSError: it cannot be read.
        """
        copy = cls(None, what)
        found = list(chained(path, what))
        copy.lines, copy._digests = [line for line, _ in found], [digest for _, digest in found]
        return copy

    @classmethod
    def of(cls, lines: Iterable[Mapping[str, Any]]) -> Journal:
        """One in memory."""
        copy = cls()
        for line in lines:
            copy.append(line)
        return copy

    @property
    def anchor(self) -> dict[str, Any]:
        """How far the journal has come; what is kept of it elsewhere, ``check`` compares."""
        return {"lines": len(self.lines), "head": _head(self._digests)}

    def check(self, anchor: Anchor) -> None:
        """
        Raises:
            PrivacyError: the journal is shorter than it was at the anchor, or began otherwise.
        """
        known = anchor["lines"]
        if len(self.lines) < known:
            what = f"the {self.what} has {len(self.lines)} lines, and had {known} when the run was last saved"
            raise PrivacyError(what, where=self._where, fix="Restore it from a copy, or start another run.")
        if _head(self._digests[:known]) != anchor["head"]:
            what = (
                f"the {self.what} is not the one that was written: its first {known} lines were others when the run "
                "was last saved"
            )
            raise PrivacyError(what, where=self._where, fix="Restore it from a copy, or start another run.")

    def append(self, line: Mapping[str, Any]) -> None:
        """Append a line; it is on disk when this returns.

        Raises:
            CheckpointError: it could not be written. Nothing that it tells of may leave.
        """
        text = json.dumps(line)
        digest = _chained(_head(self._digests), text)
        if self.path is not None:
            with explaining(f"the {self.what} cannot be written", self.path, "then start again (a run with --resume)"):
                atomic.append(self.path, f"{digest} {text}\n".encode())
        self.lines.append(json.loads(text))
        self._digests.append(digest)

    @property
    def _where(self) -> str | None:
        return None if self.path is None else str(self.path)


def now() -> str:
    """The time (UTC) as a line tells it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def chained(path: Path, what: str) -> Iterator[tuple[dict[str, Any], str]]:
    """The whole lines of a journal with their digests, one by one, and none where there is no file; one that was never
    finished is left out.

    Raises:
        PrivacyError: a line is not what was written; ``where`` names it.
    """
    head, read = "", b""
    with suppress(FileNotFoundError, NotADirectoryError):  # and nothing else: what may not be read is not empty
        read = path.read_bytes()
    for number, line in enumerate(read.decode(errors="replace").split("\n")[:-1], start=1):
        digest, _, text = line.partition(" ")
        try:
            found = json.loads(text) if digest == _chained(head, text) else None
        except (ValueError, RecursionError):  # digests can be made anew
            found = None
        if not isinstance(found, dict):
            raise PrivacyError(
                f"the {what} is damaged or was edited, and without it what was spent or kept is unknown",
                where=f"{path}:{number}",
                fix="Restore it from a copy, or start another run.",
            )
        yield found, digest
        head = digest


def _size(path: Path) -> int:
    """Of the whole lines, bytes."""
    return path.read_bytes().rfind(b"\n") + 1


def _chained(head: str, text: str) -> str:
    return hashlib.sha256(f"{head} {text}".encode()).hexdigest()


def _head(digests: list[str]) -> str:
    return digests[-1] if digests else ""

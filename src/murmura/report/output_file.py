"""Files that a user asks for by name: replaced whole or not at all."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from murmura import atomic
from murmura.errors import CheckpointError, ConfigError
from murmura.report.in_short import BETTER, GOOD

_PAGE = ('<meta name="generator" content="murmura">',)
_OURS = {"--markdown": (f"- **{GOOD}**", f"- **{BETTER}**"), "--out": _PAGE, "--sheet": _PAGE}
"""What of this is near the beginning of what is written for an option."""
_HEAD = 200  # characters


def require_own(places: Mapping[str, Path]) -> None:
    """Replace nothing that is no report: an experiment, records or notes may have been named by mistake.

    Args:
        places: by option.

    Raises:
        ConfigError: a file there is none that a report has written, or two options name one.
    """
    named: dict[str, str] = {}
    for option, place in places.items():
        other = named.setdefault(os.path.realpath(place), option)
        if other != option:
            what = f"{other} and {option} name the same file"
            raise ConfigError(what, where=str(place), fix="Give each a file of its own.")
        if place.is_file() and place.stat().st_size and not _is_ours(place, _OURS[option]):
            what = "this file already exists, and is not a report"
            raise ConfigError(what, where=f"{option} {place}", fix="Name another, or remove it.")


def _is_ours(place: Path, marks: Sequence[str]) -> bool:
    with place.open(encoding="utf-8", errors="replace") as lines:
        head = lines.read(_HEAD)
    return any(mark in head for mark in marks)


@contextmanager
def replacing(path: Path, what: str, option: str, private: bool = False) -> Iterator[TextIO]:
    """A draft in UTF-8 that takes the place of ``path`` when the block ends well; the folder is made if need be.

    Args:
        path: of the file; a reader never sees half of it.
        what: it is, as a message calls it.
        option: that the user named it with.
        private: nobody but its owner may read it.

    Raises:
        CheckpointError: it cannot be written. An impossible place is reported before the block is entered.
    """
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if path.exists() and not path.is_file():
            raise OSError(errno.EINVAL, "it is a device or a pipe, and would be replaced")
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic.replacing(path, private=private) as stream:
            text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
            yield text
            text.detach()
    except OSError as error:
        if error.filename is not None and Path(error.filename) not in {atomic.draft_of(path), path, *path.parents}:
            raise  # about another file, which the block was reading
        fix = f"Give another {option}."
        raise CheckpointError(f"{what} cannot be written ({error.strerror})", where=str(path), fix=fix) from None

"""The run that a new one is to replace: kept in the run folder's ``.before`` until the new one has saved a round.

Everything is done in renames, in an order that tells, whenever the process is killed, whose files are whose:

1. the earlier run's files are moved into ``.before``; then ``.before/ASIDE`` is written. Without that mark, what lies
   in the run folder is the earlier run's too.
2. The new run writes into the run folder. Until it has saved a round, it can be undone: its files are removed, then
   the mark, and the earlier run's files are moved back.
3. With its first saved round the new run stands: what is in ``.before`` is removed, the mark last.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from murmura import atomic
from murmura.errors import CheckpointError, remedy
from murmura.progress import say
from murmura.runs.locks import alone
from murmura.runs.schema import CHECKPOINTS, PRIVATE, WRITTEN

FOLDER = ".before"
_MARK = "ASIDE"


class Before:
    """The earlier run of a run folder that is being started over.

    Args:
        folder: the run folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.place = folder, folder / FOLDER
        self._mark = self.place / _MARK

    @property
    def exists(self) -> bool:
        """Whether an earlier run, or a part of it, is set aside."""
        return self.place.exists()

    @property
    def is_replaced(self) -> bool:
        """Whether the new run has saved a round, and so takes the earlier one's place."""
        return self._mark.exists() and any((self.folder / CHECKPOINTS).glob("round-*"))

    def set_aside(self) -> None:
        """Move the files of the run in the folder out of the way of a new run, when none of its workers writes any
        more: one may outlive for a moment a server that was killed.

        Raises:
            CheckpointError: they cannot be moved, or a worker still writes; they are where they were.
        """
        with self._alone():
            try:
                atomic.make_private(self.place)
                _move(self.folder, self.place)
                atomic.write(self._mark, b"")
                atomic.sync(self.place)
            except OSError as error:
                self.put_back()
                raise _unmovable(self.folder, error) from error

    def put_back(self) -> None:
        """Undo the new run, of which no round is saved, and move the earlier run's files to where they were.

        Raises:
            CheckpointError: they cannot be moved, or a worker of the new run still writes; what is left to move is
                still in ``.before``.
        """
        try:
            if self._mark.exists():
                with self._alone():
                    remove(self.folder, WRITTEN)
                atomic.sync(self.folder)
                self._mark.unlink()
                atomic.sync(self.place)
            _move(self.place, self.folder)
            self.place.rmdir()
            atomic.sync(self.folder)
        except OSError as error:
            raise _unmovable(self.place, error) from error

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """No process works with what sites keep in the run folder."""
        with ExitStack() as held:
            try:
                held.enter_context(alone(self.folder / PRIVATE))
            except OSError as error:
                raise _unmovable(self.folder, error) from error
            yield

    def discard(self) -> None:
        """Remove the earlier run, which the new one has replaced; nothing happens where there is none.

        Raises:
            CheckpointError: it cannot be removed.
        """
        if not self.exists:
            return
        try:
            remove(self.place, WRITTEN)
            atomic.sync(self.place)
            self._mark.unlink(missing_ok=True)
            self.place.rmdir()
        except OSError as error:
            raise CheckpointError(
                f"the run that this one replaces cannot be removed ({error.strerror})", where=str(self.place),
                fix="Remove it by hand, then use --resume.",
            ) from error  # fmt: skip

    def settle(self) -> None:
        """Finish what a process that was killed has begun, and say so: one of the two runs is then in the folder.

        Raises:
            CheckpointError: files cannot be moved or removed.
        """
        if not self.exists:
            return
        if not any(self.place.iterdir()):  # nothing was moved yet, or all was removed
            self.place.rmdir()
            return
        if self.is_replaced:
            self.discard()
            say(f"{self.folder}: the run that was started with --overwrite had saved a round; the one before is gone")
            return
        self.put_back()
        say(
            f"{self.folder}: a run that was started with --overwrite stopped before it had saved a round; "
            "the one before is back in its place"
        )


def remove(folder: Path, names: tuple[str, ...]) -> None:
    """Remove these files and folders where they are.

    Raises:
        OSError: one cannot be removed.
    """
    for path in (folder / name for name in names):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _move(source: Path, target: Path) -> None:
    """Move what a run wrote from one folder into another, where it is not yet.

    Raises:
        FileExistsError: something of that name is there already, and is not written over.
    """
    for name in WRITTEN:
        if not os.path.lexists(source / name):
            continue
        if os.path.lexists(target / name):
            raise FileExistsError(17, f"{target / name} exists too")
        (source / name).rename(target / name)
    atomic.sync(target)
    atomic.sync(source)


def _unmovable(place: Path, error: OSError) -> CheckpointError:
    return CheckpointError(
        f"the files of an earlier run cannot be moved ({error.strerror})", where=str(place),
        fix=f"{remedy(error)}, or take another run.folder.",
    )  # fmt: skip

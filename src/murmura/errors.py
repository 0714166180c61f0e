"""Errors that a user can fix. The command line prints them without a traceback."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import SequenceMatcher

MISTAKE, MAY_PASS, INTERRUPTED = 2, 75, 130
"""Exit codes of commands; 75 is EX_TEMPFAIL of sysexits.h."""


class MurmuraError(Exception):
    """What was wrong, where, and what to do about it.

    Args:
        what: One sentence on what was wrong, without a full stop; or such a sentence and the lines of a list.
        where: File, line, key, site or round.
        fix: What the user can do.
        passing: Whether it may pass by itself, so that the same command may succeed later: where it hangs on others or
            on the machine, and on nothing that a user has written. What starts again by it repeats what was lost, which
            may cost privacy.
    """

    def __init__(self, what: str, *, where: str | None = None, fix: str | None = None, passing: bool = False) -> None:
        self.what, self.where, self.fix, self.passing = what, where, fix, passing
        super().__init__(what, where, fix)

    def __str__(self) -> str:
        head = f"{self.where}: {self.what}" if self.where else self.what
        between = "\n" if "\n" in self.what else ". "
        return f"{head}{between}{self.fix}" if self.fix else head


class ConfigError(MurmuraError):
    """The experiment file, or an option, asks for something that cannot be done."""


class DataError(MurmuraError):
    """A record, a file or a partition of records is not usable."""


class ModelError(MurmuraError):
    """A model cannot be found, fetched or loaded."""


class RunError(MurmuraError):
    """A run had to stop; its last checkpoint is intact."""


class CheckpointError(RunError):
    """A run folder, or what is made from it, cannot be written; or it lacks what is asked of it."""


class Interrupted(KeyboardInterrupt):
    """A run was stopped by hand after it had begun, so that it can be resumed.

    Args:
        cost: what the interrupted round has cost, in words.
    """

    def __init__(self, cost: str = "") -> None:
        super().__init__(cost)
        self.cost = cost


class UndeclaredReleaseError(RunError):
    """A site verb tried to send a field that it did not declare."""


class RefusedError(RunError):
    """A site does not answer what is not asked in the run that it has joined: another verb, round or option."""


class SecureSumError(RunError):
    """A site takes no further part in a secure sum: what it was told is not what an honest server tells."""


class PrivacyError(MurmuraError):
    """A privacy plan makes no sense, or an ε is refused because a run did not follow its plan."""


class BudgetError(PrivacyError):
    """A site does not answer: its owner's budget of ε over all runs does not allow it."""


_CLOSE, _VERY_CLOSE = 0.6, 0.8  # least similarity, of 1


def nearest(name: str, valid: Iterable[str], elsewhere: Mapping[str, str] | None = None) -> str:
    """A hint for a misspelt or misplaced name: the nearest valid one, or all of them.

    Args:
        valid: names that could stand here.
        elsewhere: names that could stand in other places, by how to write them there. One of them is proposed if it
            is very close, and closer than any valid one.
    """
    names = sorted(valid)
    here = {f"'{one}'": _likeness(name, one) for one in names}
    there = {shown: _likeness(name, one) for shown, one in (elsewhere or {}).items()}
    best, other = (max(found.values(), default=0.0) for found in (here, there))
    if other > best and other >= _VERY_CLOSE:
        return f"Did you mean {' or '.join(shown for shown, likeness in there.items() if likeness == other)}?"
    if best >= _CLOSE:
        return f"Did you mean {next(shown for shown, likeness in here.items() if likeness == best)}?"
    return f"Valid: {', '.join(names)}."


def nearest_file(name: str, files: Iterable[str]) -> str | None:
    """A hint for a misspelt name of a file or folder; None where none of ``files`` is very close. Endings do not count,
    since most files that lie together share theirs."""
    close = [(_likeness(_stem(name), _stem(one)), _likeness(name, one), one) for one in sorted(files)]
    stems, _, best = max(close, default=(0.0, 0.0, ""))
    return f"Did you mean '{best}'?" if stems >= _VERY_CLOSE else None


def _stem(name: str) -> str:
    return name.lstrip(".").partition(".")[0]


def _likeness(one: str, other: str) -> float:
    """1 for the same letters in the same order, 0 for none in common; capitals count as small letters."""
    return SequenceMatcher(None, one.casefold(), other.casefold()).ratio()


_REMEDIES: dict[int | None, str] = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "Free some space"),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "Fix the permissions"),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), "Raise the limit of open files (ulimit -n)"),
    errno.ENAMETOOLONG: "Choose a shorter name",
    errno.ENOENT: "See that the folder is there",
    errno.EADDRINUSE: "Stop the other program that has this port",
}


def remedy(error: Exception) -> str:
    """What to do where something of the system cannot be used: the beginning of a sentence.

    Args:
        error: the system's, as a rule; of others nothing is known but what they say.
    """
    if "AF_UNIX path too long" in str(error):  # Python's own check, without a number
        return "Set TMPDIR to a shorter path"
    return _REMEDIES.get(getattr(error, "errno", None), "Look at the system's message")


_PASSING = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EADDRINUSE}


def may_pass(error: Exception) -> bool:
    """Whether the same command may succeed later, with nothing of it changed: an error says so, or comes of one of the
    system's such as a full disk, however often it was put in other words since.

    Args:
        error: what a command has ended with.
    """
    link: BaseException | None = error
    while link is not None:
        if isinstance(link, OSError) and link.errno in _PASSING:
            return True
        if isinstance(link, MurmuraError) and link.passing:
            return True
        link = link.__cause__ or link.__context__  # the second is there after `from None`, too
    return False


def unforeseen(error: OSError) -> MurmuraError:
    """What the system refused where no code explains it: the path, why, and what to do where that is known."""
    why, fix = error.strerror or str(error) or type(error).__name__, _REMEDIES.get(error.errno)
    told = None if fix is None else f"{fix}."
    if error.filename is None:
        return MurmuraError(why, fix=told)
    return MurmuraError(f"cannot be used ({why})", where=str(error.filename), fix=told)


_OS_ERROR = re.compile(r"\(os error (\d+)\)")  # as Rust ends what it says of the system


@contextmanager
def as_os_errors() -> Iterator[None]:
    """Raise as ``OSError`` what the system refuses to libraries in Rust, which raise errors of their own for it, or a
    plain ``Exception``."""
    try:
        yield
    except MurmuraError:
        raise
    except Exception as error:
        told = _OS_ERROR.search(str(error))
        if told is None:
            raise
        raise OSError(int(told[1]), os.strerror(int(told[1]))) from error


@contextmanager
def explaining(
    what: str, where: object, fix: str = "", *others: type[Exception], kind: type[MurmuraError] = CheckpointError
) -> Iterator[None]:
    """Where the system refuses what the block does, say what could not be done, why, and what to do.

    Args:
        what: could not be done.
        where: as of ``MurmuraError``; the path of a file or folder.
        fix: how the sentence that begins with the remedy goes on.
        others: errors that are explained besides those of the system.
        kind: of the error that is raised.
    """
    explained: tuple[type[Exception], ...] = (OSError, *others)
    try:
        yield
    except explained as error:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        begun = ", ".join(filter(None, (remedy(error), fix)))
        raise kind(f"{what} ({why})", where=None if where is None else str(where), fix=f"{begun}.") from error

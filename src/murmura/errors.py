"""Errors that a user can mend. The command line prints them without a traceback."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class MurmuraError(Exception):
    """What was wrong, where, and what to do about it.

    Args:
        what: One sentence on what was wrong, without a full stop.
        where: File, line, key, site or round.
        fix: What the user can do.
    """

    def __init__(self, what: str, *, where: str | None = None, fix: str | None = None) -> None:
        self.what, self.where, self.fix = what, where, fix
        super().__init__(what, where, fix)

    def __str__(self) -> str:
        head = f"{self.where}: {self.what}" if self.where else self.what
        return f"{head}. {self.fix}" if self.fix else head


class ConfigError(MurmuraError):
    """The experiment file, or an option, asks for something that cannot be done."""


class DataError(MurmuraError):
    """A record, a file or a partition of records is not usable."""


class ModelError(MurmuraError):
    """A model cannot be found, fetched or loaded."""


class RunError(MurmuraError):
    """A run had to stop; its last checkpoint is intact."""


class CheckpointError(RunError):
    """A run folder, or what is made from it, cannot be written; or it does not hold what is asked of it."""


class Interrupted(KeyboardInterrupt):
    """A run was stopped by hand after it had begun, so that it can be resumed."""


class UndeclaredReleaseError(RunError):
    """A site verb tried to send a field that it did not declare."""


class PrivacyError(MurmuraError):
    """A privacy plan makes no sense, or an ε is refused because a run did not follow its plan."""


def nearest(name: str, valid: Iterable[str]) -> str:
    """A hint for a misspelt name: the nearest valid one, or all of them."""
    names = sorted(valid)
    close = get_close_matches(name, names, n=1, cutoff=0.6)
    return f"Did you mean '{close[0]}'?" if close else f"Valid: {', '.join(names)}."

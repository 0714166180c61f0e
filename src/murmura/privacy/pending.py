"""The cohort of a round that has released nothing yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from murmura.privacy.journal import Journal


class PendingCohort:
    """Secret samples, each kept from when it is drawn until something is released with it.

    ε counts on samples that nothing has chosen among. Where a round stops since a site that was drawn does not answer,
    and is repeated with a fresh sample, only samples without that site would ever be released: of ten sites of which
    eight are gone, always the same two. So a round that is repeated has the sample that it had, unless that was
    released: then it is spent, and the repeated round counts as another one, with a sample of its own.

    Args:
        path: of the journal, which is as secret as the samples.

    Raises:
        PrivacyError: a line is not what was written.
    """

    def __init__(self, path: Path) -> None:
        self._journal = Journal(path, "journal of secret cohorts")

    def sample(self, released: int, draw: Callable[[], Sequence[str]]) -> list[str]:
        """The sample of the next release.

        Args:
            released: how many releases there were, by the privacy ledger.
            draw: makes a fresh one.

        Raises:
            CheckpointError: it could not be written, so that nobody may be asked.
        """
        last = self._journal.lines[-1] if self._journal.lines else None
        if last is None or last["released"] != released:
            last = {"released": released, "units": list(draw())}
            self._journal.append(last)
        return list(last["units"])

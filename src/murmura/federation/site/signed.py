"""What a site has signed of secure sums in all runs on its records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from murmura import atomic
from murmura.data.records import digest
from murmura.errors import CheckpointError, SecureSumError
from murmura.privacy.journal import Journal

FOLDER = "@sums"
"""In the folder of accounts (``[budget]``); no site's can be called so."""
_PATIENCE = 60  # seconds to wait while another run writes the same journal


class SignedInAllRuns:
    """A journal outside of any run's folder, known by the digest of the records and not by the site's name. In whatever
    order they are: of the same records a site sends nearly the same, and the very same votes.

    A run that asks what an earlier one has asked, over other sites, is the same sum with some sites more or less: of
    the two the difference can be read. Of a run that asks other things over other sites the owner is told.

    Args:
        accounts: the folder of accounts.
        records: the site's.
    """

    def __init__(self, accounts: Path, records: Sequence[Any]) -> None:
        self._folder, self._told = accounts / FOLDER, False
        self._path = self._folder / f"{digest(sorted(records, key=repr))}.journal"

    def enter(self, line: Mapping[str, Any], *, run: str, repeats: bool) -> list[str]:
        """Enter a sum before it is signed.

        Args:
            run: the present run.
            line: its ``verb``, and digests of what was ``asked`` and of the ``sites`` in it.
            repeats: the owner lets a sum be made again over other sites.

        Returns:
            What to tell the owner.

        Raises:
            SecureSumError: another run has asked the same of other sites.
            CheckpointError: it cannot be entered.
        """
        try:
            self._folder.parent.mkdir(parents=True, exist_ok=True)
            atomic.make_private(self._folder)
            with FileLock(f"{self._path}.lock", _PATIENCE, mode=0o600):
                journal = Journal(self._path, "journal of secure sums in all runs")
                others = [one for one in journal.lines if one["run"] != run and one["verb"] == line["verb"]]
                others = [one for one in others if one["sites"] != line["sites"]]
                if not repeats and any(one["asked"] == line["asked"] for one in others):
                    raise SecureSumError(
                        "an earlier run has asked the same of other sites, and of the two sums the difference could be "
                        "read: this site takes no further part in the secure sum, and reveals nothing of it",
                        fix="Choose another run.seed, or the same sites as then; or if that difference may be known, "
                        "set aggregation.secure.allow_cohort_change_on_retry = true.",
                    )
                journal.append({**line, "run": run})
        except (Timeout, OSError) as error:
            raise CheckpointError("the journal of secure sums cannot be written", where=str(self._path)) from error
        if not others or self._told:
            return []
        self._told = True
        return [
            "an earlier run has summed over other sites what they made of these records. Whoever has the sums of both "
            "runs learns more of the sites that were in one of them alone than any one sum tells"
        ]

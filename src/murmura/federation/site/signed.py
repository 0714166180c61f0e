"""What a site has signed of secure sums in all runs on its records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from secrets import token_hex
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

    A run that asks what an earlier one has asked, over other sites, or has this site make the same of whatever it asks,
    is the same sum with some sites more or less: of the two the difference can be read. Of a run that asks other things
    over other sites the owner is told.

    Args:
        accounts: the folder of accounts.
        records: the site's.
        own: the journal of what the site has signed in its present folder, by a line of which the folder is told from
            all others. By a run's id alone it cannot be told: the server gives it, and may give it twice.
    """

    def __init__(self, accounts: Path, records: Sequence[Any], own: Journal) -> None:
        self._folder, self._told, self._own = accounts / FOLDER, False, own
        self._path = self._folder / f"{digest(sorted(records, key=repr))}.journal"

    def enter(self, line: Mapping[str, Any], *, run: str, repeats: bool) -> list[str]:
        """Enter a sum before it is signed.

        Args:
            run: the present run.
            line: its ``verb``, and digests of what was ``asked``, of what the site has ``made`` of it before it was
                masked (empty for nothing, which is the same in all sums), and of the ``sites`` in it.
            repeats: the owner lets a sum be made again over other sites.

        Returns:
            What to tell the owner.

        Raises:
            SecureSumError: another run has asked the same of other sites, or this site has made the same of it.
            CheckpointError: it cannot be entered.
        """
        line = {**line, "run": run, "folder": self._name()}
        try:
            self._folder.parent.mkdir(parents=True, exist_ok=True)
            atomic.make_private(self._folder)
            with FileLock(f"{self._path}.lock", _PATIENCE, mode=0o600):
                journal = Journal(self._path, "journal of secure sums in all runs")
                others = [one for one in journal.lines if not _alike(one, line, "run", "folder")]
                others = [one for one in others if not _alike(one, line, "sites")]
                same = [one for one in others if _alike(one, line, "verb", "asked") or _alike(one, line, "made")]
                if same and not repeats:
                    raise SecureSumError(
                        "an earlier run has asked the same of other sites, or had this site send the same, and of the "
                        "two sums the difference could be read: this site takes no further part in the secure sum, and "
                        "reveals nothing of it",
                        fix="Choose another run.seed, or the same sites as then; or if that difference may be known, "
                        "set aggregation.secure.allow_cohort_change_on_retry = true.",
                    )
                journal.append(line)
        except (Timeout, OSError) as error:
            raise CheckpointError("the journal of secure sums cannot be written", where=str(self._path)) from error
        if self._told or not any(one["verb"] == line["verb"] for one in others):
            return []
        self._told = True
        return [
            "an earlier run, or another site with the same records, was in a sum over other sites. Whoever has both "
            "sums learns more of the sites that were in one of them alone than any one sum tells"
        ]

    def _name(self) -> str:
        """Of the site's present folder; made when it is first asked for, and kept there."""
        known = [line["folder"] for line in self._own.lines if "folder" in line]
        if not known:
            known = [token_hex(16)]
            self._own.append({"folder": known[0]})
        return str(known[0])


def _alike(one: Mapping[str, Any], other: Mapping[str, Any], *names: str) -> bool:
    return all(other[name] and one.get(name) == other[name] for name in names)  # some of earlier releases lack some

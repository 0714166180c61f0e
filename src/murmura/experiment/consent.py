"""That the owner of a site has said yes to an experiment, and what there was to see before that."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from murmura.experiment.site_file import SiteFile
from murmura.privacy.journal import Journal
from murmura.runs.schema import CONSENT_JOURNAL

_WHAT = "journal of what the site's owner has consented to"


def consent(folder: Path, experiment: str, shown: str) -> None:
    """Note that the owner of a site consents to an experiment, with the time (UTC).

    Args:
        experiment: its digest (``experiment.verbs.fingerprint``).
        shown: digest of what the owner was shown of it (``forecast.terms.Terms.digest``).

    Raises:
        PrivacyError: the journal is damaged or was edited.
        CheckpointError: it cannot be written.
    """
    Journal(folder / CONSENT_JOURNAL, _WHAT).append({"at": _now(), "experiment": experiment, "shown": shown})


def withdraw(folder: Path) -> None:
    """Note that the owner takes back whatever was consented to so far.

    Raises:
        PrivacyError: the journal is damaged or was edited.
        CheckpointError: it cannot be written.
    """
    Journal(folder / CONSENT_JOURNAL, _WHAT).append({"at": _now(), "withdrawn": True})


def consented(folder: Path, experiment: str) -> str | None:
    """When the owner has consented to an experiment, and not taken it back since; None: never.

    Raises:
        PrivacyError: the journal is damaged or was edited.
    """
    path, when = folder / CONSENT_JOURNAL, None
    for line in Journal.peek(path, _WHAT).lines if path.exists() else ():
        if "withdrawn" in line:
            when = None
        elif line["experiment"] == experiment:
            when = line["at"]
    return when


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def missing_consent(folder: Path, file: SiteFile, experiment: str) -> str | None:
    """Why a run lacks the owner's consent; None where it has it, or nobody needs to be asked: since the owner has said
    so beforehand (``allow.ask``), or since the site is one of a simulation.

    Raises:
        PrivacyError: the journal is damaged or was edited.
    """
    if file.simulated or not file.allow.ask or consented(folder, experiment):
        return None
    return (
        "the owner has not consented to this experiment: `murmura site show` tells what it asks of the site, and "
        "`murmura site consent` says yes to it"
    )

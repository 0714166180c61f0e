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
    at = datetime.now(UTC).isoformat(timespec="seconds")
    Journal(folder / CONSENT_JOURNAL, _WHAT).append({"at": at, "experiment": experiment, "shown": shown})


def consented(folder: Path, experiment: str) -> str | None:
    """When the owner has consented to an experiment last; None: never.

    Raises:
        PrivacyError: the journal is damaged or was edited.
    """
    path = folder / CONSENT_JOURNAL
    lines = Journal.peek(path, _WHAT).lines if path.exists() else []
    return next((line["at"] for line in reversed(lines) if line["experiment"] == experiment), None)


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

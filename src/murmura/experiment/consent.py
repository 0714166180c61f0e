"""That the owner of a site has said yes to an experiment, and what there was to see before that."""

from __future__ import annotations

import hashlib
from pathlib import Path

from murmura.errors import DataError
from murmura.experiment.config import Experiment
from murmura.experiment.site_file import SiteFile
from murmura.experiment.verbs import fingerprint
from murmura.privacy.journal import Journal, now
from murmura.runs.schema import CONSENT_JOURNAL, HELDOUT_DIGESTS

_WHAT = "journal of what the site's owner has consented to"


def digest_of(experiment: Experiment, federation: Path) -> str:
    """SHA-256 of what an owner consents to: the experiment, and the list of what it is measured on. By another list the
    site would take part with other records, and how many it has is told; and adapters of its own would be measured on
    other texts.

    Args:
        federation: the folder of what its members hand round.

    Raises:
        DataError: the list cannot be read.
    """
    path = federation / HELDOUT_DIGESTS
    try:
        listed = path.read_bytes() if path.exists() else b""
    except OSError as error:
        what = f"the list of held-out records cannot be read ({error.strerror})"
        raise DataError(what, where=str(path), fix="Get it from whoever made the federation.") from None
    return hashlib.sha256(fingerprint(experiment).encode() + listed).hexdigest()


def consent(folder: Path, experiment: str, shown: str) -> None:
    """Note that the owner of a site consents to an experiment, with the time (UTC).

    Args:
        experiment: its digest (``digest_of``).
        shown: digest of what the owner was shown of it (``forecast.terms.Terms.digest``).

    Raises:
        PrivacyError: the journal is damaged or was edited.
        CheckpointError: it cannot be written.
    """
    Journal(folder / CONSENT_JOURNAL, _WHAT).append({"at": now(), "experiment": experiment, "shown": shown})


def withdraw(folder: Path) -> None:
    """Note that the owner takes back whatever was consented to so far.

    Raises:
        PrivacyError: the journal is damaged or was edited.
        CheckpointError: it cannot be written.
    """
    Journal(folder / CONSENT_JOURNAL, _WHAT).append({"at": now(), "withdrawn": True})


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

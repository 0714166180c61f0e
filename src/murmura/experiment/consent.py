"""That the owner of a site has said yes to an experiment, for one run of it, and what there was to see before that."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from murmura.errors import DataError
from murmura.experiment.config import Experiment
from murmura.experiment.site_file import Allow, SiteFile
from murmura.experiment.verbs import fingerprint
from murmura.federation.site.joined import WHAT as RUNS
from murmura.privacy.journal import Journal, now
from murmura.runs.names import CONSENT_JOURNAL, HELDOUT_DIGESTS, RUNS_JOURNAL
from murmura.units import bound

_WHAT = "journal of what the site's owner has consented to"
_MISSING = (
    "the owner has not consented to this experiment: `murmura site show` tells what it asks of the site, and "
    "`murmura site consent` says yes to it"
)
_USED = (
    "the owner has consented to one run of this experiment, which was run '{}', and this is another: what each "
    "promises is for that run alone. `murmura site consent`, given again, says yes to one more, and then "
    "`murmura site start` begins it"
)


def digest_of(experiment: Experiment, federation: Path) -> str:
    """SHA-256 of what an owner consents to: the experiment, and the list of what it is measured on. By another list the
    site would take part with other records, and how many it has is told; and adapters of its own would be measured on
    other texts. The digests of models (``inputs.require_same_models``) are no part of it: by others a site does nothing
    else, but refuses, until its owner has put other models there.

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
    """Note that the owner of a site consents to an experiment, with the time (UTC): to the next run of it, and to that
    one again when it is resumed.

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
    lines = _lines(folder)
    place = _last(lines, experiment)
    return None if place is None else str(lines[place]["at"])


def _lines(folder: Path) -> list[dict[str, Any]]:
    return Journal.peek(folder / CONSENT_JOURNAL, _WHAT).lines


def _last(lines: Sequence[Mapping[str, Any]], experiment: str) -> int | None:
    """The place of the last consent to an experiment that was not taken back."""
    for place in reversed(range(len(lines))):
        if "withdrawn" in lines[place]:
            return None
        if lines[place]["experiment"] == experiment:
            return place
    return None


def _exact(figure: float) -> Decimal:
    """As it is written: three times 1e-05 are 3e-05."""
    return Decimal(repr(figure))


def answered(folder: Path, experiment: str) -> str | None:
    """The run that the last consent to an experiment was for, once the site has answered it; None before that.

    Raises:
        PrivacyError: a journal is damaged or was edited.
    """
    last, runs = _last(_lines(folder), experiment), Journal.peek(folder / RUNS_JOURNAL, RUNS).lines
    return None if last is None else _answered_since(last, experiment, runs)


def _answered_since(consent: int, experiment: str, runs: Sequence[Mapping[str, Any]]) -> str | None:
    """The run of an experiment that was first answered after a consent.

    Args:
        consent: its place.
        runs: as they were noted.
    """
    found = (one for one in runs if one["experiment"] == experiment and one["consents"] > consent)
    return next((str(one["run"]) for one in found), None)


@dataclass(frozen=True)
class OwnersWord:
    """What the owner of a site has said of further runs (``federation.site.joined``).

    A consent is for one run of its experiment. Without ``ask`` the owner is asked about none, and `[allow] epsilon` is
    for all of them together: by basic composition they spend no more than the sum of what each promises.

    Args:
        folder: of the site.
        allow: as in its file.
        experiment: its digest (``digest_of``).
        promised: what the present run promises (``AskedOf.promised``); None where nothing hangs on it.
    """

    folder: Path
    allow: Allow
    experiment: str
    promised: Mapping[str, Any] | None

    def noted(self) -> dict[str, Any]:
        """With how many lines of the journal of consents there were: so it is known which came later."""
        return {"at": now(), "consents": len(_lines(self.folder)), "promised": self.promised}

    def objection(self, before: Sequence[Mapping[str, Any]]) -> str | None:
        """Why a further run may not be answered; None where it may.

        Raises:
            PrivacyError: the journal of consents is damaged or was edited.
        """
        if not self.allow.ask:
            return self._beyond("this run", before)
        last = _last(_lines(self.folder), self.experiment)
        if last is None:
            return _MISSING
        used = _answered_since(last, self.experiment, before)
        return None if used is None else _USED.format(used)

    def exceeded(self, before: Sequence[Mapping[str, Any]]) -> str | None:
        """Why an answer that ``murmura site start --again`` allows may not be given after all: it spends as much as
        another run. None where it may, or the owner is asked about each run, and so has been."""
        return None if self.allow.ask else self._beyond("one answer more, which counts as another run,", before)

    def _beyond(self, asked: str, before: Sequence[Mapping[str, Any]]) -> str | None:
        """Why what is asked is beyond the owner's limit for all runs together; None where it is not.

        Args:
            asked: a name for it.
        """
        limit = self.allow.epsilon
        if limit is None:
            return None
        allows = (
            f"the owner allows ε = {limit:g} at δ = {self.allow.delta:g}, for all runs together, of which "
            f"{RUNS_JOURNAL} tells: a new folder of the site takes it along"
        )
        known = []
        for run, one in [*((f"run '{line['run']}'", line["promised"]) for line in before), ("this run", self.promised)]:
            if one is None or not math.isfinite(one["epsilon"]):
                return f"what {run} promises is not known, and {allows}"
            known.append(one)
        if len({one["unit"] for one in known}) > 1:
            return f"this run and those before it protect records and whole sites, and {allows}"
        if len({one["adjacency"] for one in known}) > 1:
            return f"this run and those before it have different adjacencies, whose ε do not add up, and {allows}"
        epsilon, delta = (sum(_exact(one[name]) for one in known) for name in ("epsilon", "delta"))
        if epsilon <= _exact(limit) and delta <= _exact(self.allow.delta):
            return None
        spent = f"ε = {bound(float(epsilon))} at δ = {float(delta):g}"
        return f"{asked} and the {len(before)} before it promise {spent} together, and {allows}"


def missing_consent(folder: Path, file: SiteFile, experiment: str) -> str | None:
    """Why a run lacks the owner's consent; None where it has it, or nobody needs to be asked: since the owner has said
    so beforehand (``allow.ask``), or since the site is one of a simulation.

    Raises:
        PrivacyError: the journal is damaged or was edited.
    """
    if file.simulated or not file.allow.ask or consented(folder, experiment):
        return None
    return _MISSING

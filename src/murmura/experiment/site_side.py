"""The sites' side of a run, opened from the sites' folders; no server is needed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Any

from murmura.data.loading import require_usable, scan
from murmura.data.records import KINDS, digest
from murmura.errors import ConfigError, DataError, PrivacyError, RunError
from murmura.experiment.config import Experiment
from murmura.experiment.consent import OwnersWord, digest_of, missing_consent
from murmura.experiment.context import ProcessContext, process_context
from murmura.experiment.exclusions import Placed, Unused, fitting, tell, tell_repeats
from murmura.experiment.inputs import require_same_models
from murmura.experiment.sharing import bounded
from murmura.experiment.site_file import AskedOf, SiteFile
from murmura.experiment.summing import agreement
from murmura.experiment.validate import method_of
from murmura.experiment.verbs import verbs_of
from murmura.federation.method import Method
from murmura.federation.site.answer import Host
from murmura.federation.site.answered import Answered
from murmura.federation.site.identity import Roster, identity, read_roster
from murmura.federation.site.joined import Joined
from murmura.federation.site.masking import Masking
from murmura.federation.site.released import ReleaseJournal
from murmura.federation.site.signed import SignedInAllRuns
from murmura.federation.site.site import Site
from murmura.federation.site.store import SiteStore
from murmura.federation.wire.layout import Agreement
from murmura.personal.apart import apart_of
from murmura.privacy.budget import Budget
from murmura.privacy.journal import Journal
from murmura.reading import Reading
from murmura.runs.locks import allow_open_files
from murmura.runs.names import (
    ANSWERS_JOURNAL,
    EXPERIMENT,
    FEDERATION,
    HELDOUT_DIGESTS,
    MEASURED_JOURNAL,
    PUBLIC_KEYS,
    ROSTER,
    RUNS_JOURNAL,
    SITE_FILE,
    SUMS_JOURNAL,
)
from murmura.streams import Stream


def open_sites(
    folders: Sequence[Path], shared: tuple[ProcessContext, Method] | None = None, *, again: bool = False
) -> Host:
    """Open sites that share a resident model. What they keep is theirs alone until ``Host.close``.

    Args:
        folders: of the sites, each with a ``site.toml``; members of one federation.
        shared: model and method, where the process has them already; else they are those of the federation's
            experiment, on the device that the first site names.
        again: whether the owner has a site answer once more than planned (``Answered``), as those of simulations do.

    Raises:
        ConfigError: a site's file or the experiment is wrong.
        ModelError: a model is unavailable, or not the one that the federation was made with.
        DataError: a site cannot take part with its records.
        CheckpointError: another process works with what a site keeps, or it cannot be written; or there is no
            roster of the sites.
        SecureSumError: the roster has another key for a site than its own.
        PrivacyError: a journal of a site is damaged, or its account over all runs.
        RunError: there are more sites than a process that has no lock of the whole run can hold.
    """
    files = [SiteFile.load(folder) for folder in folders]
    federation = _one_federation(files)
    context, method = shared or _loaded(federation, files[0].device)
    experiment, verbs = context.experiment, verbs_of(context.experiment, method)
    roster = read_roster(federation / ROSTER) if method.rule.config.secure else {}
    opening = _Opening(method, roster, agreement(experiment, method, roster), again)
    agreed = digest_of(experiment, federation)
    room = allow_open_files(len(folders))
    if not room and shared is None:
        what = f"a process cannot hold the locks of {len(folders)} sites: the system does not let it open so many files"
        raise RunError(what, fix="Raise run.workers, or the limit (ulimit -n).")
    with ExitStack() as opened:
        sites = []
        for folder, file in zip(folders, files, strict=True):
            kept = SiteStore.held(folder, file.name, locked=room)  # if not, the run's own lock keeps others out
            opened.callback(kept.release)
            records = records_of(file, experiment, context.reading)
            asked = AskedOf(experiment, method, verbs, len(records), len(roster) or None)
            rejection = file.allow.rejection_reason(asked) or missing_consent(folder, file, agreed)
            rejection = rejection or _known_otherwise(folder, method, len(records))
            site = opening.site(file, kept, *apart_of(experiment, method, file.name, records), rejection)
            if not file.simulated:
                promised = None if rejection else _promised(asked)
                owner = OwnersWord(folder, file.allow, agreed, promised)
                site.runs = Joined(folder / RUNS_JOURNAL, owner, site.budget)
            sites.append(site)
        opened.pop_all()
    stream, rounds = Stream(experiment.run.seed), experiment.method.total_rounds
    return Host(sites, verbs, context.runtime("site"), stream, method.rule, run=None, rounds=rounds)


def _known_otherwise(folder: Path, method: Method, records: int) -> str | None:
    """That a site has another number of records than the federation knows it with, by which the server reckons what an
    answer may cost that it does not get; None where it has not, or nothing goes by it."""
    path = folder / PUBLIC_KEYS
    if method.protects != "record" or not path.exists():
        return None
    try:
        known = json.loads(path.read_text(encoding="utf-8"))["records"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        known = None
    if known == records:
        return None
    return (
        f"the site has {records} records and was made known with {known}: `murmura site init` writes {PUBLIC_KEYS} "
        "anew, for whoever leads the federation to add again"
    )


def _promised(asked: AskedOf) -> dict[str, Any] | None:
    """What a run promises this site, as far as it can be told."""
    try:
        return asked.promised
    except PrivacyError:
        return None


@dataclass(frozen=True)
class _Opening:
    """What sites of one process have in common."""

    method: Method
    roster: Roster
    agreement: Agreement | None
    again: bool
    nonce: str = field(default_factory=partial(token_hex, 8))

    def site(
        self, file: SiteFile, kept: SiteStore, records: list[Any], apart: list[Any], rejection: str | None
    ) -> Site:
        """One of them.

        Args:
            records: that it takes part with.
            apart: that it only measures with.
            rejection: why its owner does not allow the run.
        """
        self.method.check(file.name, records)
        return Site(
            file.name,
            records,
            rejection=rejection,
            kept=kept,
            journal=kept.ledger,
            centres=kept.centres,
            results=Path(file.results),
            budget=_budget(file, records, self.nonce),
            masking=self._masking(file, kept, records),
            answered=Answered(kept.folder / ANSWERS_JOURNAL, again=self.again or file.simulated),
            measured=Answered(None if file.simulated else kept.folder / MEASURED_JOURNAL, again=self.again),
            released=None if file.simulated else ReleaseJournal(kept.released),
            apart=apart,
            agreed=None if file.simulated else agreed_on(Path(file.federation)),
        )

    def _masking(self, file: SiteFile, kept: SiteStore, records: list[Any]) -> Masking | None:
        if self.agreement is None:
            return None
        signed = Journal(kept.folder / SUMS_JOURNAL, f"journal of secure sums of site {file.name}")
        accounts = file.budget.folder
        all_runs = SignedInAllRuns(Path(accounts), records, signed) if accounts else None
        return Masking(file.name, "", identity(kept.folder), self.roster, self.agreement, signed, all_runs)


def _one_federation(files: Sequence[SiteFile]) -> Path:
    first, *others = {file.federation: file.name for file in files}.items()
    if others:
        what = f"this site is of another federation than site {first[1]}, with which it is to share a process"
        raise ConfigError(what, where=f"site {others[0][1]}", fix="Open it in a process of its own.")
    return Path(first[0])


def _loaded(federation: Path, device: str) -> tuple[ProcessContext, Method]:
    experiment = experiment_of(federation)
    method = method_of(experiment)
    context = process_context(experiment, method, device, ["site"])
    require_same_models(federation, experiment, "site", fetch=method.traits.trained_at == "sites")
    return context, method


def experiment_of(federation: Path) -> Experiment:
    """The experiment that a site's federation hands round.

    Raises:
        ConfigError: it is not there, or an option is wrong.
    """
    path = federation / EXPERIMENT
    if not path.exists():
        fix = f"Get the folder {FEDERATION} from whoever made the federation, and put it where {SITE_FILE} says."
        raise ConfigError("what the federation hands round is not here", where=str(path), fix=fix)
    return Experiment.load(path)


def records_of(file: SiteFile, experiment: Experiment, reading: Reading | None, *, told: bool = False) -> list[Any]:
    """The records of a site that it can take part with, of the kind that the experiment is about. Left out are those
    that do not fit the model, those that the run is measured on, of which the federation hands round the digests, and
    then those of a person beyond ``data.records_per_user``, as in a simulation. Of a simulated site's all are of use.

    Args:
        reading: how records meet the model; None where it is out of reach, and so is which ones fit it.
        told: whether to say, here at the site, which are left out, and which are there more than once.

    Raises:
        DataError: they cannot be read, or one is bad; none is left; or the federation's list cannot be read.
        ConfigError: the experiment bounds a person's records, and the site's file does not say whose they are.
    """
    kind: type[Any] = KINDS[experiment.task.kind]
    most = None if file.simulated else experiment.data.records_per_user
    if most is not None and file.user is None:
        what = f"the experiment lets a person have {most} of a site's records, and nothing says whose they are"
        fix = 'Write user = "COLUMN", or user = "" if each record is about a different person.'
        raise ConfigError(what, where=f"site {file.name}: {SITE_FILE}", fix=fix)
    loaded = scan(file.records, kind, fields=file.fields, user_column=file.user if most and file.user else None)
    require_usable([loaded], skip_bad=False, remedy="Or take them out of the file.")
    if file.simulated:
        return list(loaded.records)
    users: Sequence[str | None] = loaded.users or [None] * len(loaded.records)
    placed = zip(loaded.records, loaded.places, users, strict=True)
    rows, unused = [Placed(record, where, file.name, user=user) for record, where, user in placed], list[Unused]()
    if reading is not None:  # what cannot be used is left out, whatever simulations do about it
        rows, unused = fitting(rows, experiment.data.model_copy(update={"skip_bad": True}), reading)
    agreed = agreed_on(Path(file.federation))
    measured = {row.where for row in rows if digest([row.record.identity]) in agreed}
    unused += [Unused(row.where, "measured", "the run is measured on it") for row in rows if row.where in measured]
    rows = [row for row in rows if row.where not in measured]
    if most is not None and loaded.users is not None:
        rows, others = bounded(rows, most, Stream(0))  # the same in every run: a site's records have a digest
        unused += others
    if told:
        tell(unused, f"{experiment.data.max_length} tokens (data.max_length)")
        tell_repeats({file.name: rows})
    if not rows:
        fix = "Look at data.max_length in the experiment, or at the records."
        raise DataError("no record can be used", where=f"site {file.name}: {file.records}", fix=fix)
    return [row.record for row in rows]


def agreed_on(federation: Path) -> frozenset[str]:
    """Digests of the records and questions that the run is measured on, as the federation hands them round; an empty
    list where there are none.

    Raises:
        DataError: they cannot be read.
    """
    path, fix = federation / HELDOUT_DIGESTS, "Get it from whoever made the federation."
    try:
        listed = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
            raise ValueError("a list of texts is expected")
    except OSError as error:
        what = f"the list of held-out records cannot be read ({error.strerror})"
        raise DataError(what, where=str(path), fix=fix) from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"this is not a list of digests ({error})", where=str(path), fix=fix) from None
    return frozenset(listed)


def _budget(file: SiteFile, records: Sequence[Any], nonce: str) -> Budget | None:
    """The account of a site, in the place that its owner has chosen for all runs. In a simulation, whose processes have
    sites of one run each, the run's id is the owner's own."""
    chosen = file.budget
    if chosen.folder is None:
        return None
    opening = "" if file.simulated else nonce
    return Budget(Path(chosen.folder), file.name, digest(records), chosen.epsilon, chosen.delta, opening)

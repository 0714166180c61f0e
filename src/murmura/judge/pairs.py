"""The questions that are judged, and both sides' answers to them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from murmura.audit.subject import hold_to_digests
from murmura.data.records import Instruction
from murmura.data.refusal import REMOVE
from murmura.data.texts import folded
from murmura.errors import ConfigError, DataError
from murmura.experiment.config import Experiment
from murmura.experiment.context import process_context
from murmura.experiment.prepare import records_of
from murmura.experiment.trained import Trained, adapter_of, questions, require_answers
from murmura.experiment.validate import method_of
from murmura.judge.judging import Compared
from murmura.progress import say
from murmura.report.content import capital
from murmura.runs import read
from murmura.runs.folder import RunFolder
from murmura.runs.schema import DEPLOYED
from murmura.units import listing, several


def require_site(run: Path, other: Path | None, site: str | None) -> None:
    """Hold the name of a site, or that none is named, to whether sites keep adapters of their own.

    Args:
        other: the run that the first is compared with; None for its own model before training.

    Raises:
        ConfigError: there is no such site, or none that keeps one, or one has to be named.
    """
    keeping = [one for one in (run, other) if one is not None and RunFolder(one).sites_with_adapters]
    for one in keeping or [run] * (site is not None):
        adapter_of(RunFolder(one), site)


def are_private(experiment: Experiment, file: Path | None) -> bool:
    """Whether questions come out of the sites' records, as held-out ones do that were taken out of those."""
    return file is None and experiment.data.heldout is None


def require_sendable(experiment: Experiment, run: Path, file: Path | None, site: str | None, *, private: bool) -> None:
    """Hold what an endpoint would see to what its owner has said may be sent.

    Args:
        file: of questions; None for the run's held-out ones.
        site: whose own adapter answers; None where an adapter of all sites does.
        private: what is private may be sent.

    Raises:
        ConfigError: the run's held-out records were its sites' own, or a site's own adapter answers, which no ε covers,
            and ``private`` does not say to send them.
    """
    seen = [f"answers by the adapter that '{site}' keeps for itself"] * (site is not None)
    if are_private(experiment, file):
        seen.append("the run's held-out questions, which were taken out of its sites' private records")
    if seen and not private:
        ways = ["give --questions FILE with public ones"] * (site is None) + ["judge on this machine (--by)"]
        fix = capital(f"{', '.join(ways)}, or say --send-private.")
        raise ConfigError(f"an endpoint would see {listing(seen)}", where=str(run), fix=fix)


def asked_of(experiment: Experiment, run: Path, file: Path | None, most: int) -> list[Instruction]:
    """Questions of a file, or the held-out ones that the run was measured on; none twice, and without their outputs.

    Args:
        file: of questions; None for the held-out ones.
        most: the first so many.

    Raises:
        DataError: there are none, they cannot be read, or the run's records have changed since, so that sites may have
            trained on what is held out now.
        CheckpointError: it is not known whether they have.
    """
    if file is not None:
        found = [one.asked for one in questions(experiment, file, remedy=REMOVE).records]
    else:
        method = method_of(experiment)
        records = records_of(experiment, method, process_context(experiment, method).reading)
        if experiment.data.heldout is None:
            hold_to_digests(RunFolder(run), records.planted.sites)
        found = [one.asked for one in records.public.heldout]
    if not found:
        raise DataError(
            "there is no question", where=str(file or experiment.data.heldout), fix="Give --questions FILE."
        )
    once = {one.identity: one for one in found}  # greedy answers and verdicts would be the same again, or nearly
    return list(once.values())[:most]


def require_unseen(asked: Sequence[Instruction], run: Path, other: Path) -> None:
    """Refuse a run's held-out questions where they are records of the run that it is compared with, which then answers
    what it was trained on. Runs that hold out the same records have been held to that when they began.

    Raises:
        DataError: some are, or the other run's records have changed since.
        CheckpointError: it is not known whether they have.
    """
    one, two = (read(folder).measured for folder in (run, other))
    if one and two and one.heldout.digest is not None and one.heldout.digest == two.heldout.digest:
        return
    experiment = require_answers(other)
    if experiment.run.engine == DEPLOYED:
        say(f"{other}: its sites' records are not here, so that nobody knows whether these questions are among them")
        return
    method = method_of(experiment)
    sites = records_of(experiment, method, process_context(experiment, method).reading).planted.sites
    hold_to_digests(RunFolder(other), sites)
    known = {folded(record.question or "") for site in sites for record in site.records}
    if count := sum(folded(one.question) in known for one in asked):
        what = f"{count} of the {len(asked)} questions are among the records that this run was trained on"
        fix = "Judge runs that hold out the same records, as those of one seed do, or give --questions FILE."
        raise DataError(what, where=str(other), fix=fix)


def answered(
    run: Path, other: Path | None, asked: Sequence[Instruction], tokens: int, site: str | None = None
) -> list[Compared]:
    """Both sides' answers, written greedily, to questions that leave room for one.

    Args:
        other: the run that the first is compared with; None for its own model before training.
        tokens: most of an answer.
        site: whose adapter answers, of a run whose sites keep their own.

    Raises:
        ConfigError: no such run is named, or it has no such site.
        DataError: no question leaves room for an answer.
    """
    kept = [bool(RunFolder(one).sites_with_adapters) for one in (run, other) if one is not None]
    trained = Trained.load(run, site if kept[0] else None)
    adapters = [trained.after] if other is not None else [trained.after, trained.before]
    written = trained.answers(asked, adapters, tokens)
    if other is not None:
        del trained  # before another base model is loaded
        rival = Trained.load(other, site if kept[1] else None)
        written += rival.answers(asked, [rival.after], tokens)
    ours, theirs = written[: len(asked)], written[len(asked) :]
    found = [
        Compared(f"{record.instruction}\n\n{record.input}".strip(), one.text.strip(), two.text.strip())
        for record, one, two in zip(asked, ours, theirs, strict=True)
        if all(each.ids or each.finished for each in (one, two))
    ]
    if not found:
        fix = "Give --questions FILE with shorter ones."
        raise DataError("no question leaves room for an answer in the model's context", where=str(run), fix=fix)
    if without := len(asked) - len(found):
        say(f"{several(without, 'question')} left no room for an answer in the model's context: not judged")
    return found

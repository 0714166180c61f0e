"""``murmura audit``: attack what a finished run has left, and write down what was found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from murmura import __version__
from murmura.audit.attack_scores import AttackScores
from murmura.audit.centres import attacked
from murmura.audit.extraction import GIVEN, WRITTEN, extracted, log_probabilities
from murmura.audit.membership import AuditSample, Readings, closely, measured, readings_of, scored, unlike
from murmura.audit.published import published
from murmura.audit.subject import Subject, subject
from murmura.audit.synthetic import compared
from murmura.audit.targets import reachable, targets
from murmura.audit.writing import begun, completed
from murmura.errors import ConfigError, DataError
from murmura.generation.sampling import Sampling
from murmura.measure.attacks import CONTROL
from murmura.report.content import capital
from murmura.report.table import promises_privacy
from murmura.runs import read
from murmura.runs.audit import TARGETS, Audit, AuditedModel, Extraction, Written
from murmura.runs.folder import RunFolder
from murmura.runs.names import AUDIT, AUDIT_SCORES
from murmura.tasks import Task
from murmura.units import listing

_CENTRES_CAVEAT = (
    "The ε of the centres covers none of this: an audit looks at private records, and its figures come without noise."
)
_LOST = "{} was not attacked by {}, whose score of some record is no finite number."
Line = dict[str, Any]
"""Of one record, JSON."""


@dataclass(frozen=True)
class Options:
    """How an audit is made.

    Args:
        records: at most so many members, all sites together, and so many others are scored.
        texts: so many texts are written for each way of getting records out of a model; 0 for none.
        sampling: how an attacker who tries to get records lets the model write; by default as Hayes et al. (2024) do.
        probability: with which an attacker is to get a record.

    Raises:
        ConfigError: a number is out of range.
    """

    records: int = 1000
    texts: int = 100
    sampling: Sampling = field(default_factory=lambda: Sampling(top_k=40))
    probability: float = 0.9

    def __post_init__(self) -> None:
        if self.records < 1:
            raise ConfigError(f"an audit of {self.records} records finds nothing", where="--records", fix="Give more.")
        if self.texts < 0:
            raise ConfigError(f"{self.texts} texts", where="--texts", fix="Give a number of texts, or 0 for none.")
        if not 0 < self.probability < 1:
            fix = "Give one above 0 and below 1."
            raise ConfigError(f"{self.probability:g} is no probability to succeed with", where="--probability", fix=fix)


def audit(path: Path, options: Options) -> Audit:
    """Audit a finished run. What was found is in its folder when all is done; until then an earlier audit stays.

    Args:
        path: of the run folder.
        options: how.

    Raises:
        MurmuraError: as ``subject``; or another process works in the folder.
    """
    promises = promises_privacy([read(path)])  # what is no run gets no lock
    folder = RunFolder(path)
    with folder.locked():
        found, lines = _audited(subject(path), folder, options)
        found = published(found) if promises else found
        folder.write_private(AUDIT_SCORES, lines)
        folder.write(AUDIT, found)
    return found


def _audited(what: Subject, folder: RunFolder, options: Options) -> tuple[Audit, list[Line]]:
    task, stream = what.experiment.task, what.stream / "audit"
    members, missing = reachable(what)
    sample = AuditSample.drawn(members, what.others, options.records, stream)
    if not sample.count:
        fix = "Audit a run whose sites have labelled records, or have left their adapters."
        raise DataError("no site has a record that can be attacked", where=" ".join(missing) or None, fix=fix)
    reader = closely(task, options.sampling)
    models: list[AuditedModel] = []
    extraction: list[Extraction] = []
    written: list[Written] = []
    lines: list[Line] = []
    different = False
    for one in targets(what, sample, missing):
        target, adapters = one.name, one.models
        readings = readings_of(reader, what.runtime, sample, adapters, f"audit of {TARGETS[target]}")
        scores = {**scored(task, readings), **one.more}
        if lost := [name for name, own in scores.items() if not own.is_finite]:
            missing.append(_LOST.format(capital(TARGETS[target]), listing(lost)))
            scores = {name: own for name, own in scores.items() if name not in lost}
        if not scores.keys() - {CONTROL}:
            continue
        if not models:
            different = unlike(readings)  # of the model: those of uploads may be of fewer records
        models.append(measured(target, scores, stream))
        lines += _records(task, target, sample, readings, scores)
        if task.is_text:
            tries = extracted(target, task, readings, options.sampling, options.probability)
            extraction += [tries] if tries else []
        if task.writes and options.texts:
            bench, own = what.runtime, stream / "writing" / target
            written.append(completed(target, adapters, sample, bench, options.texts, own))
            texts = begun(target, adapters, sample, bench, options.texts, options.sampling, own)
            written += [texts] if texts else []
    if task.is_text and models and not extraction:
        missing.append(f"No document has {GIVEN + WRITTEN} tokens, so it was not tried to get one word for word.")
    centres, guessed = attacked(what, missing)
    lines += guessed
    made_up, near = compared(what, folder, options.records, missing)
    lines += near
    made = datetime.now().astimezone().isoformat(timespec="seconds")
    caveat = _CENTRES_CAVEAT if any(one.kind == "exact" for one in centres) else None
    found = Audit(
        __version__,
        made,
        tuple(models),
        tuple(missing),
        tuple(extraction),
        tuple(written),
        caveat,
        tuple(centres),
        tuple(made_up),
        different,
    )
    return found, lines


def _records(
    task: Task, target: str, sample: AuditSample, readings: Readings, found: Mapping[str, AttackScores]
) -> list[Line]:
    """Every record's scores; of a text also the log-probability with which one try gives it."""
    lines: list[Line] = []
    row = 0
    for site, passes in readings.members.items():
        chances = log_probabilities(task, passes) if task.is_text else [None] * len(passes)
        for place, chance in zip(sample.places[site], chances, strict=True):
            told = {} if chance is None else {"log_probability": chance}
            scores = {name: float(one.members[row]) for name, one in found.items()}
            lines.append({"target": target, "site": site, "record": place, **scores, **told})
            row += 1
    for place in range(len(sample.others)):  # of several models, or asked about several sites, a score each
        each = {name: [float(score) for score in one.others[:, place]] for name, one in found.items()}
        lines.append({"target": target, "nonmember": place, **each})
    return lines

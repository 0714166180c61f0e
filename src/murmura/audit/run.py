"""``murmura audit``: attack what a finished run has left, and write down what was found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from murmura import __version__
from murmura.audit.membership import Sample, Scorer, measured, scored
from murmura.audit.subject import Subject, subject
from murmura.audit.versus import Versus
from murmura.errors import ConfigError
from murmura.generation.sampling import Sampling
from murmura.runs import read
from murmura.runs.folder import RunFolder
from murmura.runs.schema import Audit, AuditedModel
from murmura.training.adapter import State


@dataclass(frozen=True)
class Options:
    """How an audit is made.

    Args:
        records: at most so many members, all sites together, and so many others are scored.
        sampling: how an attacker who tries to extract records lets the model write.
    """

    records: int = 1000
    sampling: Sampling = field(default_factory=lambda: Sampling(top_k=40))


def audit(path: Path, options: Options) -> Audit:
    """Audit a finished run. What was found is in its folder when all is done; until then an earlier audit stays.

    Args:
        path: of the run folder.
        options: how.

    Raises:
        MurmuraError: as ``subject``; or another process works in the folder.
    """
    if options.records < 1:
        raise ConfigError(f"an audit of {options.records} records finds nothing", where="--records", fix="Give more.")
    read(path)  # what is no run gets no lock
    folder = RunFolder(path)
    with folder.locked():
        found, lines = _audited(subject(path), options)
        folder.write_audit(found, lines)
    return found


def _audited(what: Subject, options: Options) -> tuple[Audit, list[dict[str, Any]]]:
    task, stream = what.experiment.task, what.stream / "audit"
    members, missing = _reachable(what)
    sample = Sample.drawn(members, what.others, options.records, stream)
    scorer = Scorer(task, what.workbench, sample, options.sampling)
    models: list[AuditedModel] = []
    lines: list[dict[str, Any]] = []
    for target, adapters in _targets(what, sample):
        found = scored(task, scorer.read(adapters, f"audit of {target}"))
        models.append(measured(target, found, stream))
        lines += _records(target, sample, found)
    made = datetime.now().astimezone().isoformat(timespec="seconds")
    return Audit(__version__, made, tuple(models), tuple(missing)), lines


def _reachable(what: Subject) -> tuple[Mapping[str, Any], list[str]]:
    """The sites whose records can be attacked, and what to say of the others."""
    if what.models.whole is not None:
        return what.members, []
    own = {site: records for site, records in what.members.items() if site in what.models.own}
    gone = [site for site in what.members if site not in own]
    return own, [f"Of these sites there is no adapter: {', '.join(gone)}."] if gone else []


def _targets(what: Subject, sample: Sample) -> Iterator[tuple[str, dict[str, State]]]:
    """What is attacked: each time, a model for each site."""
    whole = what.models.whole
    if whole is not None:
        yield "model", dict.fromkeys(sample.members, whole)
    else:
        yield "adapters", {site: what.models.own[site] for site in sample.members}


def _records(target: str, sample: Sample, found: Mapping[str, Versus]) -> Iterator[dict[str, Any]]:
    """Every record's scores."""
    names = [(site, place) for site, places in sample.places.items() for place in places]
    for row, (site, place) in enumerate(names):
        yield {"target": target, "site": site, "record": place, **{n: float(v.members[row]) for n, v in found.items()}}
    for column in range(len(sample.others)):
        for row in range(next(iter(found.values())).others.shape[0]):
            each = {name: float(one.others[row, column]) for name, one in found.items()}
            yield {"target": target, "nonmember": column, "model": row, **each}

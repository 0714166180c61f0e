"""What of a run is attacked, and by which attacks that take more than one model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from murmura.audit.attack_scores import AttackScores
from murmura.audit.curious import FEDMIA, RMIA, TRAJECTORY, fedmia, rmia, trajectory
from murmura.audit.losses import Losses, losses, plain
from murmura.audit.membership import AuditSample
from murmura.audit.subject import Subject
from murmura.training.adapter import State

_NOTHING_KEPT = (
    f"{TRAJECTORY.capitalize()}, {RMIA} and {FEDMIA} were not tried, and no single upload was attacked: the run kept "
    "no rounds. With `[audit] keep = true` it would have."
)
_PERSONAL = (
    "The adapters that sites trained for themselves at the end stay with them, and were not attacked: whoever sees one "
    "may find more."
)
_SEEN_BEFORE = (
    f"{RMIA} takes the other sites’ first uploads for models that have not seen a record. Some sites were first heard "
    "after round 1, so that theirs began with a model that may have: it may find less than it could."
)


@dataclass(frozen=True)
class Target:
    """Something that is attacked.

    Attributes:
        name: a key of ``runs.audit.TARGETS``.
        models: of each site whose records are members, a model; the same object for several sites is one model.
        more: what attacks that take other models besides have found, by name.
    """

    name: str
    models: Mapping[str, State]
    more: Mapping[str, AttackScores] = field(default_factory=dict)


def reachable(what: Subject) -> tuple[Mapping[str, Sequence[Any]], list[str]]:
    """The sites whose records can be attacked, and what to say of the others."""
    if what.models.whole is not None:
        return what.members, []
    own = {site: records for site, records in what.members.items() if site in what.models.own}
    gone = [site for site in what.members if site not in own]
    return own, [f"Of these sites there is no adapter: {', '.join(gone)}."] if gone else []


def targets(what: Subject, sample: AuditSample, missing: list[str]) -> Iterator[Target]:
    """All that there is to attack.

    Args:
        what: the run.
        sample: the records.
        missing: what cannot be done is added here, in sentences.

    Raises:
        CheckpointError: something that was kept is damaged.
    """
    whole = what.models.whole
    if whole is None:
        yield Target("adapters", {site: what.models.own[site] for site in sample.members})
        return
    models = dict.fromkeys(sample.members, whole)
    if what.experiment.personal is not None:
        missing.append(_PERSONAL)
    if not what.rounds:
        missing.append(_NOTHING_KEPT)
        yield Target("model", models)
        return
    lora = what.runtime.bank.lora and what.experiment.lora
    seen = losses(what.experiment.task, what.runtime, what.rounds, sample, lora)
    yield Target("model", models, {TRAJECTORY: trajectory(seen), RMIA: rmia(seen, seen.models[-1:])})
    if {site for one in what.rounds for site in one.sites} > set(what.rounds[0].sites):
        missing.append(_SEEN_BEFORE)
    if seen.heard:
        yield _uploads(what, seen.part(seen.heard), missing)


def _uploads(what: Subject, seen: Losses, missing: list[str]) -> Target:
    """The last upload of each site that has sent one."""
    lora = what.runtime.bank.lora and what.experiment.lora
    last = {site: one for one in what.rounds for site in one.sites}
    more = {RMIA: rmia(seen, seen.upload(first=False))}
    found = fedmia(seen)
    if found is None:
        missing.append(f"{FEDMIA} was not tried: it takes uploads of three sites in one round.")
    else:
        more[FEDMIA] = found
    return Target("uploads", {site: plain(last[site].upload(site), lora) for site in seen.sites}, more)

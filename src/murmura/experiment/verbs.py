"""What the sites of a run can be asked for."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from murmura.augment.verbs import Augmenting
from murmura.experiment.config import Experiment
from murmura.experiment.start import adapter_to_begin_with
from murmura.federation.exporting import Exporting
from murmura.federation.membership import Membership
from murmura.federation.method import Method
from murmura.federation.summing import SecureSumming
from murmura.federation.wire.releases import Verbs
from murmura.measure.verbs import MeasurementPlan, Measuring
from murmura.personal.verbs import PERSONAL, Personalising
from murmura.training import adapter

_RUN = {"name", "folder", "chosen_by", "engine", "workers", "answer_seconds", "min_replies", "slots", "cache_bytes"}
_OWN: Any = {  # of each member, or of the server alone
    "budget": True,
    "tracking": True,
    "run": _RUN,
    "data": {"train", "heldout", "split", "heldout_split", "fields", "heldout_fields", "user", "sites"},
    "model": {"device"},
}


def fingerprint(experiment: Experiment) -> str:
    """SHA-256 of what server and sites have to agree on. Files count by their names: each has them where it likes; the
    adapter that training begins with by what it is.

    Raises:
        ModelError: that adapter is not there.
    """
    tables = experiment.model_dump(mode="json", exclude_none=True, exclude=_OWN)
    if begun := adapter_to_begin_with(experiment):
        tables["model"]["adapter"] = adapter.fingerprint(begun[0])
    return hashlib.sha256(json.dumps(_without_places(tables), sort_keys=True).encode()).hexdigest()


def _without_places(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_places(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_without_places(one) for one in value]
    return Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value


def verbs_of(experiment: Experiment, method: Method) -> list[Verbs]:
    """All that sites can be asked for in a run: each site decides it by its own copy of the experiment."""
    task, rounds, digest = experiment.task, experiment.method.total_rounds, fingerprint(experiment)
    sized = method.protects == "record"
    membership = Membership(task.kind, counts=method.tells_sizes, sized=sized, experiment=digest)
    planted = bool(experiment.audit.canaries)
    evaluation = experiment.evaluation.settled(promises=method.protects is not None)
    uploads = evaluation.uploads > 0 and method.uploads_are_heard and not method.rule.config.secure
    measured = MeasurementPlan(evaluation, rounds, personal=method.keeps_adapters, uploads=uploads, planted=planted)
    every: list[Verbs] = [method, membership, Measuring(task, method.members, measured)]
    if method.keeps_adapters:
        every.append(Exporting())
    if method.rule.config.secure:
        every.append(SecureSumming())
    if experiment.augment is not None:
        canaries = task.is_canary if planted else None
        every.append(Augmenting(experiment.augment, drops=not method.protects, rounds=rounds, planted=canaries))
    if experiment.personal is not None:
        tells = bool(experiment.personal.apart(promises=method.protects is not None))
        every.append(Personalising(experiment.personal, task, method.members, tells=tells))
        every.append(Exporting(PERSONAL, beside=True))
    return every

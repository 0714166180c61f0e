"""What the sites of a run can be asked for."""

from __future__ import annotations

from murmura.augment.verbs import Augmenting
from murmura.experiment.config import Experiment
from murmura.federation.exporting import Exporting
from murmura.federation.membership import Membership
from murmura.federation.method import Method
from murmura.federation.summing import SecureSumming
from murmura.federation.wire.releases import Verbs
from murmura.measure.verbs import Measured, Measuring


def verbs_of(experiment: Experiment, method: Method) -> list[Verbs]:
    """All that sites can be asked for in a run: each site decides it by its own copy of the experiment."""
    task, rounds = experiment.task, experiment.method.total_rounds
    membership = Membership(task.kind, counts=method.tells_sizes and not method.protects)
    planted = bool(experiment.audit.canaries)
    evaluation = experiment.evaluation.settled(promises=method.protects is not None)
    uploads = method.trains and method.uploads_are_heard and not method.rule.config.secure
    measured = Measured(evaluation, rounds, personal=method.keeps_adapters, uploads=uploads, planted=planted)
    every: list[Verbs] = [method, membership, Measuring(task, method.members, measured)]
    if method.keeps_adapters:
        every.append(Exporting())
    if method.rule.config.secure:
        every.append(SecureSumming())
    if experiment.augment is not None:
        canaries = task.is_canary if planted else None
        every.append(Augmenting(experiment.augment, drops=not method.protects, rounds=rounds, planted=canaries))
    return every

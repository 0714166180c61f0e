"""What every process of a run needs, whether it is the server's or has sites in it: the model, and what stands around
records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from murmura import methods
from murmura.augment.verbs import Augmenting
from murmura.experiment.config import Experiment
from murmura.experiment.reading import reading
from murmura.experiment.resident import Resident, announced, loaded
from murmura.experiment.resources import Supply, declared, supplies
from murmura.federation.exporting import Exporting
from murmura.federation.joining import Joining
from murmura.federation.method import Method
from murmura.federation.summing import SecureSumming
from murmura.federation.wire.releases import Verbs
from murmura.measure.verbs import Measured, Measuring
from murmura.model_runtime import ModelRuntime
from murmura.reading import Reading
from murmura.resources import Loader, Resources, Side
from murmura.training.bank import Bank


def verbs_of(experiment: Experiment, method: Method) -> list[Verbs]:
    """All that sites can be asked for in a run: each site decides it by its own copy of the experiment."""
    task, rounds = experiment.task, methods.rounds(experiment.method)
    joining = Joining(task.kind, counts=method.tells_sizes and not method.promises)
    planted = bool(experiment.audit.canaries)
    measured = Measured(
        experiment.evaluation.settled(promises=method.promises), rounds, personal=method.keeps_adapters,
        uploads=method.trains and method.uploads_are_heard and not method.rule.config.secure, planted=planted,
    )  # fmt: skip
    every: list[Verbs] = [method, joining, Measuring(task, method.members, measured)]
    if method.keeps_adapters:
        every.append(Exporting())
    if method.rule.config.secure:
        every.append(SecureSumming())
    if experiment.augment is not None:
        canaries = task.is_canary if planted else None
        every.append(Augmenting(experiment.augment, drops=not method.promises, rounds=rounds, planted=canaries))
    return every


@dataclass(frozen=True)
class Workplace:
    """A resident model, how records meet it, and what else the run's method works with.

    Args:
        supplies: the resources that are declared for the sides that are here.
        loader: what loads them, when they are used.
    """

    resident: Resident
    reading: Reading
    supplies: Sequence[Supply]
    loader: Loader

    @property
    def bank(self) -> Bank:
        """The resident model itself."""
        return self.resident.bank()

    def runtime(self, experiment: Experiment, side: Side) -> ModelRuntime:
        """Tools over the resident model for one side of the run; both can share it."""
        return ModelRuntime(
            self.resident.bank, self.resident.tokenizer, self.reading, experiment.training,
            max_length=experiment.data.max_length, slots=experiment.run.slots,
            decode_rows=experiment.run.decode_rows, decode_dtype=experiment.run.decode_dtype, base=self.resident.base,
            model=experiment.model.name, source=self.resident.source,
            resources=Resources({supply.option: supply.resource for supply in self.supplies}, side, self.loader),
            start=self.resident.start,
        )  # fmt: skip


def workplace(
    experiment: Experiment, device: str | None = None, sides: Sequence[Side] = ("site", "server")
) -> Workplace:
    """Load the model of an experiment, and find the resources that it declares. Where the method trains none of
    it, the model is loaded when it is first used, if it ever is.

    Args:
        experiment: in question.
        device: where to; as the experiment says if not given.
        sides: of the run that are in this process.

    Raises:
        ModelError: a model is unavailable, the resident one cannot be adapted, or a resource is of another kind.
        ConfigError: records do not fit it; see ``reading``.
    """
    method = methods.build(experiment.method, experiment.aggregation)
    found = supplies(declared(experiment, method), sides)
    resident = (loaded if method.trains else announced)(experiment, device)
    what = reading(experiment, resident.tokenizer, resident.config, masked=resident.masked)
    return Workplace(resident, what, found, Loader(str(resident.device)))

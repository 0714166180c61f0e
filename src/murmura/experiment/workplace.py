"""What every process of a run needs, whether it is the server's or has sites in it: the model, and what stands around
records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from murmura import methods, models
from murmura.experiment.config import Experiment
from murmura.experiment.reading import reading
from murmura.experiment.resources import Supply, supplies
from murmura.federation.joining import Joining
from murmura.federation.keeping import Keeping
from murmura.federation.method import Method
from murmura.federation.wire.releases import Verbs
from murmura.measure.verbs import Measuring
from murmura.reading import Reading
from murmura.resources import Loader, Resources, Side
from murmura.tasks.task import Task
from murmura.training.bank import Bank
from murmura.workbench import Workbench


def verbs_of(method: Method, task: Task) -> list[Verbs]:
    """All that sites can be asked for in a run of a method on a kind of record."""
    joining = Joining(task.kind, counts=method.tells_sizes and not method.promises)
    return [method, joining, Keeping(), Measuring(task, method.members)]


@dataclass(frozen=True)
class Workplace:
    """A resident model, how records meet it, and what else the run's method works with.

    Args:
        source: where the model came from.
        base: what an adapter's folder calls the model.
        supplies: the resources that the method declares for the sides that are here.
        loader: what loads them, when they are used.
    """

    bank: Bank
    tokenizer: Any
    reading: Reading
    source: str
    base: str
    supplies: Sequence[Supply]
    loader: Loader

    def workbench(self, experiment: Experiment, side: Side) -> Workbench:
        """Tools over the resident model for one side of the run; both can share it."""
        return Workbench(
            self.bank, self.tokenizer, self.reading, experiment.training,
            max_length=experiment.data.max_length, slots=experiment.run.slots,
            decode_rows=experiment.run.decode_rows, decode_dtype=experiment.run.decode_dtype, base=self.base,
            resources=Resources({supply.option: supply.resource for supply in self.supplies}, side, self.loader),
        )  # fmt: skip


def workplace(
    experiment: Experiment, device: str | None = None, sides: Sequence[Side] = ("site", "server")
) -> Workplace:
    """Load the model of an experiment, and find the resources that its method declares.

    Args:
        experiment: in question.
        device: where to; as the experiment says if not given.
        sides: of the run that are in this process.

    Raises:
        ModelError: a model is unavailable, the resident one cannot be adapted, or a resource is of another kind.
        ConfigError: records do not fit it; see ``reading``.
    """
    model = experiment.model
    found = supplies(methods.build(experiment.method, experiment.aggregation), sides)
    loaded = models.load(
        model.name, experiment.model_task, model.load_dtype, device or model.device, model.quantization
    )
    bank = Bank(loaded.model, experiment.lora if model.trainable == "adapter" else None)
    what = reading(experiment, loaded.tokenizer, bank.model.config, masked=not bank.head.is_decoder)
    return Workplace(bank, loaded.tokenizer, what, loaded.source, loaded.base, found, Loader(str(bank.device)))

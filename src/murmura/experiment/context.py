"""What every process of a run works with, whether it is the server's or has sites in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from murmura.experiment.config import Experiment
from murmura.experiment.model_spec import ModelSpec, model_spec
from murmura.experiment.reading import reading
from murmura.experiment.resources import Supply, declared, supplies
from murmura.federation.method import Method
from murmura.model_runtime import ModelRuntime
from murmura.reading import Reading
from murmura.resources import Loader, Resources, Side
from murmura.training.adapter import State
from murmura.training.bank import Bank


@dataclass(frozen=True)
class ProcessContext:
    """A model, how records meet it, and what else the run's method works with.

    Args:
        supplies: the resources that are declared for the sides that are here.
    """

    experiment: Experiment
    model: ModelSpec
    reading: Reading
    supplies: Sequence[Supply]

    @cached_property
    def loader(self) -> Loader:
        """Loads resources when they are used."""
        return Loader(str(self.model.device))

    def runtime(self, side: Side) -> ModelRuntime:
        """Tools over the model for one side of the run; both can share it."""
        source, base = self.model.origin
        return _runtime(
            self.experiment,
            lambda: self.model.bank,
            self.model.tokenizer,
            self.reading,
            base=base,
            model=self.experiment.model.name,
            source=source,
            resources=Resources({supply.option: supply.resource for supply in self.supplies}, side, self.loader),
            start=self.model.start,
        )


def process_context(
    experiment: Experiment, method: Method, device: str | None = None, sides: Sequence[Side] = ("site", "server")
) -> ProcessContext:
    """Find the model of an experiment and the resources that its method declares; nothing is loaded.

    Args:
        device: where to; as the experiment says if not given.
        sides: of the run that are in this process.

    Raises:
        ModelError: a model is unavailable, the run's cannot be adapted, or a resource is of another kind.
        ConfigError: records do not fit it; see ``reading``.
    """
    found = supplies(declared(experiment, method), sides)
    return in_context(experiment, model_spec(experiment, device), found)


def in_context(experiment: Experiment, model: ModelSpec, found: Sequence[Supply]) -> ProcessContext:
    """The same with a model and resources that are known."""
    what = reading(experiment, model.tokenizer, model.config, masked=model.masked)
    return ProcessContext(experiment, model, what, found)


def runtime_over(experiment: Experiment, bank: Bank, tokenizer: Any, start: State | None = None) -> ModelRuntime:
    """Tools over a model that is loaded, for records as an experiment has them.

    Args:
        start: the adapter that training began with; None where it began with the model as it is loaded.

    Raises:
        ConfigError: records do not fit it; see ``reading``.
    """
    what = reading(experiment, tokenizer, bank.model.config, masked=not bank.head.is_decoder)
    return _runtime(experiment, bank, tokenizer, what, start=start)


def _runtime(
    experiment: Experiment, bank: Bank | Callable[[], Bank], tokenizer: Any, what: Reading, **more: Any
) -> ModelRuntime:
    return ModelRuntime(
        bank,
        tokenizer,
        what,
        experiment.training,
        max_length=experiment.data.max_length,
        # What a site trains is held several times over while it is asked: of whole models, those of one site will do.
        slots=experiment.run.slots if experiment.model.trainable == "adapter" else 1,
        decode_rows=experiment.run.decode_rows,
        decode_dtype=experiment.run.decode_dtype,
        **more,
    )

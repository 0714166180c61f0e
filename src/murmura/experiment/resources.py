"""Whether the resources that a run declares are there, and what they are: told before it begins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from murmura import models
from murmura.errors import ModelError
from murmura.experiment.config import Experiment
from murmura.experiment.skeleton import OutOfReachError, config_and_tokenizer, skeleton_of
from murmura.federation.method import Method
from murmura.resources import KINDS, PLACES, Resource, Side, full_name
from murmura.runs.schema import OtherModel


@dataclass(frozen=True, slots=True)
class Supply:
    """A resource as it was found.

    Args:
        option: that names it, as it is declared.
        resource: what was declared.
        parameters: numbers in it; None where it is out of reach.
        source: where it came from; None where nothing was fetched.
    """

    option: str
    resource: Resource
    parameters: int | None
    source: str | None = None

    def told(self) -> OtherModel:
        """For the run's record."""
        return OtherModel(
            option=self.option,
            name=self.resource.name,
            kind=KINDS[self.resource.kind],
            place=PLACES[self.resource.side],
            parameters=self.parameters,
            source=self.source,
        )


def declared(experiment: Experiment, method: Method) -> dict[str, Resource]:
    """What a run needs: the method's, by its options, and what ``[augment]`` needs, by its options with the table."""
    return {**method.resources(), **(experiment.augment.resources() if experiment.augment else {})}


def supplies(needed: Mapping[str, Resource], sides: Sequence[Side] = ("site", "server")) -> list[Supply]:
    """Find what is declared for some sides of a run; what is not on this machine is fetched. Nothing is loaded.

    Raises:
        ModelError: one is unavailable or is not what it is declared as, naming the option.
    """
    found = []
    for option, resource in needed.items():
        if any(resource.needed_by(side) for side in sides):
            with _naming(option):
                place = models.locate(resource.name)
                if not models.holds_model(place.folder):
                    raise ModelError("the folder holds no weights", where=str(place.folder))
                found.append(Supply(option, resource, _parameters(resource, str(place.folder)), place.source))
    return found


def foreseen(needed: Mapping[str, Resource], unknown: list[str]) -> list[Supply]:
    """As ``supplies``, for a run that is only planned: no weights are fetched. What is out of reach is added to
    ``unknown``, in words.

    Raises:
        ModelError: one does not exist or is not what it is declared as, naming the option.
    """
    found = []
    for option, resource in needed.items():
        try:
            with _naming(option):
                parameters = _parameters(resource, resource.name)
        except OutOfReachError as error:
            unknown.append(str(error))
            parameters = None
        found.append(Supply(option, resource, parameters))
    return found


@contextmanager
def _naming(option: str) -> Iterator[None]:
    """Have errors say which option names the model."""
    try:
        yield
    except ModelError as error:
        what = f"{error.where}: {error.what}" if error.where else error.what
        raise type(error)(what, where=full_name(option), fix=error.fix) from error


def _parameters(resource: Resource, source: str) -> int:
    """How many numbers a model has, by its config alone."""
    config, tokenizer = config_and_tokenizer(source)
    if resource.kind == "masked" and tokenizer.mask_token is None:
        raise ModelError("is no masked language model: its tokenizer has no mask token", where=resource.name)
    return sum(p.numel() for p in skeleton_of(resource.name, config, resource.kind).parameters())

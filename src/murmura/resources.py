"""Models that a run needs besides the resident one: sentence encoders, and language models that carry no adapter.

A method declares them (``Method.resources``), and so does ``[augment]``. Each side of a run has those that are declared
for it, and no others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from murmura import models
from murmura.errors import RunError, nearest
from murmura.retrieval.encoder import Encoder

if TYPE_CHECKING:
    from murmura.models import LoadedModel

Kind = Literal["encoder", "masked", "causal"]
Side = Literal["site", "server"]
T = TypeVar("T")

KINDS: dict[Kind, str] = {
    "encoder": "sentence encoder",
    "masked": "masked language model",
    "causal": "causal language model",
}
"""How people call the kinds."""
PLACES = {"site": "at the sites", "server": "at the server", "both": "at the sites and the server"}
"""Where a resource is used, in words, by ``Resource.side``."""


def full_name(option: str) -> str:
    """An option that names a model, with its table: of ``[method]``, where it does not say another one."""
    return option if "." in option else f"method.{option}"


@dataclass(frozen=True, slots=True)
class Resource:
    """A model that a method needs.

    Args:
        kind: a sentence encoder, or a language model that fills in masks or continues texts.
        name: an alias, a folder or a hub id, as in ``murmura.models``.
        side: where it is needed.
    """

    kind: Kind
    name: str
    side: Literal["site", "server", "both"]

    def needed_by(self, side: Side) -> bool:
        """Whether that side of a run has it."""
        return self.side in (side, "both")


class Loader:
    """Loads the resources of one process, each of them once, whichever side asks for it first.

    Args:
        device: where to, as torch names it.

    Attributes:
        built: what was made of language models, by their names; see ``Resources.built``.
    """

    def __init__(self, device: str) -> None:
        self.device = device
        self.built: dict[str, Any] = {}
        self.encoder = cache(self._encoder)
        self.language_model = cache(self._language_model)

    def _encoder(self, name: str) -> Encoder:
        return Encoder(name, device=self.device)

    def _language_model(self, name: str, task: Literal["masked", "causal"]) -> LoadedModel:
        return models.load(name, task, device=self.device)


class Resources:
    """What one side of a run has of the resources that are declared for it.

    Nothing is loaded before it is used.

    Args:
        declared: by the option that names the model: of ``[method]``, or with its table, as ``augment.encoder``.
        side: whose these are.
        loader: of this process.
    """

    def __init__(self, declared: Mapping[str, Resource], side: Side, loader: Loader) -> None:
        self._own = {option: resource for option, resource in declared.items() if resource.needed_by(side)}
        self._side, self._loader = side, loader

    @property
    def device(self) -> str:
        """Where they are loaded to, as torch names it."""
        return self._loader.device

    def encoder(self, option: str) -> Encoder:
        """The sentence encoder that an option of the method names.

        Raises:
            RunError: the method does not declare it for this side.
        """
        return self._loader.encoder(self._declared(option, ("encoder",)).name)

    def language_model(self, option: str) -> LoadedModel:
        """The language model that an option of the method names, frozen, and its tokenizer: in bfloat16 on a GPU, in
        float32 elsewhere.

        Raises:
            RunError: the method does not declare it for this side.
            ModelError: its weights cannot be loaded.
        """
        resource = self._declared(option, ("masked", "causal"))
        assert resource.kind != "encoder"
        return self._loader.language_model(resource.name, resource.kind)

    def built(self, option: str, build: Callable[[LoadedModel], T]) -> T:
        """What ``build`` makes of a language model: made once in a process, whichever option or side asks for it first,
        since it may change the model in place.

        Raises:
            RunError, ModelError: as ``language_model``.
        """
        loaded, name = self.language_model(option), self._own[option].name
        if name not in self._loader.built:
            self._loader.built[name] = build(loaded)
        found: T = self._loader.built[name]
        return found

    def _declared(self, option: str, kinds: tuple[Kind, ...]) -> Resource:
        resource = self._own.get(option)
        if resource is None:
            known = nearest(option, self._own) if self._own else "It declares none there."
            what = f"the method does not declare '{option}' as a resource {PLACES[self._side]}"
            raise RunError(what, where="Method.resources", fix=known)
        if resource.kind not in kinds:
            raise RunError(
                f"'{option}' is declared as a {KINDS[resource.kind]}, and asked for as a "
                f"{' or a '.join(KINDS[kind] for kind in kinds)}",
                where="Method.resources",
            )
        return resource

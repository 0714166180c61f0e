"""What an experiment needs to know of any method's options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from murmura.config import Section
from murmura.data.records import Kind

Rounds = Annotated[int, Field(ge=1, le=100_000)]
"""How many rounds; with more, what each leaves behind would be too much."""


class MethodConfig(Section):
    """The options of a method; a subclass adds its own.

    Attributes:
        implementation: import path of the method's class, ``package.module:Class``. It is imported only for a run, so
            that options are read without torch.
        kinds: the kinds of record that the method works with, the usual one first.
        opening: ``data.opening``, where it is not given.
        training_defaults: options of ``[training]`` that the method has other defaults for.
        changeable: options besides ``rounds`` that a resumed run may change, in a round that is still to come.
    """

    implementation: ClassVar[str]
    kinds: ClassVar[tuple[Kind, ...]] = ("instruction",)
    opening: ClassVar[Literal["tokenizer", "always"]] = "tokenizer"
    changeable: ClassVar[tuple[str, ...]] = ()

    name: str
    rounds: Rounds = 10
    """Rounds of asking and averaging."""

    @property
    def training_defaults(self) -> Mapping[str, Any]:
        return {}

    @property
    def total_rounds(self) -> int:
        """Rounds of a run, with those in which no site is asked."""
        return self.rounds

    @property
    def cohort_size(self) -> int | None:
        """Sites asked in a round; None for all."""
        return None

    @property
    def fixed_on_resume(self) -> str:
        """Why a resumed run must have as many ``rounds`` as it was begun with; empty where it may have others."""
        return ""

    def filled_training(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The ``[training]`` table with the method's defaults; what is given stays."""
        defaults = dict(self.training_defaults)
        if "epochs" in given:  # the other way to say how long a round is
            defaults.pop("max_steps", None)
        return defaults | dict(given)

    def filled_data(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The ``[data]`` table with kind and opening, which is how an experiment is written down."""
        found = dict(given)
        if found.get("kind") is None:
            found["kind"] = self.kinds[0]
        if found["kind"] == "document" and found.get("opening") is None:
            found["opening"] = self.opening
        return found


class SampledMethodConfig(MethodConfig):
    """The options of a method that asks some of the sites in each round, those that ``Fleet.sample`` draws: sites draw
    them too, and make a secure sum with no others."""

    sites_per_round: int | None = Field(None, ge=1)
    """Sites asked each round, drawn without replacement; all if not given."""

    @property
    def cohort_size(self) -> int | None:
        return self.sites_per_round

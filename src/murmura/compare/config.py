"""What is compared: the options of a comparison, and its arms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from murmura.config import WITH_UNIT, Section, leaves

SEARCH = 10_000
"""The first seed of searches for a rate; those that a comparison is made with lie below."""
RATE = "training.lr"
"""The option that a comparison may choose for each arm."""
UNNAMED = "comparison"
"""What one without a name is called."""


def _are_rates(rates: list[float]) -> list[float]:
    # Runs of the search are kept in folders that are called by so many digits.
    if len({f"{rate:g}" for rate in rates}) < len(rates) or not all(rate > 0 for rate in rates):
        raise ValueError("give rates above 0 that differ in their first six digits")
    return rates


Rates = Annotated[list[float], AfterValidator(_are_rates)]


class Limits(Section):
    """What an arm must keep to be chosen."""

    max_epsilon: float | None = Field(None, gt=0, allow_inf_nan=True)
    """Most ε that is guaranteed, that of the search for a rate included; an arm that guarantees none does not keep
    it."""
    max_bytes: Annotated[int, Field(gt=0), WITH_UNIT] | None = None
    """Most bytes that travel in a run, up and down, of all sites: a number, or "50MB"."""
    max_leakage: float | None = None
    """Most that the strongest attack on the model may find, as its AUC: 0.5 is guessing."""

    @field_validator("max_leakage")
    @classmethod
    def _is_auc(cls, value: float | None) -> float | None:
        if value is not None and not 0.5 <= value <= 1:
            raise ValueError("must be an AUC from 0.5 (guessing) to 1")
        return value


def _flat(table: object) -> object:
    """``{"method": {"beta": [0, 1]}}``, which ``method.beta = [0, 1]`` is in TOML, as ``{"method.beta": [0, 1]}``."""
    return dict(leaves(table)) if isinstance(table, dict) else table


def _has_values(grid: dict[str, list[Any]]) -> dict[str, list[Any]]:
    for key, values in grid.items():
        if not values:
            raise ValueError(f"'{key}' has no value")
    return grid


Grid = Annotated[dict[str, list[Any]], BeforeValidator(_flat), AfterValidator(_has_values)]
"""Options by their full names, with several values each."""


class Arm(Section):
    """One thing that is compared: the experiment of the file with some options of its own."""

    name: str | None = Field(None, min_length=1)
    """How tables call it; if not given, as a run of it is called."""
    method: dict[str, Any] = Field({})
    """Options of [method] in place of those of the file; with another name, the file's are left but for the rounds."""
    model: dict[str, Any] = Field({})
    """Options of [model], such as what is trainable; the model itself is one for all arms."""
    training: dict[str, Any] = Field({})
    """Options of [training]."""
    lora: dict[str, Any] = Field({})
    """Options of [lora]."""
    aggregation: dict[str, Any] = Field({})
    """Options of [aggregation]."""
    augment: dict[str, Any] = Field({})
    """Options of [augment]."""
    data: dict[str, Any] = Field({})
    """Options of [data]; only those of how records are read may differ between arms."""
    grid: Grid = Field({})
    """Options with several values each, {"method.beta" = [0, 0.5]}: there is an arm for every combination of them."""
    rates: Rates | None = None
    """In place of the comparison's: as many, so that no arm is tuned more than another; or one that is taken as it
    is."""
    rate_of: str | None = None
    """The arm whose rate is taken, whichever that is, as a control of that arm needs it. Its ε counts that search."""

    @property
    def changes(self) -> dict[str, Any]:
        """The options that differ, by dotted key."""
        sections = ("method", "model", "training", "lora", "aggregation", "augment", "data")
        return {f"{one}.{key}": value for one in sections for key, value in getattr(self, one).items()}


class CompareConfig(Section):
    """How arms are compared: every arm is run with the same seeds, on the same records."""

    name: str = Field(UNNAMED, min_length=1)
    """Names the comparison, and its folder runs/NAME unless `folder` is given."""
    folder: str | None = None
    """Where it is kept."""
    seeds: int | list[int] = 3
    """Seeds of the runs: how many (0, 1, 2 ...), or which."""
    rates: Rates = Field([])
    """Learning rates (training.lr) that are tried for each arm, with seeds of their own; the best of them is taken. If
    not given, each arm has its own training.lr."""
    search_seeds: int = Field(1, ge=1)
    """How many seeds each rate is tried with."""
    reference: str | None = None
    """The arm that others are compared with; the first if not given."""
    limits: Limits = Limits()
    grid: Grid = Field({})
    """Options with several values each, for all arms."""
    arms: list[Arm] = Field([])
    """What is compared; if not given, the experiment as it stands, with every combination of `grid`."""

    @field_validator("seeds")
    @classmethod
    def _are_seeds(cls, seeds: int | list[int]) -> int | list[int]:
        if isinstance(seeds, int):
            if not 1 <= seeds <= SEARCH:
                raise ValueError(f"give 1 to {SEARCH} of them")
        elif not seeds or len(set(seeds)) < len(seeds) or not all(0 <= one < SEARCH for one in seeds):
            raise ValueError(f"give seeds that differ, from 0 to {SEARCH - 1}")
        return seeds

    @model_validator(mode="after")
    def _tuned_alike(self) -> CompareConfig:
        for place, arm in enumerate(self.arms):
            whose = arm.name or f"arm {place + 1}"
            if arm.rates is not None and arm.rate_of is not None:
                raise ValueError(f"{whose} has 'rates' and 'rate_of'; remove one of them")
            if arm.rates is not None and len(arm.rates) not in (1, len(self.rates)):
                others = f"and others have {len(self.rates)}: give it as many, or one that is taken as it is"
                raise ValueError(f"{whose} has {len(arm.rates)} rates, {others}")
        return self

    @property
    def chosen_seeds(self) -> Sequence[int]:
        return range(self.seeds) if isinstance(self.seeds, int) else self.seeds

    @property
    def seeds_of_search(self) -> Sequence[int]:
        return range(SEARCH, SEARCH + self.search_seeds)

"""Options that methods with site-level privacy have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from murmura.data.records import Kind
from murmura.federation.method_config import MethodConfig, Rounds


class SiteNoiseConfig(MethodConfig):
    """How much noise hides a whole site in the sums of so many rounds."""

    rounds: Rounds = 100
    """Rounds; ε is for all of them."""
    epsilon: float | None = Field(8.0, gt=0)
    """The ε that the whole run may spend; the noise is calibrated to it."""
    noise_multiplier: float | None = Field(None, ge=0)
    """z instead of epsilon: the noise's standard deviation over how far one site can move a sum; 0 for no noise, and
    then no ε is printed."""
    delta: float = Field(1e-5, gt=0, lt=1)
    """δ that belongs to every ε; below 1/number of sites it means something."""
    accountant: Literal["best", "pld", "rdp"] = "best"
    """How ε is composed over the rounds: best is exact where every site is in every round; rdp is what most papers
    print."""

    @model_validator(mode="before")
    @classmethod
    def _noise_instead_of_epsilon(cls, table: Any) -> Any:
        given = isinstance(table, Mapping) and table.get("noise_multiplier") is not None
        return {"epsilon": None, **table} if given else table

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if self.epsilon is not None and self.noise_multiplier is not None:
            raise ValueError("'epsilon' and 'noise_multiplier' say the same thing twice; remove one of them")
        if self.epsilon is None and self.noise_multiplier is None:
            raise ValueError("neither 'epsilon' nor 'noise_multiplier' is given; give one, noise_multiplier 0 for none")
        if self.noise_multiplier == 0:
            self.refuse_idle(["delta", "accountant"], "without noise")
        return self

    @property
    def private(self) -> bool:
        """Whether noise is added at all."""
        return self.noise_multiplier != 0

    @property
    def strength(self) -> str:
        """How much noise there is, in a word."""
        return f"z={self.noise_multiplier:g}" if self.epsilon is None else f"ε={self.epsilon:g}"


class SiteLevelConfig(SiteNoiseConfig):
    """Rounds, noise, clipping and the server's step with momentum."""

    kinds: ClassVar[tuple[Kind, ...]] = ("instruction", "document")
    clip_norm: float = Field(0.1, gt=0)
    """C, the L2 norm that a site clips its update to."""
    server_lr: float = Field(1.0, gt=0)
    """η of the server's step."""
    momentum: float = Field(0.9, ge=0, lt=1)
    """β of the server's momentum; 0 for none."""

    @property
    def unclipped_is_sent(self) -> bool:
        """Whether sites tell, under noise, if their update was within the norm."""
        return False

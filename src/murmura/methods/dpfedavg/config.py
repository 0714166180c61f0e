"""Options of DP-FedAvg, and those that every method with site-level privacy has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from murmura.config import Section


class SiteLevelConfig(Section):
    """What DP-FedAvg and DP-FTRL share."""

    name: str
    rounds: int = Field(100, ge=1)
    """Rounds; ε is for all of them."""
    epsilon: float | None = Field(8.0, gt=0, allow_inf_nan=False)
    """The ε that the whole run may spend; the noise is calibrated to it."""
    noise_multiplier: float | None = Field(None, ge=0, allow_inf_nan=False)
    """z instead of epsilon: the noise's standard deviation over how far one site can move a sum; 0 for no noise, and
    then no ε is printed."""
    delta: float = Field(1e-5, gt=0, lt=1)
    """δ that belongs to every ε; below 1/number of sites it means something."""
    accountant: Literal["best", "pld", "rdp"] = "best"
    """How ε is composed over the rounds: best is exact where every site is in every round; rdp is what most papers
    print."""
    clip_norm: float = Field(0.1, gt=0, allow_inf_nan=False)
    """C, the L2 norm that a site clips its update to."""
    server_lr: float = Field(1.0, gt=0, allow_inf_nan=False)
    """η of the server's step."""
    momentum: float = Field(0.9, ge=0, lt=1)
    """β of the server's momentum; 0 for none."""

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
        if not self.private:
            self.refuse_idle(["delta", "accountant"], "without noise")
        return self

    @property
    def private(self) -> bool:
        """Whether noise is added at all."""
        return self.noise_multiplier != 0

    @property
    def noise(self) -> str:
        """How much noise there is, in a word."""
        return f"z={self.noise_multiplier:g}" if self.epsilon is None else f"ε={self.epsilon:g}"

    @property
    def unclipped_is_sent(self) -> bool:
        """Whether sites tell, under noise, if their update was within the norm."""
        return False


class DPFedAvgConfig(SiteLevelConfig):
    """DP-FedAvg (McMahan et al. 2018; adaptive clipping: Andrew et al. 2021): each site clips its update, the server
    adds noise to their sum and divides it by a fixed number, so that the model hides whether a whole site took part."""

    name: Literal["dpfedavg"] = "dpfedavg"
    sampler: Literal["full", "poisson", "fixed"] = "full"
    """Who takes part in a round: full, every site; poisson, each with probability sites_per_round/sites; fixed,
    sites_per_round of them. Draws are secret, and ε gains from them. The ε of fixed is for a site exchanged for another
    one, which takes twice the noise on a sum; that of the others for a site more or less."""
    sites_per_round: int | None = Field(None, ge=1)
    """m, the (expected) sites of a round with sampler poisson or fixed."""
    adaptive: bool = False
    """Let C follow a quantile of the updates' norms; it starts at clip_norm."""
    quantile: float = Field(0.5, ge=0, le=1)
    """γ: the share of updates that adaptive clipping leaves whole."""
    clip_lr: float = Field(0.2, gt=0, allow_inf_nan=False)
    """η_C of C ← C·exp(−η_C·(share left whole − γ))."""
    count_noise: float | None = Field(None, gt=0, allow_inf_nan=False)
    """σ_b: noise on the count of updates left whole, which adaptive clipping always adds; m/20 if not given. The noise
    on the updates grows so that z holds for both together; that takes σ_b > z/2."""

    product_space: bool = False
    """DEeR (Zhu et al. 2024): clip and noise a change of one factor by its length on the product B·A, whatever the size
    of the other, which is fixed. For aggregation.rule "rolora" (DEeR's alternation) or "ffa"."""

    @model_validator(mode="after")
    def _options_that_do_nothing(self) -> DPFedAvgConfig:
        if self.sampler == "full":
            self.refuse_idle(["sites_per_round"], "with sampler 'full'")
        elif self.sites_per_round is None:
            raise ValueError(f"sampler '{self.sampler}' needs 'sites_per_round'; give it")
        if not self.adaptive:
            self.refuse_idle(["quantile", "clip_lr", "count_noise"], "without 'adaptive = true'")
        return self

    @property
    def unclipped_is_sent(self) -> bool:
        return self.adaptive

"""Options of DP-FedAvg."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from murmura.methods.site_level.config import SiteLevelConfig


class DPFedAvgConfig(SiteLevelConfig):
    """DP-FedAvg (McMahan et al. 2018; adaptive clipping: Andrew et al. 2021): each site clips its update, the server
    adds noise to their sum and divides it by a fixed number, so that the model hides whether a whole site took part."""

    implementation: ClassVar[str] = "murmura.methods.dpfedavg.method:DPFedAvg"
    name: Literal["dpfedavg"] = "dpfedavg"
    sampler: Literal["full", "poisson", "fixed"] = "full"
    """Who takes part in a round: full, every site; poisson, each with probability sites_per_round/sites; fixed,
    sites_per_round of them. Draws are secret, and ε gains from them. The ε of fixed is for a site exchanged for another
    one, which takes twice the noise on a sum; that of the others for a site blanked."""
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
    def cohort_size(self) -> int | None:
        return self.sites_per_round

    @property
    def unclipped_is_sent(self) -> bool:
        return self.adaptive

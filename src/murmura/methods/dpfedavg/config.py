"""Options of DP-FedAvg."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from murmura.config import SWITCH, Section, by_kind
from murmura.methods.site_level.config import SiteLevelConfig


class EverySite(Section):
    """All sites take part in every round."""

    kind: Literal["full"] = "full"
    """How sites are drawn."""


class SampledSites(Section):
    """A secret sample of the sites takes part in a round, and ε gains from that."""

    kind: Literal["poisson", "fixed"]
    """How sites are drawn."""
    sites_per_round: int = Field(ge=1)
    """m, the (expected) sites of a round."""


class AdaptiveClipping(Section):
    """Let C follow a quantile of the updates' norms (Andrew et al. 2021); it starts at clip_norm."""

    quantile: float = Field(0.5, ge=0, le=1)
    """γ: the share of updates that it leaves whole."""
    lr: float = Field(0.2, gt=0)
    """η_C of C ← C·exp(−η_C·(share left whole − γ))."""
    count_noise: float | None = Field(None, gt=0)
    """σ_b: noise on the count of updates left whole; m/20 if not given. The noise on the updates grows so that z holds
    for both together; that takes σ_b > z/2."""


class DPFedAvgConfig(SiteLevelConfig):
    """DP-FedAvg (McMahan et al. 2018; adaptive clipping: Andrew et al. 2021): each site clips its update, the server
    adds noise to their sum and divides it by a fixed number, so that the model hides whether a whole site took part."""

    implementation: ClassVar[str] = "murmura.methods.dpfedavg.method:DPFedAvg"
    name: Literal["dpfedavg"] = "dpfedavg"
    sampler: Annotated[EverySite | SampledSites, Field(discriminator="kind"), by_kind()] = EverySite()
    """Who takes part in a round: full, every site; poisson, each with probability sites_per_round/sites; fixed,
    sites_per_round of them. The ε of fixed is for a site exchanged for another one, which takes twice the noise on a
    sum; that of the others for a site blanked."""
    adaptive: Annotated[AdaptiveClipping | None, SWITCH] = None
    """Adaptive clipping."""
    product_space: bool = False
    """DEeR (Zhu et al. 2024): clip and noise a change of one factor by its length on the product B·A, whatever the size
    of the other, which is fixed. For aggregation.rule "rolora" (DEeR's alternation) or "ffa"."""

    @property
    def cohort_size(self) -> int | None:
        return self.sampler.sites_per_round if isinstance(self.sampler, SampledSites) else None

    @property
    def unclipped_is_sent(self) -> bool:
        return self.adaptive is not None

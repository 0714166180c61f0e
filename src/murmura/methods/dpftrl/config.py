"""Options of DP-FTRL."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from murmura.config import Section, by_kind
from murmura.methods.site_level.config import SiteLevelConfig


class Tree(Section):
    """Sums are made of noisy nodes of a tree (Kairouz et al. 2021)."""

    kind: Literal["tree"] = "tree"
    """How the noise of rounds hangs together."""
    restart_every: int | None = Field(None, ge=1)
    """Rounds that a tree spans. At a restart momentum is forgotten too, so with 1 there is none. If not given, as many
    rounds as every site can take part in at most once: sites/sites_per_round, or 1 where all are in every round."""
    honaker: bool = True
    """Estimate sums from all nodes of the tree (Honaker 2015), which lowers the noise and costs no privacy."""


class Banded(Section):
    """Each round takes back part of earlier rounds' noise (Choquette-Choo et al. 2023)."""

    kind: Literal["banded"]
    """How the noise of rounds hangs together."""
    bands: int | None = Field(None, ge=1)
    """Rounds over which noise is correlated, at most sites/sites_per_round, which it is if not given."""


class DPFTRLConfig(SiteLevelConfig):
    """DP-FTRL (Kairouz et al. 2021): as DP-FedAvg, but the sum of all updates so far is released, through a tree of
    noisy nodes or with banded noise (Choquette-Choo et al. 2023), which needs no secret sampling of sites."""

    implementation: ClassVar[str] = "murmura.methods.dpftrl.method:DPFTRL"
    name: Literal["dpftrl"] = "dpftrl"
    sites_per_round: int | None = Field(None, ge=1)
    """Sites of a round, each at most once between two restarts, and with banded noise each again after
    sites/sites_per_round rounds; all of them in every round if not given."""
    noise: Annotated[Tree | Banded, Field(discriminator="kind"), by_kind("tree")] = Tree()
    """tree: sums are made of noisy nodes of a tree; banded: each round takes back part of earlier rounds' noise, which
    leaves less in the sums of long runs, and nothing is restarted."""

    @model_validator(mode="after")
    def _bands_need_rest(self) -> Self:
        if self.noise.kind == "banded" and self.sites_per_round is None:
            why = "where a site is in every round, no two rounds may share noise"
            raise ValueError(f"noise = 'banded' needs 'sites_per_round': {why}")
        return self

    @model_validator(mode="after")
    def _options_that_do_nothing(self) -> Self:
        if isinstance(self.noise, Banded):
            self.refuse_idle([] if self.private else ["noise"], "without noise")
            return self
        if self.noise.restart_every == 1 or (self.noise.restart_every is None and self.sites_per_round is None):
            self.refuse_idle(["momentum"], "when a tree spans one round")
            self.noise.refuse_idle(["honaker"], "when a tree spans one round")
        self.noise.refuse_idle([] if self.private else ["honaker"], "without noise")
        return self

    @property
    def cohort_size(self) -> int | None:
        return self.sites_per_round

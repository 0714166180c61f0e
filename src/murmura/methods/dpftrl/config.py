"""Options of DP-FTRL."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from murmura.methods.site_level.config import SiteLevelConfig


class DPFTRLConfig(SiteLevelConfig):
    """DP-FTRL (Kairouz et al. 2021): as DP-FedAvg, but the sum of all updates so far is released, through a tree of
    noisy nodes or with banded noise (Choquette-Choo et al. 2023), which needs no secret sampling of sites."""

    implementation: ClassVar[str] = "murmura.methods.dpftrl.method:DPFTRL"
    name: Literal["dpftrl"] = "dpftrl"
    sites_per_round: int | None = Field(None, ge=1)
    """Sites of a round, each at most once between two restarts, and with banded noise each again after
    sites/sites_per_round rounds; all of them in every round if not given."""
    noise: Literal["tree", "banded"] = "tree"
    """tree: sums are made of noisy nodes of a tree; banded: each round takes back part of earlier rounds' noise, which
    leaves less in the sums of long runs, and nothing is restarted."""
    bands: int | None = Field(None, ge=1)
    """Rounds over which banded noise is correlated, at most sites/sites_per_round, which it is if not given."""
    restart_every: int | None = Field(None, ge=1)
    """Rounds that a tree spans. At a restart momentum is forgotten too. If not given, as many rounds as every site can
    take part in at most once: sites/sites_per_round, or 1 where all are in every round."""
    honaker: bool = True
    """Estimate sums from all nodes of the tree (Honaker 2015), which lowers the noise and costs no privacy."""

    @model_validator(mode="after")
    def _options_that_do_nothing(self) -> DPFTRLConfig:
        if self.noise == "banded":
            if self.sites_per_round is None:
                raise ValueError(
                    "noise = 'banded' needs 'sites_per_round': where a site is in every round, no two rounds may share "
                    "noise"
                )
            self.refuse_idle(["restart_every", "honaker"], "with noise = 'banded', which has no trees")
        else:
            self.refuse_idle(["bands"], "with noise = 'tree'")
        every_round = self.sites_per_round is None and self.restart_every is None
        if every_round or self.restart_every == 1:
            self.refuse_idle(["momentum", "honaker"], "when a tree spans one round")
        if not self.private:
            self.refuse_idle(["honaker", "noise", "bands"], "without noise")
        return self

    @property
    def cohort_size(self) -> int | None:
        return self.sites_per_round

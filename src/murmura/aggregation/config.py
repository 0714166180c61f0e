"""Options of how adapters are trained and aggregated, in any method that averages them."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field, model_validator

from murmura.config import Section

Local = Literal["plain", "fedprox", "scaffold"]
ServerStep = Literal["plain", "fedavgm", "fedadam", "fedyogi", "fedadagrad"]

LINEAR = ("mean", "ffa", "rolora", "fedsa")
"""Rules that average what travels."""
SERVER_OPTIONS: dict[str, set[str]] = {
    "server_lr": {"fedadam", "fedyogi", "fedadagrad"},
    "tau": {"fedadam", "fedyogi", "fedadagrad"},
    "beta1": {"fedavgm", "fedadam", "fedyogi"},
    "beta2": {"fedadam", "fedyogi"},
    "second_moment": {"fedadam", "fedyogi"},
    "damping": {"fedavgm"},
}
"""Options of the server's step, and which steps read them."""


class AggregationConfig(Section):
    """How sites train, and how their adapters become the next global one; for any method that averages adapters."""

    rule: Literal["mean", "ffa", "rolora", "fedsa", "fedex", "flora", "flexlora", "fair"] = "mean"
    """mean of A and mean of B (FedAvg); ffa: A frozen, B averaged; rolora: A and B in turn; fedsa: A averaged, B stays
    at the site; fedex: mean plus what it misses, as a residual; flora: stacked, into the residual; flexlora: best
    adapter for the mean product; fair: mean with LoRA-FAIR's correction of B (see docs/methods.md)."""
    ranks: tuple[int, ...] = ()
    """Ranks of the sites in order, repeated cyclically; none above lora.rank. If not given, all have lora.rank."""
    residual_rank: int | None = Field(None, ge=1)
    """fedex, flora: keep at most this rank of the residual (truncated SVD); if not given, keep all of it."""
    ridge: float = Field(0.01, gt=0)
    """fair: λ of the penalty on the correction of B."""
    local: Local = "plain"
    """How sites train: plain; fedprox (Li 2020): held near the adapter that they were sent; scaffold (Karimireddy
    2020): control variates take the sites' drift apart out of their steps, and travel along."""
    mu: float = Field(0.01, ge=0)
    """fedprox: μ of the proximal term μ/2·‖w − w_t‖²."""
    server: ServerStep = "plain"
    """The server's step towards the mean of what travels: plain takes it; fedavgm (Hsu 2019), fedadam, fedyogi and
    fedadagrad (Reddi 2021) take it for a gradient. For rules mean, ffa, rolora and fedsa, with equal ranks."""
    server_lr: float = Field(1e-3, gt=0)
    """η of fedadam, fedyogi and fedadagrad."""
    tau: float = Field(1e-3, gt=0)
    """τ of fedadam, fedyogi and fedadagrad; their second moment starts at τ²."""
    beta1: float = Field(0.9, ge=0, lt=1)
    """Momentum of fedavgm, fedadam and fedyogi."""
    beta2: float = Field(0.99, ge=0, lt=1)
    """Second-moment decay of fedadam and fedyogi."""
    second_moment: Literal["delta", "momentum"] = "delta"
    """What fedadam and fedyogi square: the mean update (Reddi et al.) or its momentum (OpenFedLLM)."""
    damping: bool = True
    """fedavgm: momentum as a damped mean (OpenFedLLM) or as Hsu et al.'s running sum."""
    secure: bool = False
    """Add up what sites send under masks, so that the server learns the sum alone (Bonawitz et al. 2017; see
    docs/privacy.md). For methods and rules whose server needs nothing else."""
    secure_threshold: float = Field(2 / 3, ge=0.5, le=1)
    """A secure sum is made if more than this share of the sites that were asked answer to its end; with fewer, nothing
    is revealed. Masks hold against a server that lies and sites that help it, which are fewer than
    2·secure_threshold − 1 of all: with 2/3 a third, with 1/2 none."""
    secure_range: float = Field(16.0, gt=0, allow_inf_nan=False)
    """Under masks, sites clip every number that is not whole to ± this before it is weighed."""
    secure_weight: int = Field(100_000, ge=1)
    """Under masks, a site weighs at most so much: with more examples it counts as if it had so many."""
    allow_cohort_change_on_retry: bool = False
    """Let a round that is done again, when a run is resumed, be summed over other sites than before. Whoever has both
    sums knows what those sites have sent that are in one of them alone."""

    @property
    def is_mean(self) -> bool:
        """Whether uploads are averaged as they are: every tensor by itself, all of equal ranks."""
        return self.rule == "mean" and not self.ranks

    @property
    def is_plain(self) -> bool:
        """Whether this is FedAvg, which every method that averages does unless told otherwise."""
        return self.is_mean and self.local == "plain" and self.server == "plain"

    @property
    def is_linear(self) -> bool:
        """Whether the next global adapter follows from the sum of what travels, so that no single upload is needed."""
        return self.rule in LINEAR and not self.ranks

    def least(self, sites: int) -> int:
        """The fewest of so many sites that were asked with which a sum is made; all of them where it is not secure, and
        nothing depends on how many answer."""
        if not self.secure:
            return sites
        return min(sites, math.floor(self.secure_threshold * sites + 1e-9) + 1)  # 2/3 of 9 is 6, whatever floats say

    @model_validator(mode="after")
    def _options_that_do_nothing(self) -> AggregationConfig:
        used = {"residual_rank": {"fedex", "flora"}, "ridge": {"fair"}}
        idle = [option for option, rules in used.items() if self.rule not in rules]
        self.refuse_idle(idle, f"with rule '{self.rule}'")
        self.refuse_idle([] if self.local == "fedprox" else ["mu"], f"with local '{self.local}'")
        idle = [option for option, steps in SERVER_OPTIONS.items() if self.server not in steps]
        self.refuse_idle(idle, f"with server '{self.server}'")
        idle = ["secure_threshold", "secure_range", "secure_weight", "allow_cohort_change_on_retry"]
        self.refuse_idle([] if self.secure else idle, "without 'secure'")
        if self.secure and not self.is_linear:
            what = f"rule '{self.rule}'" + (" with 'ranks'" if self.ranks else "")
            raise ValueError(
                f"{what} needs what each site sends, and with 'secure' the server learns the sum alone; leave it out, "
                f"or take one of the rules {', '.join(LINEAR)}, with equal ranks"
            )
        if self.rule == "fedsa" and self.ranks:
            raise ValueError("'ranks' does not go with rule 'fedsa', whose sites share A; remove it")
        if any(rank < 1 for rank in self.ranks):
            raise ValueError("'ranks' must be at least 1")
        return self

    @model_validator(mode="after")
    def _parts_that_go_together(self) -> AggregationConfig:
        what = f"rule '{self.rule}'" + (" with 'ranks'" if self.ranks else "")
        if self.server != "plain" and not self.is_linear:
            raise ValueError(
                f"server '{self.server}' steps by the mean of what travels, which is not what {what} makes of it; "
                f"leave 'server' out, or take one of the rules {', '.join(LINEAR)}, with equal ranks"
            )
        if self.local == "scaffold" and not self.is_mean:
            raise ValueError(
                "local 'scaffold' has control variates of all that is trained, and all of it has to travel in every "
                f"round, alike at all sites; that is not so with {what}: leave 'local' out, or the rule"
            )
        return self

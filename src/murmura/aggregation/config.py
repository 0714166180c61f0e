"""Options of how adapters are trained and aggregated, in any method that averages them."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field, model_validator

from murmura.config import SWITCH, Section, by_kind

LINEAR = ("mean", "ffa", "rolora", "fedsa")
"""Rules that average what travels."""
PRODUCTS = ("fedex", "flora", "flexlora", "fair")
"""Rules that start from the mean of the products B·A."""
ROBUST = ("median", "trimmed-mean", "krum", "norm-bound")
"""Rules under which a few sites that lie do little harm."""

Travel = Literal["float32", "bfloat16", "int8"]
"""How adapters travel between server and sites."""


class PlainRule(Section):
    """A rule without options."""

    kind: Literal["mean", "ffa", "rolora", "fedsa", "flexlora", "median"] = "mean"
    """Which rule."""


class ResidualRule(Section):
    """A rule that keeps a residual beside the adapter."""

    kind: Literal["fedex", "flora"]
    """Which rule."""
    residual_rank: int | None = Field(None, ge=1)
    """Keep at most this rank of the residual (truncated SVD); if not given, keep all of it."""


class FairRule(Section):
    """LoRA-FAIR."""

    kind: Literal["fair"]
    """Which rule."""
    ridge: float = Field(0.01, gt=0)
    """λ of the penalty on the correction of B."""


class TrimmedRule(Section):
    """Trimmed mean (Yin 2018)."""

    kind: Literal["trimmed-mean"]
    """Which rule."""
    liars: int = Field(1, ge=1)
    """f, how many sites of a round may send anything: of each number so many of the largest and of the smallest do not
    count. Fewer than half of those that answer."""


class KrumRule(Section):
    """Krum (Blanchard 2017)."""

    kind: Literal["krum"]
    """Which rule."""
    liars: int = Field(1, ge=1)
    """f, how many sites of a round may send anything; 2f + 3 must answer."""
    chosen: int = Field(1, ge=1)
    """m, of how many uploads the mean is taken: with more than one Multi-Krum. m + f must answer, or a liar's upload
    is among the m."""


class BoundedRule(Section):
    """A bound on what a site changes (Sun 2019)."""

    kind: Literal["norm-bound"]
    """Which rule."""
    norm: float = Field(gt=0)
    """M, most that the L2 norm of a site's change from the global adapter may be, all factors together."""


class PlainLocal(Section):
    """Local training without options."""

    kind: Literal["plain", "scaffold"] = "plain"
    """How sites train."""


class Proximal(Section):
    """FedProx (Li 2020)."""

    kind: Literal["fedprox"]
    """How sites train."""
    mu: float = Field(0.01, ge=0)
    """μ of the proximal term μ/2·‖w − w_t‖²."""


class PlainStep(Section):
    """The server takes what sites' uploads come to."""

    kind: Literal["plain"] = "plain"
    """Which step."""


class Momentum(Section):
    """FedAvgM (Hsu 2019)."""

    kind: Literal["fedavgm"]
    """Which step."""
    beta1: float = Field(0.9, ge=0, lt=1)
    """Momentum."""
    damping: bool = True
    """Momentum as a damped mean (OpenFedLLM) or as Hsu et al.'s running sum."""


class Adagrad(Section):
    """FedAdagrad (Reddi 2021)."""

    kind: Literal["fedadagrad"]
    """Which step."""
    lr: float = Field(1e-3, gt=0)
    """η of the step."""
    tau: float = Field(1e-3, gt=0)
    """τ; the second moment starts at τ²."""


class Adaptive(Section):
    """FedAdam or FedYogi (Reddi 2021)."""

    kind: Literal["fedadam", "fedyogi"]
    """Which step."""
    lr: float = Field(1e-3, gt=0)
    """η of the step."""
    tau: float = Field(1e-3, gt=0)
    """τ; the second moment starts at τ²."""
    beta1: float = Field(0.9, ge=0, lt=1)
    """Momentum."""
    beta2: float = Field(0.99, ge=0, lt=1)
    """Second-moment decay."""
    second_moment: Literal["delta", "momentum"] = "delta"
    """What is squared: the mean update (Reddi et al.) or its momentum (OpenFedLLM)."""


class SecureSumConfig(Section):
    """Add up what sites send under masks, so that the server learns the sum alone (Bonawitz et al. 2017; see
    docs/secure_sum.md). For methods and rules whose server needs nothing else."""

    threshold: float = Field(2 / 3, ge=0.5, le=1)
    """A sum is made if more than this share of the sites that were asked answer to its end; with fewer, nothing is
    revealed. Masks hold against a server that lies and sites that help it, which are fewer than 2·threshold − 1 of all:
    with 2/3 a third, with 1/2 none."""
    range: float = Field(16.0, gt=0)
    """Sites clip every number that is not whole to ± this before it is weighed."""
    weight: int = Field(100_000, ge=1)
    """A site weighs at most so much: with more examples it counts as if it had so many."""
    neighbours: Literal["all", "auto"] | Annotated[int, Field(ge=2)] = "auto"
    """With how many others each site shares masks and secrets: all; auto: from a hundred sites on, as few as are enough
    against so many that help the server (Bell et al. 2020; see docs/secure_sum.md); a number: at least so many,
    however few the sites."""
    dropouts: float = Field(0.05, ge=0, lt=1)
    """Where not all are neighbours, a sum is made if up to this share of the sites drop out after they have shared
    secrets, and with more it may fail. The more may drop out, the more neighbours there are."""
    allow_cohort_change_on_retry: bool = False
    """Let a round that is done again, when a run is resumed, be summed over other sites than before. Whoever has both
    sums knows what those sites have sent that are in one of them alone."""

    def least(self, sites: int) -> int:
        """The fewest of so many sites that were asked with which a sum is made: noise that sites add in shares is sized
        for so many."""
        return min(sites, math.floor(self.threshold * sites + 1e-9) + 1)  # 2/3 of 9 is 6, whatever floats say


Rule = Annotated[
    PlainRule | ResidualRule | FairRule | TrimmedRule | KrumRule | BoundedRule,
    Field(discriminator="kind"),
    by_kind("mean"),
]
Local = Annotated[PlainLocal | Proximal, Field(discriminator="kind"), by_kind()]
ServerStep = Annotated[PlainStep | Momentum | Adagrad | Adaptive, Field(discriminator="kind"), by_kind()]


class AggregationConfig(Section):
    """How sites train, and how their adapters become the next global one; for any method that averages adapters."""

    rule: Rule = PlainRule()
    """mean of A and mean of B (FedAvg); ffa: A frozen, B averaged; rolora: A and B in turn; fedsa: A averaged, B stays
    at the site; fedex: mean plus what it misses, as a residual; flora: stacked, into the residual; flexlora: best
    adapter for the mean product; fair: mean with LoRA-FAIR's correction of B; median, trimmed-mean, krum, norm-bound:
    against sites that lie (see docs/methods/aggregation.md)."""
    ranks: tuple[int, ...] = ()
    """Ranks of the sites in order, repeated cyclically; none above lora.rank. If not given, all have lora.rank."""
    local: Local = PlainLocal()
    """How sites train: plain; fedprox (Li 2020): held near the adapter that they were sent; scaffold (Karimireddy
    2020): control variates take the sites' drift apart out of their steps, and travel along."""
    server: ServerStep = PlainStep()
    """The server's step towards the mean of what travels: plain takes it; fedavgm (Hsu 2019), fedadam, fedyogi and
    fedadagrad (Reddi 2021) take it for a gradient. For rules mean, ffa, rolora and fedsa, with equal ranks."""
    travel: Travel = "float32"
    """How adapters travel: float32; bfloat16, half the bytes; int8, a quarter. Sites add what rounding leaves out of
    one upload to the next (error feedback). DoRA's magnitudes are never rounded."""
    secure: Annotated[SecureSumConfig | None, SWITCH] = None
    """Sums under masks."""

    @property
    def is_mean(self) -> bool:
        """Whether uploads are averaged as they are: every tensor by itself, all of equal ranks."""
        return self.rule.kind == "mean" and not self.ranks

    @property
    def is_plain(self) -> bool:
        """Whether this is FedAvg, which every method that averages does unless told otherwise."""
        parts = (self.local.kind, self.server.kind, self.travel)
        return self.is_mean and parts == ("plain", "plain", "float32")

    @property
    def is_robust(self) -> bool:
        """Whether a few sites that lie are to do little harm."""
        return self.rule.kind in ROBUST

    @property
    def is_linear(self) -> bool:
        """Whether the next global adapter follows from the sum of what travels, so that no single upload is needed."""
        return self.rule.kind in LINEAR and not self.ranks

    @property
    def residual_rank(self) -> int | None:
        """Most rank of the residual that a rule keeps; None: all of it."""
        return self.rule.residual_rank if isinstance(self.rule, ResidualRule) else None

    @model_validator(mode="after")
    def _parts_that_go_together(self) -> AggregationConfig:
        what = f"rule '{self.rule.kind}'" + (" with 'ranks'" if self.ranks else "")
        linear = f"choose one of the rules {', '.join(LINEAR)}, with equal ranks"
        if self.secure and not self.is_linear:
            raise ValueError(
                f"{what} needs what each site sends, and with 'secure' the server learns the sum alone; leave it out, "
                f"or {linear}"
            )
        if self.travel != "float32":
            if self.secure:
                raise ValueError(
                    "'travel' does not go with 'secure', which has a form of its own; remove one of the two"
                )
            if self.ranks or not (self.is_linear or self.is_robust):
                raise ValueError(f"'travel' does not go with {what}; leave it out, or {linear}")
        if self.rule.kind == "fedsa" and self.ranks:
            raise ValueError("'ranks' does not go with rule 'fedsa', whose sites share A; remove it")
        if self.is_robust and (self.ranks or self.local.kind == "scaffold"):
            which = "'ranks'" if self.ranks else "local 'scaffold'"
            why = (
                "uploads of unequal ranks are not compared"
                if self.ranks
                else "its control variates are added up as sent"
            )
            raise ValueError(f"{which} does not go with rule '{self.rule.kind}': {why}; remove one of the two")
        if any(rank < 1 for rank in self.ranks):
            raise ValueError("'ranks' must be at least 1")
        if self.server.kind != "plain" and not self.is_linear:
            raise ValueError(
                f"server '{self.server.kind}' steps by the mean of what travels, which is not what {what} makes of it; "
                f"leave 'server' out, or {linear}"
            )
        if self.local.kind == "scaffold" and not self.is_mean:
            raise ValueError(
                "local 'scaffold' has control variates of all that is trained, and all of it has to travel in every "
                f"round, alike at all sites; that is not so with {what}: leave 'local' out, or the rule"
            )
        return self

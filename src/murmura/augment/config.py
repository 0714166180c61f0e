"""Options of ``[augment]``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, model_validator

from murmura.config import WITH_UNIT, ModelSource, Section, Source

if TYPE_CHECKING:
    from murmura.resources import Resource

Name = Literal["feddca", "coverage", "direct", "random", "less", "self-instruct"]

ENCODER, SITE_ENCODER, WRITER = "augment.encoder", "augment.site_encoder", "augment.writer"
"""What sites embed their instructions with, the pool's encoder or in FedDCA* another one; what writes for them."""

_BY_CENTRES = ("feddca", "coverage", "direct")
_ONE_CENTRE = ("feddca", "coverage")
_WRITING = ("self-instruct",)
_FROM_POOL = (*_BY_CENTRES, "random", "less")
_OF: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("clusters", "smallest_cluster", "encoder", "site_encoder", "similarity", "focus"), _BY_CENTRES),
    **dict.fromkeys(("noise_multiplier", "search"), _BY_CENTRES),
    **dict.fromkeys(("alpha", "project_first"), _ONE_CENTRE),
    **dict.fromkeys(("filter_rule", "order"), ("feddca",)),
    "targets": ("coverage",),
    **dict.fromkeys(("less_warm_up", "less_epochs", "less_lr", "less_batch"), ("less",)),
    **dict.fromkeys(("less_dimension", "less_over", "less_sample"), ("less",)),
    **dict.fromkeys(("writer", "write_temperature", "write_tokens", "write_attempts", "write_rouge"), _WRITING),
    **dict.fromkeys(("pool", "bytes", "dedup", "domain"), _FROM_POOL),
}
"""Which strategies read an option; all of them, where it is not here."""
_OF_PROJECTOR = (
    "project_first",
    "projector_records",
    "projector_hidden",
    "projector_epochs",
    "projector_heldout",
    "projector_lr",
    "projector_batch",
    "projector_temperature",
    "projector_positive",
    "projector_similarity",
)


class AugmentConfig(Section):
    """Public instructions for every site to train on beside its own, chosen by the server from a pool
    (`murmura pool build`), or written there after its own. Any method that has a place for them takes this section."""

    pool: Source | None = None
    """The folder of a pool; not with 'self-instruct'."""
    strategy: Name = "feddca"
    """feddca: each site clusters its instructions and sends the centres; the server picks one of each site, such that
    together they are diverse, and sends the site what is nearest to it. coverage: it picks those that together cover
    most (facility location; `targets` says of what). direct: what is nearest to each of a site's own centres.
    less: those whose training step goes where gradients of a site's own records point (LESS); each site sends the
    projected gradient of every record. random: any records of the pool; nothing is asked of the sites.
    self-instruct: none of a pool, but records that a model writes at the site after its own; they are as private as
    those, and stay there."""
    records: int = Field(5000, ge=1)
    """Public records for each site, or records to be written at each."""
    bytes: Annotated[int, Field(ge=1), WITH_UNIT] | None = None
    """Instead of `records`: as many as travel to each site in so many bytes, a number or "50MB", the nearest first."""
    every: int | None = Field(None, ge=1)
    """Choose again after so many rounds; the new records take the place of the old ones. If not given, once, in the
    first round."""
    focus: Literal["all", "hardest"] = "all"
    """What a site clusters when records are chosen again: all that it has, or the half that its current model finds
    hardest (highest loss)."""
    dedup: Literal["none", "site", "all"] = "site"
    """site: no site gets a row of the pool twice; all: no row goes to two sites, and of those that would get it the
    first one does; none: rows that are near to several centres of a site come several times ('direct')."""
    clusters: int = Field(10, ge=1)
    """ξ, clusters of a site's instructions; fewer where a site has fewer different ones."""
    smallest_cluster: int = Field(1, ge=1)
    """A cluster of fewer records joins the one nearest to it; with a `noise_multiplier` it is left out, by its noisy
    count. The centre of a single record is that record's vector."""
    alpha: float = Field(0.7, ge=0)
    """α: rows whose `similarity` to the chosen centre is this or more are left out, since they are nearly the site's
    own records; 0 leaves none out."""
    similarity: Literal["dot", "cosine"] = "dot"
    """What α and the report go by; which rows are nearest is the same. dot: the dot product with a centre as it is (the
    paper's Algorithm 1), which is a row's mean cosine with the records of that cluster, and so seldom as high as 0.7;
    cosine: with the centre's direction (its equation 6), which is higher. With a `site_encoder` a projected centre is
    as long as the site's, so that dot means the same."""
    search: Literal["exact", "approximate"] = "exact"
    """exact: in all of the pool; approximate: by an index of it, for pools of many millions, which is made by `murmura
    pool index` and misses some rows; the run tells how many."""
    filter_rule: Literal["pseudocode", "text"] | None = None
    """How many clusters of site i of N (from 0) are left out as too similar to those chosen so far: all but N − i, as
    in the paper's Algorithm 1, or i, as in its text; the same with as many clusters as sites. If not given, the text's
    with fewer sites than clusters, where the last site would be left one cluster, else the pseudo-code's."""
    order: Literal["given", "random"] = "given"
    """In which order sites' centres are picked; the first site gives its largest cluster."""
    targets: Literal["pool", "centres"] = "pool"
    """What `coverage` is to cover. pool: all rows that would be fetched for any centre, by those that are; centres: the
    instructions of all sites, as far as centres and sizes tell of them, by the centres that are picked, which takes no
    search (docs/results/coverage.md has both)."""
    encoder: ModelSource | None = None
    """What the pool must have been embedded with; read from the pool if not given."""
    site_encoder: ModelSource | None = None
    """Another, smaller encoder at the sites (FedDCA*): the server learns to project its vectors into the pool's
    space."""
    project_first: bool = False
    """FedDCA*: project all centres and pick among the projections; else pick among the centres as they came, and
    project those that were picked."""
    projector_records: int = Field(10_000, ge=4)
    """Rows of the pool that the projector is trained on, drawn at random."""
    projector_hidden: int = Field(512, ge=1)
    """Units of its hidden layer. The authors' code has 128, three epochs with none held out, and a rate of 1e-4, which
    is too little training."""
    projector_epochs: int = Field(100, ge=1)
    """Most passes over them; with `projector_heldout` = 0, passes over them."""
    projector_heldout: float = Field(0.1, ge=0, lt=1)
    """This share of them is not trained on; training ends when its loss has not fallen for three epochs, and the
    weights with which it was least are kept. 0 holds none out."""
    projector_lr: float = Field(1e-3, gt=0, le=1e30)
    """Adam's rate."""
    projector_batch: int = Field(32, ge=2)
    """Texts in a batch, which are each other's negatives."""
    projector_temperature: float = Field(0.5, gt=0)
    """τ of the paper's equation 4."""
    projector_positive: bool = False
    """Have the text itself in equation 4's denominator too."""
    projector_similarity: Literal["dot", "cosine"] = "cosine"
    """The similarity in equation 4."""
    less_warm_up: float = Field(0.05, gt=0, le=1)
    """Share of the pool, drawn at random, that the server trains an adapter on to compare gradients by."""
    less_epochs: int = Field(4, ge=1)
    """Epochs of that training; gradients are compared at the end of each."""
    less_lr: float = Field(2e-5, gt=0, le=1e30)
    """Its highest rate."""
    less_batch: int = Field(32, ge=1)
    """Records per step of it."""
    less_dimension: int = Field(8192, ge=1)
    """To how many numbers each gradient is projected, by random signs."""
    less_over: Literal["max", "mean"] = "max"
    """A record of the pool counts for the site's record that it helps most, or for all of them on average."""
    less_sample: int | None = Field(None, ge=1)
    """So many records of the pool, drawn at random, are compared; all of them if not given, each of which takes a
    forward and a backward pass for every epoch."""
    noise_multiplier: float | None = Field(None, gt=0)
    """Gaussian noise on centres: its standard deviation on each number of the sums and counts that k-means goes by,
    where instructions are vectors of length 1. The ε that follows covers the centres, and nothing else of the run."""
    noise_iterations: int = Field(3, ge=1)
    """Iterations of k-means on noisy sums and counts; each of them is a release."""
    noise_delta: float = Field(1e-5, gt=0, lt=1)
    """δ of the centres' ε."""
    writer: ModelSource | None = None
    """The causal model that writes at the sites ('self-instruct'); the resident one with the global adapter if not
    given."""
    write_temperature: float = Field(0.7, gt=0)
    """At which it draws tokens."""
    write_tokens: int = Field(512, ge=1)
    """Most tokens of a new input and response together; a response that is longer keeps its complete sentences."""
    write_attempts: int = Field(3, ge=1)
    """Attempts at a new instruction, and at input and response, for each record to be written."""
    write_rouge: float = Field(1.0, gt=0, le=1)
    """A new record that is more like one of the site's own, or like an earlier one, than this (ROUGE-L) is dropped;
    at 1 only one that repeats it."""
    domain: str | None = None
    """The sites' domain, as the pool calls it: what is fetched is then measured by how well it covers that domain
    (`coverage`), and drawn beside it."""

    @model_validator(mode="after")
    def _options_that_do_nothing(self) -> Self:
        idle = [option for option, strategies in _OF.items() if self.strategy not in strategies]
        self.refuse_idle(idle, f"with strategy '{self.strategy}'")
        if self.pool is None and self.strategy in _FROM_POOL:
            raise ValueError(f"'pool' is missing, which strategy '{self.strategy}' chooses from")
        if self.bytes is not None:
            self.refuse_idle(["records"], "beside 'bytes'")
        if self.noise_multiplier is None:
            self.refuse_idle(["noise_iterations", "noise_delta"], "without a 'noise_multiplier'")
        elif self.focus == "hardest":
            raise ValueError(
                "with a 'noise_multiplier' a record may move its own share of the centres alone, and which half of "
                "them is hardest depends on all; remove 'focus'"
            )
        if self.every is None:
            self.refuse_idle(["focus"], "unless records are chosen again ('every')")
        if self.site_encoder is None:
            self.refuse_idle(_OF_PROJECTOR, "without a 'site_encoder'")
        if self.strategy == "coverage" and self.targets == "pool":
            self.refuse_idle(["project_first"], "with targets = 'pool', where all centres are projected")
        if self.less_sample is not None and self.bytes is None and self.less_sample < self.records:
            raise ValueError(
                f"less_sample ({self.less_sample}) is below records ({self.records}), so that no site could be given "
                "as many; raise it, or lower records"
            )
        if self.dedup == "none" and self.strategy != "direct":
            raise ValueError(
                f"dedup = 'none' does nothing with strategy '{self.strategy}', which gives no site a row twice; "
                "remove it, or take 'all'"
            )
        return self

    @property
    def by_centres(self) -> bool:
        """Whether sites are asked for centres, and so need an encoder."""
        return self.strategy in _BY_CENTRES

    @property
    def by_influence(self) -> bool:
        """Whether sites are asked for gradients."""
        return self.strategy == "less"

    def is_due(self, round: int) -> bool:
        """Whether sites are given other records in this round, counted from 1."""
        return round == 1 or (self.every is not None and (round - 1) % self.every == 0)

    def selections(self, rounds: int) -> int:
        """How often that is in so many rounds."""
        return sum(self.is_due(round) for round in range(1, rounds + 1))

    def resources(self) -> Mapping[str, Resource]:
        """Models that sites and server need for it, by the option that names each, with its table."""
        from murmura.resources import Resource

        if self.writer is not None:
            return {WRITER: Resource("causal", self.writer, "site")}
        if not self.by_centres:
            return {}
        if self.site_encoder is not None:  # the server embeds what its projector is trained on
            return {SITE_ENCODER: Resource("encoder", self.site_encoder, "both")}
        assert self.encoder is not None, "it is read from the pool before a run"
        return {ENCODER: Resource("encoder", self.encoder, "site")}

"""Options of FewFedPIT and of the baselines that share its generation."""

from __future__ import annotations

from dataclasses import fields
from pathlib import PurePath
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from murmura.config import Source
from murmura.drafting.plan import Drafting
from murmura.federation.method_config import SampledMethodConfig

Scorer = Literal["ifs", "ifd", "ppl", "random"]

_OF_GENERATION = (
    "drafts_per_kept",
    "instructions_shown",
    "examples_shown",
    "instruction_attempts",
    "example_attempts",
    "rouge",
    "scorer",
    "judge",
    "alpaca_filters",
    "instruction_tokens",
    "example_tokens",
    "drafts_shown",
)


class SyntheticConfig(SampledMethodConfig):
    """Each site lets the model write examples modelled on its own few, and trains on them too."""

    keep: int = Field(16, ge=1)
    """M, synthetic records a site trains on in a round."""
    drafts_per_kept: int = Field(2, ge=1)
    """Records drafted for each one kept; the judge chooses among them."""
    instructions_shown: int = Field(8, ge=1)
    """Own instructions shown to the model when it writes a new one; fewer at a site that has fewer."""
    examples_shown: int = Field(4, ge=1)
    """Own records shown to the model when it writes input and response; fewer at a site that has fewer."""
    instruction_attempts: int = Field(6, ge=1)
    """Attempts at an instruction per draft wanted, on average; after that a site makes do with what it has."""
    example_attempts: int = Field(3, ge=1)
    """Attempts at input and response before an instruction is given up; another one takes its place until
    this many attempts per draft wanted have been made."""
    rouge: float = Field(0.7, gt=0, le=1)
    """A draft closer than this (ROUGE-L) to one of the site's own records, or to another draft, is dropped; so is one
    whose response is that close to its own question."""
    scorer: Scorer = "ifs"
    """What ranks drafts: ifs, lowest L(y|x)/L(y) first; ifd, highest first, and those above 1 last (Li et al. 2024);
    ppl, lowest perplexity of the response first; random. Each keeps as many."""
    judge: Literal["private", "global"] = "private"
    """Whose losses the scorer uses: the site's private branch of this round, or the adapter that wrote the drafts."""
    alpaca_filters: bool = False
    """Also drop instructions about images, files, maps and the like, and those that begin with 'Write a program', as
    Self-Instruct does; for data like Alpaca's."""
    instruction_tokens: int = Field(64, ge=1)
    """Most tokens of a new instruction; a longer one keeps its complete sentences, and is dropped if it has none."""
    example_tokens: int = Field(192, ge=1)
    """Most tokens of a new input and response together; a response that is longer keeps its complete sentences."""
    drafts_shown: int = Field(0, ge=0)
    """How many drafts that were kept, and as many dropped ones with the reason, a site keeps of the last round for its
    owner, in its own folder. They are as private as the records and leave no site; of sites that are simulated
    `murmura report --drafts` shows them."""
    substitute: Source | None = None
    """Public records (a file or a Hugging Face id) instead of generated ones: each round `keep` of them, drawn anew.
    The paper's +OOD, +SIMD and +IDEAL are such files. They must not overlap the held-out records."""
    substitute_label: str | None = None
    """What reports call the substitute, for instance OOD; the file's name if not given."""
    accumulate: bool = False
    """Train on the synthetic records of all rounds so far; a site keeps them to itself."""

    @property
    def drafts(self) -> int:
        """Records drafted by a site in a round."""
        return self.keep * self.drafts_per_kept

    @property
    def generates(self) -> bool:
        """Whether anything is written at all."""
        return self.substitute is None and self.branches

    @property
    def branches(self) -> bool:
        """Whether synthetic records have any part in what is trained."""
        return True

    @property
    def judged_privately(self) -> bool:
        """Whether drafts are ranked by an adapter trained on the site's own records."""
        return self.generates and self.judge == "private" and self.scorer != "random"

    @property
    def needs_private_branch(self) -> bool:
        """Whether an adapter is trained on the private records alone."""
        return self.judged_privately

    @property
    def drafting(self) -> Drafting:
        """How drafts are written: greedily."""
        return Drafting(**{one.name: getattr(self, one.name) for one in fields(Drafting) if one.name != "sampling"})

    @property
    def most_tokens_written(self) -> int:
        """Most tokens that a site may have written for it in a round."""
        return self.drafting.most_tokens if self.generates else 0

    @property
    def substitute_name(self) -> str:
        """How reports call the substitute."""
        return self.substitute_label or PurePath(self.substitute or "").stem

    @model_validator(mode="after")
    def _options_that_do_nothing(self) -> Self:
        if self.substitute is not None:
            self.refuse_idle(_OF_GENERATION, "with a substitute")
        else:
            self.refuse_idle(["substitute_label"], "without a substitute")
        if self.scorer == "random":
            self.refuse_idle(["judge"], "with scorer 'random'")
        return self


class FewFedPITConfig(SyntheticConfig):
    """FewFedPIT (Zhang et al. 2024): each site lets the model write examples modelled on its own few, trains on both
    separately, and uploads a mix of the two."""

    implementation: ClassVar[str] = "murmura.methods.fewfedpit.method:FewFedPIT"
    name: Literal["fewfedpit"] = "fewfedpit"
    beta: float = Field(0.5, ge=0, le=1)
    """β, the share of the private branch in what a site uploads. 1 is FedAvg, and nothing is generated; 0 uploads the
    synthetic branch alone. No value of it is differential privacy."""
    untouched: bool = False
    """Nothing is written, and the unchanged global adapter stands in for the synthetic branch: what mixing does by
    itself. A control for what synthetic records add."""

    @model_validator(mode="after")
    def _control(self) -> Self:
        if self.untouched:
            if self.beta in (0, 1):
                raise ValueError("'untouched' needs a beta between 0 and 1: there is nothing to mix otherwise")
            self.refuse_idle([*_OF_GENERATION, "keep", "accumulate", "substitute"], "with untouched = true")
        if self.beta == 1:
            self.refuse_idle(["substitute"], "with beta = 1")
        return self

    @property
    def branches(self) -> bool:
        return self.beta < 1 and not self.untouched

    @property
    def other_branch(self) -> str:
        """What the private branch is mixed with, in the words of the table of what leaves a site."""
        return "the unchanged global adapter" if self.untouched else "the synthetic branch"

    @property
    def needs_private_branch(self) -> bool:
        return self.judged_privately or self.beta > 0


class FedMITConfig(SyntheticConfig):
    """FedMIT (Zhang et al. 2024): FewFedPIT with one adapter, trained on private and synthetic records together."""

    implementation: ClassVar[str] = "murmura.methods.fewfedpit.method:FedMIT"
    name: Literal["fedmit"] = "fedmit"


class LocITConfig(SyntheticConfig):
    """LocIT+SG (Zhang et al. 2024): FedMIT without any exchange; each site's own adapter also writes."""

    implementation: ClassVar[str] = "murmura.methods.fewfedpit.method:LocIT"
    name: Literal["locit-sg"] = "locit-sg"

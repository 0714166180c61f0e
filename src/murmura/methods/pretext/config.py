"""Options of PrE-Text and its baselines on texts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from murmura.config import ModelSource, Section, Source, address
from murmura.data.records import Kind
from murmura.federation.method_config import Rounds
from murmura.methods.site_level.config import SiteNoiseConfig
from murmura.training.config import LocalTraining

Seeds = Literal["voted", "public", "private", "paraphrased"]
Size = Annotated[int, Field(ge=1)]

_CHANGE: Mapping[str, float] = {"mask-fill": 0.3, "continue": 0.5}
_VARIATION_MODELS: Mapping[str, str] = {"mask-fill": "FacebookAI/roberta-large"}
_OF_VARIATIONS = (
    "lookahead",
    "variation",
    "variation_model",
    "change",
    "steps",
    "variation_temperature",
    "variation_top_p",
    "selection",
    "survivors",
    "repeats",
    "threshold",
)
_OF_PREFERENCES = ("prompts", "candidates_per_prompt", "rejected_rank", "tuning")


class Tuning(Section):
    """With evolve "preferences", how the generator is tuned on each round's pairs, by DPO (Rafailov et al. 2023)."""

    rank: int = Field(16, ge=1)
    """r of the adapter that is tuned; nothing else of the generator changes."""
    alpha: float = Field(16.0, gt=0)
    """Numerator of its scale α/r."""
    targets: tuple[str, ...] = Field(("all-linear",), min_length=1)
    """Modules of the generator that carry it, as lora.targets has it."""
    beta: float = Field(0.01, gt=0)
    """β of DPO: the larger it is, the nearer the generator stays to the one that was loaded."""
    lr: float = Field(8e-7, gt=0, le=1e30)
    """Learning rate."""
    batch_size: int = Field(24, ge=1)
    """Pairs per optimiser step."""
    epochs: int = Field(1, ge=1)
    """Passes over a round's pairs."""


class PretextConfig(SiteNoiseConfig):
    """PrE-Text (Hou et al. 2024): the server keeps a population of public texts; in each round sites vote for those
    nearest to their own, the server adds noise to the sum, keeps what got votes, and varies it. In a last round the
    survivors are expanded into many more texts, and a model is trained on these. Its baselines on texts differ in where
    the seeds come from."""

    kinds: ClassVar[tuple[Kind, ...]] = ("document",)
    opening: ClassVar[Literal["tokenizer", "always"]] = "always"  # as in the authors' script
    changeable: ClassVar[tuple[str, ...]] = ("curve", "endpoint", "samples")  # what can be added, ``Answers`` says
    implementation: ClassVar[str] = "murmura.methods.pretext.method:Pretext"
    name: Literal["pretext"] = "pretext"
    seeds: Seeds = "voted"
    """Where the texts come from that are expanded: voted, the survivors of all rounds (PrE-Text); public, drawn from
    the public texts (Expand-only); private, the sites' own, which leave them in clear (Expand-private, without any
    guarantee); paraphrased, paraphrases that sites make under local differential privacy (DP-Prompt). Only voted reads
    the options about voting."""
    rounds: Rounds = 11
    """T, the rounds of voting; ε is for all of them. One more follows, in which the model is trained."""
    epsilon: float | None = Field(7.58, gt=0)
    """The ε that the votes of the whole run may spend; the noise is calibrated to it. With seeds "paraphrased", the ε
    of all paraphrases of a site."""
    noise_multiplier: float | None = Field(None, ge=0)
    """z instead of epsilon: the noise's standard deviation σ over how far one site can move the votes; 0 for no noise,
    and then nothing is guaranteed."""
    delta: float = Field(3e-6, gt=0, lt=1)
    """δ that belongs to every ε; below 1/number of sites it means something."""
    noise: Literal["gaussian", "skellam", "discrete-gaussian"] = "gaussian"
    """What is added to the sum of votes: gaussian; or whole numbers, which no attack on floats reads anything from:
    skellam, discrete-gaussian. These need whole votes (votes "nearest")."""
    public: Source | None = None
    """The public texts that the population is drawn from: a JSONL, CSV, Excel or Parquet file at the server, or a
    Hugging Face id. Only seeds "private" do without."""
    public_fields: dict[str, str] = Field({})
    """Column of the text in it, where it is not called text: {text = "content"}."""
    public_split: str = "train"
    """Split of a Hugging Face data set."""
    public_words: int = Field(20, ge=0)
    """Only public texts with more words than this are drawn; in scripts without spaces each letter counts as one."""
    population: int = Field(2048, ge=2)
    """Candidates in each round. With seeds "public", and of the public texts that prompts show with evolve
    "preferences": how many are drawn at most, each once."""
    text_tokens: int = Field(64, ge=8)
    """Most tokens of a first candidate, by the tokenizer of the model that is trained, and of a variation, or of a text
    that is voted on, by that of the model that writes it; what is longer is cut."""
    evolve: Literal["variations", "preferences"] = "variations"
    """What sites' votes are for. variations: the candidates that got most are varied, and are the next ones (PrE-Text).
    preferences: for each of many prompts the generator has written some candidates, and the votes say which of them are
    preferred; the generator is tuned on that, and writes the next ones (POPri, Hou et al. 2025)."""
    prompts: int = Field(1800, ge=1)
    """With evolve "preferences": prompts of a round, each of which shows three public texts; at most one pair each."""
    candidates_per_prompt: int = Field(10, ge=2)
    """J: texts that the generator writes for each prompt."""
    rejected_rank: int = Field(5, ge=2)
    """ℓ: which of a prompt's texts the best is preferred to, by their noisy votes: 2 is the second best. A prompt with
    fewer different texts makes no pair."""
    tuning: Tuning = Field(Tuning())
    """How the generator is tuned."""
    torn: Literal["mended", "kept"] = "mended"
    """Of a public text that is cut, and of a variation whose model did not come to an end: mended, only the whole
    sentences are kept, and where there is none it is no candidate; kept, it is one with half a sentence at its end."""
    lookahead: int = Field(4, ge=0)
    """L: a candidate stands where the mean of so many variations of it does; 0: where it does itself."""
    variation: Literal["mask-fill", "continue", "paraphrase"] = "mask-fill"
    """How a text is varied: mask-fill, a masked model writes some of its tokens anew; continue, a causal model goes on
    from it after its end or its beginning was cut off; paraphrase, an instruction model says it in other words."""
    variation_model: ModelSource | None = None
    """The model that varies texts; with mask-fill FacebookAI/roberta-large if not given."""
    change: float | None = Field(None, gt=0, le=1)
    """The share of a text that a variation changes: of its tokens that are masked in each step, 0.3 if not given;
    with continue, of its tokens that are cut off at the end at most, or of its sentences at the beginning, 0.5 if not
    given."""
    steps: int = Field(2, ge=1)
    """How often mask-fill masks and fills in a text for one variation of it (the paper's W)."""
    variation_temperature: float = Field(1.0, gt=0)
    """At which variations are drawn."""
    variation_top_p: float = Field(1.0, gt=0, le=1)
    """From the fewest likeliest tokens that together have this probability; 1: from all."""
    encoder: ModelSource = "minilm"
    """The sentence encoder that places texts, at the sites and at the server."""
    votes: Literal["nearest", "normalised", "cosine"] = "nearest"
    """What a site sends: nearest, a vote of each text for the candidate nearest to it (PrE-Text); normalised, these
    votes divided by their L2 norm, so that a site with many texts moves the sum no further (DPSDA); cosine, the
    standardised cosines of its texts with each candidate, to L2 norm 1 (POPri)."""
    texts_per_site: int = Field(8, ge=1)
    """S: at most so many texts of a site vote, or are paraphrased, drawn at random."""
    selection: Literal["sample", "rank"] = "sample"
    """Who survives: sample draws candidates in proportion to their votes, with replacement (PrE-Text); rank takes those
    with the most (Aug-PE)."""
    survivors: int | None = Field(None, ge=1)
    """With rank, how many survive; an eighth of the population if not given."""
    repeats: Literal["weigh", "once"] = "weigh"
    """With sample, of a candidate that was drawn several times in a round: weigh, it is as many seeds (the paper);
    once, it is one (its authors' script)."""
    threshold: float = Field(1.0, ge=0)
    """H, in units of the noise's σ: it is taken off every candidate's votes, down to 0."""
    distance: bool | None = None
    """Have sites tell how far their texts are from the candidates, without noise, to draw it round by round. Left out,
    it is true unless the run promises an ε, which would not cover it."""
    paraphraser: ModelSource = "smollm2-135m"
    """With seeds "paraphrased": the causal model that paraphrases at the sites. At the server the same one reads public
    texts, to bound logits by."""
    paraphrase_tokens: int = Field(64, ge=1)
    """Tokens of each paraphrase that ε pays for, whether it is that long or not."""
    samples: int = Field(50_000, ge=0)
    """Expanded texts to write; 0: the model is trained on the seeds themselves, whatever the options below say."""
    generator: ModelSource = "smollm2-135m"
    """The causal model that writes them; with an endpoint, what that calls it."""
    endpoint: Annotated[str, address("endpoint_key")] | None = None
    """Address of an OpenAI-compatible server that writes them, such as http://localhost:8000/v1; if not given, the
    generator is loaded here. It is sent the seeds."""
    endpoint_chat: bool = False
    """Ask the endpoint as a conversation, for models that only converse."""
    endpoint_requests: int = Field(16, ge=1)
    """Requests on their way to the endpoint at the same time."""
    endpoint_key: str | None = None
    """Name of the environment variable that holds the endpoint's key, if it wants one."""
    sample_tokens: int = Field(85, ge=4)
    """Most tokens of what it writes for one of them."""
    temperature: float = Field(1.0, gt=0)
    """At which their tokens are drawn."""
    top_p: float = Field(1.0, gt=0, le=1)
    """From the fewest likeliest tokens that together have this probability; 1: from all."""
    unfinished: Literal["open", "sentences", "ended"] = "open"
    """Of an expanded text that is cut off, mostly by sample_tokens: open, it is trained on without an end token;
    sentences, only its whole sentences are kept, and without one it is written anew; ended, it is trained on as if it
    ended there (the authors' script)."""
    curve: tuple[Size, ...] = ()
    """Numbers of expanded texts with which the model is also trained, from the start each time, to draw how good it is
    by that; with fewer texts batches are smaller in proportion."""

    @model_validator(mode="after")
    def _options_that_do_nothing(self) -> PretextConfig:
        if self.seeds != "voted":
            return self  # the baseline of any experiment is that experiment with this one option changed
        if self.tunes:
            self.refuse_idle(_OF_VARIATIONS, "with evolve 'preferences'")
        else:
            self.refuse_idle(_OF_PREFERENCES, "with evolve 'variations'")
        if self.variation != "mask-fill":
            self.refuse_idle(["steps"], f"with variation '{self.variation}'")
        if self.variation == "paraphrase":
            self.refuse_idle(["change"], "with variation 'paraphrase'")
        if self.noise_multiplier == 0:
            self.refuse_idle(["noise"], "without noise")
        if self.selection != "rank":
            self.refuse_idle(["survivors"], f"with selection '{self.selection}'")
        else:
            self.refuse_idle(["repeats"], "with selection 'rank', where all survive alike")
        return self

    @model_validator(mode="after")
    def _options_of_endpoints(self) -> PretextConfig:
        if self.endpoint is None:
            self.refuse_idle(["endpoint_chat", "endpoint_requests", "endpoint_key"], "without 'endpoint'")
        return self

    @model_validator(mode="after")
    def _sense(self) -> PretextConfig:
        if self.seeds != "private" and self.public is None:
            raise ValueError("'public' is missing: name a file of public texts, from which the population is drawn")
        if self.seeds == "paraphrased" and self.epsilon is None:
            what = "paraphrases take an 'epsilon', from which their temperature follows, not noise_multiplier"
            raise ValueError(what)
        if self.tunes:
            self._sense_of_preferences()
        elif self.seeds == "voted" and self.variation != "mask-fill" and self.variation_model is None:
            raise ValueError(f"variation '{self.variation}' needs 'variation_model'; name a causal model")
        if self.noise != "gaussian" and self.votes != "nearest":
            raise ValueError(f"noise '{self.noise}' is for whole votes, and votes '{self.votes}' are none")
        if self.survivors is not None and self.survivors > self.population:
            raise ValueError(f"'survivors' is {self.survivors}, and there are {self.population} candidates")
        if self.samples and max(self.curve, default=0) > self.samples:
            raise ValueError(f"'curve' goes up to {max(self.curve)}, 'samples' is {self.samples}")
        return self

    def _sense_of_preferences(self) -> None:
        if self.votes != "cosine":
            raise ValueError("evolve 'preferences' goes by scores of every candidate; set votes = 'cosine'")
        if self.endpoint is not None:
            raise ValueError("evolve 'preferences' tunes the generator, which has to be loaded here; remove 'endpoint'")
        if not self.samples:
            raise ValueError("evolve 'preferences' leaves a tuned generator and no seeds; set 'samples' to write texts")
        if self.rejected_rank > self.candidates_per_prompt:
            what = f"'rejected_rank' is {self.rejected_rank}, and a prompt has {self.candidates_per_prompt} candidates"
            raise ValueError(what)

    @property
    def tunes(self) -> bool:
        """Whether the votes tune the generator (POPri)."""
        return self.seeds == "voted" and self.evolve == "preferences"

    @property
    def candidates(self) -> int:
        """How many are voted on in a round; with evolve "preferences" at most."""
        return self.prompts * self.candidates_per_prompt if self.tunes else self.population

    @property
    def private(self) -> bool:
        """Whether noise is added at all."""
        return self.seeds == "voted" and super().private

    @property
    def asking(self) -> int:
        """Rounds in which sites are asked."""
        return {"voted": self.rounds, "public": 0, "private": 1, "paraphrased": 1}[self.seeds]

    @property
    def total_rounds(self) -> int:
        """Rounds of a run: one more, in which the model is trained."""
        return self.asking + 1

    @property
    def training_defaults(self) -> Mapping[str, Any]:
        """What of ``[training]`` suits the method, where it is not given: the paper's."""
        return {"lr": 2e-4, "schedule": "constant"}

    @property
    def fixed_on_resume(self) -> str:
        return "the model is trained after the last round of voting" if self.seeds == "voted" else ""

    @property
    def limit(self) -> int:
        """How far one site can move the sum of votes, L2."""
        return self.texts_per_site if self.votes == "nearest" else 1

    @property
    def noise_words(self) -> str:
        """The noise, for people."""
        return {"gaussian": "Gaussian", "skellam": "Skellam", "discrete-gaussian": "discrete Gaussian"}[self.noise]

    @property
    def kept(self) -> int:
        """How many survive with selection 'rank'."""
        return self.survivors or max(self.population // 8, 1)

    @property
    def weighs(self) -> bool:
        """Whether a candidate that was drawn several times is as many seeds."""
        return self.selection == "sample" and self.repeats == "weigh"

    @property
    def varying(self) -> str:
        """The model that varies texts."""
        return self.variation_model or _VARIATION_MODELS[self.variation]

    @property
    def changed(self) -> float:
        """The share of a text that a variation changes."""
        return self.change or _CHANGE[self.variation]

    @property
    def tells_distance(self) -> bool:
        """Whether sites tell how far their texts are from the candidates."""
        if self.seeds != "voted":
            return False
        return not self.private if self.distance is None else self.distance


def in_proportion(training: LocalTraining, count: int, of: int) -> LocalTraining:
    """Training on so many of the texts: as many steps as on all, in smaller batches (Hou et al. 2024, section 4.3).

    Where batches of whole texts do not come out even, or would have less than one, texts are read more often.
    """
    batch = max(1, round(training.batch_size * count / of))
    passes, steps = math.ceil(count / batch), math.ceil(of / training.batch_size)
    exactly = {} if training.max_steps or passes == steps else {"max_steps": training.epochs * steps}
    return training.model_copy(update={"batch_size": batch, **exactly})

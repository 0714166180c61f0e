"""What is measured after each round."""

from __future__ import annotations

from pydantic import Field, model_validator

from murmura.config import Section, Source
from murmura.measure.benchmarks.config import BenchmarksConfig


class ChoicesConfig(Section):
    """Questions with options: how often does the model find the right option likelier than the others?"""

    file: Source
    """A JSONL, CSV, Excel or Parquet file, or a Hugging Face id. A record has instruction, input (may be missing),
    options and answer: the right option, or its place counted from 0."""
    split: str = "test"
    """Split of a Hugging Face data set."""
    records: int | None = Field(None, ge=1)
    """Ask at most this many of them, drawn at random."""
    fields: dict[str, str] = Field({})
    """Column of each field, where the names differ: {input = "text", answer = "label"}."""
    instruction: str | None = Field(None, min_length=1)
    """What is asked, where it is the same in all records and has no column."""
    options: list[str] | None = Field(None, min_length=2)
    """The options, where they are the same in all records: ["negative", "neutral", "positive"]."""
    option_columns: list[str] | None = Field(None, min_length=2)
    """Columns of the options, where each has one of its own: ["sol1", "sol2"]."""

    @model_validator(mode="after")
    def _options_from_one_place(self) -> ChoicesConfig:
        if self.options is not None and self.option_columns is not None:
            raise ValueError("give 'options' or 'option_columns', not both")
        if self.options is not None and (
            len(set(self.options)) < len(self.options) or not all(map(str.strip, self.options))
        ):
            raise ValueError("'options' must all be different, and none empty")
        return self


class EvaluationConfig(Section):
    """Measurements after every round; all of them are made on the server or released by sites as declared metrics."""

    every: int = Field(1, ge=1)
    """Measure once in this many rounds, and always before the first and after the last."""
    sample: int = Field(16, ge=0)
    """Held-out questions that the model answers for ROUGE-L, each at most as long as its reference, and as many
    members and non-members for memorisation; 0 for none, since to write takes longer than to read."""
    attacks: bool | None = None
    """Attack the model: can the sites' records be told from others by how likely it finds them (membership inference)?
    Sites count what they find; no score leaves them. Left out, it is true unless the run promises an ε, which would not
    cover these counts of private records."""
    attack_records: int = Field(200, ge=1)
    """At most so many of the sites' records, all sites together, and as many non-members are scored in an attack."""
    uploads: int = Field(2, ge=0)
    """Number of single uploads attacked in each measured round, since they are more exposed than their mean; 0 for
    none."""
    memorisation: bool = False
    """After the last round also let the model complete members and non-members, `sample` of each, and compare how much
    of the wording it gets right (ROUGE-L): slow, and the weaker attack, but what it shows can be read."""
    choices: ChoicesConfig | None = None
    """Questions with options, asked whenever a round is measured."""
    benchmarks: BenchmarksConfig | None = None
    """Questions that the model answers in its own words, judged as published benchmarks do."""

    @model_validator(mode="after")
    def _memorisation_of_some(self) -> EvaluationConfig:
        if not self.sample:
            self.refuse_idle(["memorisation"], "with sample = 0")
        return self

    def settled(self, *, promises: bool, secret_cohorts: bool = False) -> EvaluationConfig:
        """The same with what is left out decided.

        Args:
            promises: the run promises an ε.
            secret_cohorts: whom a round asks is secret, and so single uploads are not attacked.
        """
        attacks = not promises if self.attacks is None else self.attacks
        return self.model_copy(update={"attacks": attacks} | ({"uploads": 0} if secret_cohorts else {}))


class AuditConfig(Section):
    """What is done for an audit, in simulations alone. Canaries are random secrets written into the sites' records, to
    see how far a model gives them away, and which ε that rules out; a fair coin decides which of two secrets is
    written. They change what is trained on: a model that was trained with them is not for release."""

    canaries: int = Field(0, ge=0, le=10_000)
    """How many records with a secret, all sites together; 0 for none."""
    candidates: int = Field(64, ge=2, le=1024)
    """How many secrets each could have had: exposure is by rank among them, and so log2 of this at most, in bits."""

    keep: bool = False
    """Keep what a curious server would, the global model and all uploads of every round, in private/@run/rounds, for
    `murmura audit`. Each takes the bytes of an adapter."""

    @model_validator(mode="after")
    def _candidates_of_canaries(self) -> AuditConfig:
        if not self.canaries:
            self.refuse_idle(["candidates"], "without canaries")
        return self

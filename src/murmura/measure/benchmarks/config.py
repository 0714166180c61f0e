"""Options of benchmarks: one table each, beside those that they have in common."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from murmura.config import NamedSource, Section, Source

Sentiment = Literal["negative", "neutral", "positive"]


class BenchmarkConfig(Section):
    """A file of questions that the model answers in its own words."""

    file: Source
    """A JSONL, CSV, Excel or Parquet file, or a Hugging Face id."""
    split: str = "test"
    """Split of a Hugging Face data set."""
    records: int | None = Field(None, ge=1)
    """Ask at most this many of them, drawn at random."""
    fields: dict[str, str] = Field({})
    """Column of each field, where the names differ: {text = "sentence"}."""
    tokens: int = Field(256, ge=1)
    """Most tokens of an answer."""
    form: Literal["template", "plain"] = "template"
    """template: questions stand in the run's template, as the records do that are trained on; plain: as the benchmark
    was published, with no template."""


class GSM8KConfig(BenchmarkConfig):
    """Word problems whose answer is a number."""


class HumanEvalConfig(BenchmarkConfig):
    """Functions to be written in Python, each with its test, which are run."""

    tokens: int = Field(512, ge=1)
    """Most tokens of an answer."""
    seconds: int = Field(5, ge=1)
    """Most seconds of a processor that a program and its test may take; three times as many, and ten, by the clock."""
    memory: int = Field(1024, ge=64)
    """Most memory of a program, in MiB."""
    uncut: bool = False
    """Run programs even where the system does not keep them from the network, other processes and the files of whoever
    runs this."""


class SentimentConfig(BenchmarkConfig):
    """Texts about companies and markets, each negative, neutral or positive."""

    tokens: int = Field(16, ge=1)
    """Most tokens of an answer."""
    form: Literal["template", "plain"] = "plain"
    """plain: as the benchmark was published, with no template; template: questions stand in the run's template, as the
    records do that are trained on."""
    labels: list[Sentiment] | None = Field(None, min_length=2)
    """What the labels 0, 1, 2 stand for, where the file has numbers: ["negative", "positive", "neutral"]."""
    unparsed: Literal["wrong", "neutral"] = "wrong"
    """What an answer counts as that names none of the three: wrong, or, as in FedDCA's evaluation, neutral."""


class BenchmarksConfig(Section):
    """Benchmarks: tasks of lm-evaluation-harness, and some whose answers the model writes, each with its own table."""

    tasks: list[NamedSource] | None = Field(None, min_length=1)
    """Tasks, groups or tags of lm-evaluation-harness, such as ["hellaswag", "mmlu"], or YAML files of your own; needs
    the extra 'eval'."""
    limit: int | None = Field(None, ge=1)
    """Ask at most so many questions of each of these tasks, the first ones."""
    few_shot: int | None = Field(None, ge=0)
    """Answered questions before each question of these tasks. Left out, as many as each task has of its own; a task
    that asks for none keeps to that."""
    form: Literal["plain", "template"] = "plain"
    """plain: these tasks are asked as the harness asks them; template: in the run's template."""
    only_last: bool = False
    """Only after the last round, and not whenever a round is measured: much is written for them."""
    gsm8k: GSM8KConfig | None = None
    """Word problems (Cobbe et al. 2021): instruction, input (may be missing), and output, which ends in '#### 42'."""
    humaneval: HumanEvalConfig | None = None
    """Functions in Python (Chen et al. 2021): prompt, test and entry_point. Programs that the model wrote are run."""
    fpb: SentimentConfig | None = None
    """The Financial PhraseBank (Malo et al. 2014), or news like it: text and label."""
    fiqa: SentimentConfig | None = None
    """FiQA 2018 (Maia et al. 2018): text and label."""
    tfns: SentimentConfig | None = None
    """Twitter Financial News Sentiment, or tweets like it: text and label."""

    @model_validator(mode="after")
    def _some(self) -> BenchmarksConfig:
        if not self.named and not self.tasks:
            options = ("only_last", "tasks", "limit", "few_shot", "form")
            names = [name for name in type(self).model_fields if name not in options]
            raise ValueError(f"names no benchmark; give 'tasks', or one a table: {', '.join(names)}")
        if not self.tasks:
            self.refuse_idle(["limit", "few_shot", "form"], "without tasks")
        if self.tasks and len(set(self.tasks)) < len(self.tasks):
            raise ValueError("'tasks' names one twice")
        return self

    @property
    def named(self) -> dict[str, BenchmarkConfig]:
        """Those that are to be measured, by name."""
        found = ((name, getattr(self, name)) for name in type(self).model_fields)
        return {name: value for name, value in found if isinstance(value, BenchmarkConfig)}

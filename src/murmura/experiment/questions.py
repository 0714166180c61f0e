"""The questions that a run asks its models: with options, and of benchmarks, which they answer in their own words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from murmura.data.benchmarks import load_questions
from murmura.data.choices import Common, load_choices
from murmura.data.loading import Loaded
from murmura.data.records import Choice
from murmura.data.tokenising import plain_ids
from murmura.errors import ConfigError, DataError
from murmura.experiment.config import Experiment
from murmura.experiment.left_out import Unused, tell
from murmura.federation.method import Method
from murmura.measure.benchmarks import BENCHMARKS
from murmura.measure.benchmarks.benchmark import Benchmark
from murmura.measure.benchmarks.posed import Posed, prompt
from murmura.reading import Reading
from murmura.streams import Stream


class Model(Protocol):
    """What must be known of a model to ask it."""

    @property
    def tokenizer(self) -> Any: ...

    @property
    def config(self) -> Any: ...


@dataclass(frozen=True)
class Asked:
    """The questions that are asked, and those that are not, with the reason."""

    choices: list[Choice] = field(default_factory=list)
    benchmarks: list[Posed] = field(default_factory=list)
    unused: list[Unused] = field(default_factory=list)


def ask(experiment: Experiment, method: Method, reading: Reading, model: Model, stream: Stream) -> Asked:
    """Read ``evaluation.choices`` and ``evaluation.benchmarks``, and leave out questions that do not fit.

    Args:
        reading: how records meet the model.
        stream: which of more questions than are wanted are asked.

    Raises:
        DataError: a question is bad (and ``data.skip_bad`` off), or none is left.
        ConfigError: a benchmark cannot be measured in this run, or on this machine.
    """
    asked, wanted = Asked(), experiment.evaluation.benchmarks
    for name, options in wanted.named.items() if wanted else ():
        benchmark = BENCHMARKS[name](options)
        _require_judge(benchmark, method)
        found = _benchmark(experiment, benchmark, reading, model, stream / "benchmarks" / name)
        asked.benchmarks.append(Posed(benchmark, found.records))
        asked.unused.extend(found.unused)
    if experiment.evaluation.choices is not None:
        chosen = _choices(experiment, reading, stream / "choices")
        asked.choices.extend(chosen.records)
        asked.unused.extend(chosen.unused)
    return asked


def _require_judge(benchmark: Benchmark[Any], method: Method) -> None:
    """Refuse a benchmark whose answers could not be judged."""
    if benchmark.runs_programs and method.keeps_adapters:
        raise ConfigError(
            "sites keep adapters of their own, which they would measure, and no site runs programs that a server sends",
            where=f"evaluation.benchmarks.{benchmark.name}", fix="Remove it, or choose a method with a global adapter.",
        )  # fmt: skip
    benchmark.prepare()


@dataclass(frozen=True)
class _Found:
    """What is asked of one source, and what is not."""

    records: list[Any]
    unused: list[Unused]


def _benchmark(
    experiment: Experiment, benchmark: Benchmark[Any], reading: Reading, model: Model, stream: Stream
) -> _Found:
    """Those questions of a benchmark that leave room for an answer."""
    options, name = benchmark.config, f"evaluation.benchmarks.{benchmark.name}"
    loaded = load_questions(
        options.file, benchmark.kind, benchmark.checked, fields=options.fields, split=_split(options),
        renaming=name + ".fields = {{{field} = '{column}'}}", skip_bad=experiment.data.skip_bad,
    )  # fmt: skip
    chosen = _drawn(loaded, options.records, stream)
    template, room = reading.template, getattr(model.config, "max_position_embeddings", None)
    assert template is not None, "refused for kinds of record that have no template"
    long: list[int] = []
    if room is not None:
        ids = plain_ids([prompt(benchmark, loaded.records[index], template) for index in chosen], model.tokenizer)
        long = [index for index, found in zip(chosen, ids, strict=True) if len(found) + options.tokens > room]
    if len(long) == len(chosen):
        raise DataError(
            f"no question leaves room for an answer of {options.tokens} tokens in the {room} that the model reads",
            where=options.file, fix=f"Lower {name}.tokens.",
        )  # fmt: skip
    return _found(loaded, chosen, long, f"no room for an answer of {options.tokens} tokens", room or 0)


def _choices(experiment: Experiment, reading: Reading, stream: Stream) -> _Found:
    """Questions with options that fit with each of them."""
    data, wanted = experiment.data, experiment.evaluation.choices
    assert wanted is not None
    common = Common(wanted.instruction, wanted.options, wanted.option_columns)
    loaded = load_choices(
        wanted.file, fields=wanted.fields, common=common, split=_split(wanted), skip_bad=data.skip_bad
    )
    chosen = _drawn(loaded, wanted.records, stream)
    answered = [(index, record) for index in chosen for record in loaded.records[index].answered()]
    found = reading.fit([record for _, record in answered])
    fit = Counter(answered[place][0] for place in found.kept)
    long = [index for index in chosen if fit[index] < len(loaded.records[index].options)]
    if len(long) == len(chosen):
        raise DataError(
            f"no question fits {data.max_length} tokens with each of its options", where=wanted.file,
            fix="Raise data.max_length.",
        )  # fmt: skip
    return _found(loaded, chosen, long, f"an option does not fit {data.max_length} tokens", data.max_length)


def _split(options: Any) -> str:
    return "train" if Path(options.file).exists() else str(options.split)


def _drawn(loaded: Loaded[Any], wanted: int | None, stream: Stream) -> list[int]:
    """Indices of as many questions as are wanted, drawn at random."""
    every = list(range(len(loaded.records)))
    return every if wanted is None or wanted >= len(every) else stream.python().sample(every, wanted)


def _found(loaded: Loaded[Any], chosen: Sequence[int], long: Sequence[int], why: str, room: int) -> _Found:
    """What is left of the chosen questions without those that are too long; the others, and bad ones, are told."""
    unused = [Unused.bad(record) for record in loaded.bad]
    unused += [Unused(loaded.places[index], "long", why) for index in long]
    tell(unused, room, "question")
    return _Found([loaded.records[index] for index in chosen if index not in long], unused)

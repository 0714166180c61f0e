"""The questions that a run asks its models: with options, and of benchmarks, which they answer in their own words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from murmura.data.loading import load_records
from murmura.data.records import Choice
from murmura.data.tokenising import plain_ids
from murmura.errors import ConfigError, DataError
from murmura.experiment.choices import Found, drawn, split_of, with_options
from murmura.experiment.config import Experiment
from murmura.experiment.exclusions import Unused, tell
from murmura.experiment.model_spec import ModelSpec
from murmura.federation.method import Method
from murmura.measure.benchmarks import BENCHMARKS
from murmura.measure.benchmarks.benchmark import Benchmark
from murmura.measure.benchmarks.benchmark_set import BenchmarkSet, prompt
from murmura.measure.benchmarks.config import BenchmarksConfig
from murmura.measure.harness import tasks as harness
from murmura.measure.harness.tasks import HarnessSet
from murmura.reading import Reading
from murmura.streams import Stream


@dataclass(frozen=True)
class Asked:
    """The questions that are asked, and those that are not, with the reason.

    Attributes:
        asks: what the questions ask (see ``EvaluationSet``).
    """

    choices: list[Choice] = field(default_factory=list)
    benchmarks: list[BenchmarkSet] = field(default_factory=list)
    harness: HarnessSet | None = None
    asks: list[str] = field(default_factory=list)
    unused: list[Unused] = field(default_factory=list)


def ask(experiment: Experiment, method: Method, reading: Reading, model: ModelSpec, stream: Stream) -> Asked:
    """Read ``evaluation.choices`` and ``evaluation.benchmarks``, and leave out questions that do not fit.

    Args:
        reading: how records meet the model.
        stream: which of more questions than are wanted are asked.

    Raises:
        DataError: a question is bad (and ``data.skip_bad`` off), or none is left.
        ConfigError: a benchmark cannot be measured in this run, or on this machine; or there is no such task.
    """
    wanted = experiment.evaluation.benchmarks
    asked = Asked(harness=_harness(wanted, method) if wanted and wanted.tasks else None)
    if asked.harness:
        asked.asks.extend(asked.harness.subjects)
    for name, options in wanted.named.items() if wanted else ():
        benchmark = BENCHMARKS[name](options)
        _require_judge(benchmark, method)
        found = _benchmark(experiment, benchmark, reading, model, stream / "benchmarks" / name)
        asked.benchmarks.append(BenchmarkSet(benchmark, found.records))
        asked.asks.extend(asked.benchmarks[-1].subjects)
        asked.unused.extend(found.unused)
    if experiment.evaluation.choices is not None:
        chosen = with_options(experiment, reading, stream / "choices")
        asked.choices.extend(chosen.records)
        asked.asks.extend(question.subject for question in chosen.records)
        asked.unused.extend(chosen.unused)
    return asked


def _harness(wanted: BenchmarksConfig, method: Method) -> HarnessSet:
    """The tasks of lm-evaluation-harness with their data."""
    assert wanted.tasks
    if method.keeps_adapters:
        raise ConfigError(
            "sites keep adapters of their own, which they would measure, and no site loads tasks that a server names",
            where=harness.WHERE,
            fix="Measure them when the run is finished: murmura evaluate RUN --tasks " + ",".join(wanted.tasks),
        )
    return harness.load(wanted.tasks, limit=wanted.limit, few_shot=wanted.few_shot, form=wanted.form)


def _require_judge(benchmark: Benchmark[Any], method: Method) -> None:
    """Refuse a benchmark whose answers could not be judged."""
    if benchmark.runs_programs and method.keeps_adapters:
        raise ConfigError(
            "sites keep adapters of their own, which they would measure, and no site runs programs that a server sends",
            where=f"evaluation.benchmarks.{benchmark.name}",
            fix="Remove it, or choose a method with a global adapter.",
        )
    benchmark.prepare()


def _benchmark(
    experiment: Experiment, benchmark: Benchmark[Any], reading: Reading, model: ModelSpec, stream: Stream
) -> Found:
    """Those questions of a benchmark that leave room for an answer."""
    options, name = benchmark.config, f"evaluation.benchmarks.{benchmark.name}"
    loaded = load_records(
        options.file,
        benchmark.kind,
        fields=options.fields,
        split=split_of(options.file, options.split),
        skip_bad=experiment.data.skip_bad,
        renaming=name + ".fields = {{{field} = '{column}'}}",
        check=benchmark.checked,
        what="question",
    )
    chosen = drawn(list(zip(loaded.records, loaded.places, strict=True)), options.records, stream)
    template, room = reading.template, getattr(model.config, "max_position_embeddings", None)
    assert template is not None, "refused for kinds of record that have no template"
    ids = plain_ids([prompt(benchmark, question, template) for question, _ in chosen], model.tokenizer)
    long = [room is not None and len(found) + options.tokens > room for found in ids]
    if all(long):
        what = f"no question leaves room for an answer of {options.tokens} tokens in the {room} that the model reads"
        raise DataError(what, where=options.file, fix=f"Lower {name}.tokens.")
    why = f"no room for an answer of {options.tokens} tokens"
    unused = [Unused.bad(record) for record in loaded.bad]
    unused += [Unused(where, "long", why) for (_, where), is_long in zip(chosen, long, strict=True) if is_long]
    tell(unused, room or 0, "question")
    return Found([question for (question, _), is_long in zip(chosen, long, strict=True) if not is_long], unused)

"""The questions that a run asks its models: with options, and of benchmarks, which they answer in their own words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from murmura.data.choices import Common, load_choices
from murmura.data.loading import load_records, split_of
from murmura.data.records import Choice
from murmura.data.tokenising import plain_ids
from murmura.errors import ConfigError, DataError
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
from murmura.models.declared import context_of
from murmura.reading import Reading
from murmura.streams import Stream

T = TypeVar("T")


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
        asked.harness.require_room(context_of(model.config))
        asked.asks.extend(asked.harness.subjects)
    for name, options in wanted.named.items() if wanted else ():
        benchmark = BENCHMARKS[name](options)
        _require_judge(benchmark, method)
        questions, unused = _benchmark(experiment, benchmark, reading, model, stream / "benchmarks" / name)
        asked.benchmarks.append(BenchmarkSet(benchmark, questions))
        asked.asks.extend(asked.benchmarks[-1].subjects)
        asked.unused.extend(unused)
    if experiment.evaluation.choices is not None:
        choices, unused = _with_options(experiment, reading, stream / "choices")
        asked.choices.extend(choices)
        asked.asks.extend(question.subject for question in choices)
        asked.unused.extend(unused)
    return asked


def _with_options(experiment: Experiment, reading: Reading, stream: Stream) -> tuple[list[Choice], list[Unused]]:
    """The questions of ``evaluation.choices``, and those that are left out, since they do not fit with each of their
    options or cannot be used."""
    wanted, room = experiment.evaluation.choices, experiment.data.max_length
    assert wanted is not None
    loaded = load_choices(
        wanted.file,
        fields=wanted.fields,
        common=Common(wanted.instruction, wanted.options, wanted.option_columns),
        split=split_of(wanted.file, wanted.split),
        skip_bad=experiment.data.skip_bad,
    )
    chosen = _drawn(list(zip(loaded.records, loaded.places, strict=True)), wanted.records, stream)
    fits = _fit([question for question, _ in chosen], reading)
    unused = [Unused.bad(record) for record in loaded.bad]
    why = f"an option does not fit {room} tokens"
    unused += [Unused(where, "long", why) for (_, where), does in zip(chosen, fits, strict=True) if not does]
    kept = [question for (question, _), does in zip(chosen, fits, strict=True) if does]
    if not kept:
        what = f"no question fits {room} tokens with each of its options"
        raise DataError(what, where=wanted.file, fix="Raise data.max_length.")
    tell(unused, f"{room} tokens (data.max_length)", "question")
    return kept, unused


def _drawn(every: Sequence[T], wanted: int | None, stream: Stream) -> list[T]:
    """As many questions as are wanted, drawn at random."""
    return list(every) if wanted is None or wanted >= len(every) else stream.python().sample(every, wanted)


def _fit(questions: Sequence[Choice], reading: Reading) -> list[bool]:
    """Whether each question fits with each of its options."""
    answered = [(place, record) for place, question in enumerate(questions) for record in question.answered()]
    items = reading.tokenise([record for _, record in answered])
    fit = Counter(place for (place, _), item in zip(answered, items, strict=True) if item is not None)
    return [fit[place] == len(question.options) for place, question in enumerate(questions)]


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
) -> tuple[list[Any], list[Unused]]:
    """Those questions of a benchmark that leave room for an answer, and the others."""
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
    chosen = _drawn(list(zip(loaded.records, loaded.places, strict=True)), options.records, stream)
    template, room = reading.template, context_of(model.config)
    assert template is not None, "refused for kinds of record that have no template"
    ids = plain_ids([prompt(benchmark, question, template) for question, _ in chosen], model.tokenizer)
    long = [room is not None and len(found) + options.tokens > room for found in ids]
    if all(long):
        what = f"no question leaves room for an answer of {options.tokens} tokens in the {room} that the model reads"
        raise DataError(what, where=options.file, fix=f"Lower {name}.tokens.")
    why = f"no room for an answer of {options.tokens} tokens"
    unused = [Unused.bad(record) for record in loaded.bad]
    unused += [Unused(where, "long", why) for (_, where), is_long in zip(chosen, long, strict=True) if is_long]
    tell(unused, f"{room} tokens with an answer of {options.tokens} ({name}.tokens)", "question")
    return [question for (question, _), is_long in zip(chosen, long, strict=True) if not is_long], unused

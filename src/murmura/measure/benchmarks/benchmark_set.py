"""Benchmarks in a run: questions are asked of adapters, many in one batch, and the answers judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from murmura.errors import RunError
from murmura.measure.benchmarks import BENCHMARKS
from murmura.measure.benchmarks.benchmark import UNPARSED, Benchmark, Verdict
from murmura.progress import phase

if TYPE_CHECKING:
    from murmura.data.templates import Template
    from murmura.generation.writer import Completion
    from murmura.model_runtime import ModelRuntime
    from murmura.training.adapter import State


@dataclass(frozen=True)
class BenchmarkSet:
    """A benchmark and those of its questions that a run asks."""

    benchmark: Benchmark[Any]
    questions: Sequence[Any]

    @property
    def tokens(self) -> int:
        """Most tokens that one model writes."""
        return len(self.questions) * int(self.benchmark.config.tokens)

    @property
    def subjects(self) -> list[str]:
        """What the questions ask, alone and as an instruction."""
        forms = ((question.subject, self.benchmark.instruction(question).subject) for question in self.questions)
        return [text for pair in forms for text in dict.fromkeys(pair)]

    def to_payload(self) -> dict[str, Any]:
        """As a payload."""
        config = self.benchmark.config.model_dump(mode="json")
        questions = [asdict(question) for question in self.questions]
        return {"name": self.benchmark.name, "config": config, "questions": questions}

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> BenchmarkSet:
        """The inverse of ``to_payload``.

        Raises:
            RunError: it would have programs run that others sent.
        """
        made = BENCHMARKS[payload["name"]]
        if made.runs_programs:
            raise RunError(f"no programs are run that others send: '{made.name}' is measured by the server alone")
        questions = [made.kind(**fields) for fields in payload["questions"]]
        return cls(made(made.options.model_validate(payload["config"])), questions)


def prompt(benchmark: Benchmark[Any], question: Any, template: Template) -> str:
    """All that stands before an answer."""
    if benchmark.config.form == "plain":
        return benchmark.plain(question)
    return template.prompt(benchmark.instruction(question))


def answers(runtime: ModelRuntime, adapters: Sequence[State], asked: BenchmarkSet) -> list[list[str]]:
    """What each adapter writes behind each question, greedily."""
    benchmark, count = asked.benchmark, len(asked.questions)
    prompts = [runtime.prompt_ids(prompt(benchmark, one, runtime.template)) for one in asked.questions]
    written = runtime.write(
        [adapter for adapter in adapters for _ in range(count)],
        prompts * len(adapters),
        [benchmark.config.tokens] * (count * len(adapters)),
        stop=benchmark.stop,
        description=f"answers to {benchmark.name}",
    )
    texts = [one.text for one in written]
    if benchmark.config.form == "plain":
        decode = partial(runtime.tokenizer.decode, skip_special_tokens=True)
        texts = [_behind(decode, ids, one) for ids, one in zip(prompts * len(adapters), written, strict=True)]
    return [texts[k * count : (k + 1) * count] for k in range(len(adapters))]


def _behind(decode: Callable[[list[int]], str], prompt: list[int], answer: Completion) -> str:
    """An answer as it stands behind a prompt that it continues.

    Decoders of sentence pieces take a space from the beginning of a text. Behind a template that is the tokenizer's
    own, as responses are tokenised apart in training; here it is the model's, and indents a program's first line.
    """
    lost = decode([*prompt, *answer.ids]) == f"{decode(prompt)} {decode(answer.ids)}"
    return " " * lost + answer.text


def measure(runtime: ModelRuntime, adapters: Sequence[State], asked: Sequence[BenchmarkSet]) -> list[dict[str, Any]]:
    """Ask all questions of each adapter.

    Returns:
        For each adapter and benchmark the share of right answers, and where answers are parsed the share of those in
        which something was found (``NAME_parsed``), each with the number of questions under ``..._n``; what the first
        comes to by guessing (``NAME_guess``), where that is something; and under ``answers``, by benchmark, how many
        met which outcome.
    """
    figures: list[dict[str, Any]] = [{"answers": {}} for _ in adapters]
    with phase("evaluate"):
        for one in asked:
            for found, texts in zip(figures, answers(runtime, adapters, one), strict=True):
                verdicts = one.benchmark.judge(one.questions, texts)
                found |= _shares(one.benchmark, verdicts) | _guess(one)
                found["answers"][one.benchmark.name] = _outcomes(one.benchmark, verdicts)
    return figures


def _shares(benchmark: Benchmark[Any], verdicts: Sequence[Verdict]) -> dict[str, Any]:
    found = {benchmark.name: sum(one.right for one in verdicts)}
    if UNPARSED in benchmark.outcomes:
        found[f"{benchmark.name}_parsed"] = sum(one.outcome != UNPARSED for one in verdicts)
    shares: dict[str, Any] = {key: count / len(verdicts) for key, count in found.items()}
    return shares | {f"{key}_n": len(verdicts) for key in found}


def _guess(asked: BenchmarkSet) -> dict[str, float]:
    level = asked.benchmark.guess(asked.questions)
    return {} if level is None else {f"{asked.benchmark.name}_guess": level}


def _outcomes(benchmark: Benchmark[Any], verdicts: Sequence[Verdict]) -> dict[str, int]:
    """All outcomes that there are, so that means over sites are over all of them."""
    counted = Counter(one.outcome for one in verdicts)
    return {outcome: counted[outcome] for outcome in benchmark.outcomes}

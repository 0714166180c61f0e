"""What measuring one round of a run would take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from murmura.data.records import Instruction
from murmura.experiment.config import Experiment
from murmura.experiment.model_spec import ModelSpec
from murmura.experiment.questions import Asked
from murmura.experiment.sites import Population
from murmura.federation.method import Method


def tokens_written(
    experiment: Experiment, method: Method, people: Population | None, model: ModelSpec | None
) -> int | None:
    """Most tokens written to measure one round: every answer as long as its reference, of members the longest."""
    if people is None or model is None:
        return None
    if not experiment.task.writes:
        return 0
    config = experiment.evaluation
    models = writers(method, people)
    tokens = models * sum(_lengths(people.heldout[: config.sample], model.tokenizer))
    if not config.memorisation:
        return tokens
    private = sorted(_lengths([r for site in people.sites for r in site.records], model.tokenizer), reverse=True)
    nonmembers = sum(_lengths(people.nonmembers[: config.sample], model.tokenizer))
    return tokens + models * nonmembers + sum(private[: config.sample])


def tokens_of_benchmarks(method: Method, people: Population | None, asked: Asked | None) -> int | None:
    """Most tokens written to measure all benchmarks once: every answer as long as it may be."""
    if people is None or asked is None:
        return None
    return writers(method, people) * sum(one.tokens for one in asked.benchmarks)


def writers(method: Method, people: Population) -> int:
    """How many adapters are measured."""
    return len(people.sites) if method.keeps_adapters else 1


def records_scored(experiment: Experiment, method: Method, people: Population | None, cohort: int | None) -> int | None:
    """Most records that are scored to attack what one round has made."""
    if people is None or cohort is None:
        return None
    config = experiment.evaluation
    if not config.attacks:
        return 0
    members = sum(len(site.records) for site in people.sites)
    others = min(config.attack_records, len(people.nonmembers or people.heldout))
    uploads = min(config.uploads, cohort) if attacks_uploads(experiment, method) else 0
    models = len(people.sites) if method.keeps_adapters else 1 + uploads
    return models * others + (2 if uploads else 1) * min(config.attack_records, members)


def attacks_uploads(experiment: Experiment, method: Method) -> bool:
    """Whether single uploads are attacked."""
    return bool(experiment.evaluation.uploads) and not method.keeps_adapters and method.uploads_are_heard


def _lengths(records: Sequence[Instruction], tokenizer: Any) -> list[int]:
    if not records:
        return []
    texts = [record.output for record in records]
    return [len(ids) for ids in tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]]

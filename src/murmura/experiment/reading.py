"""How an experiment's records meet its model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from murmura.errors import ConfigError
from murmura.experiment.config import Experiment
from murmura.measure.evaluation_set import EvaluationSet
from murmura.models.declared import context_of
from murmura.reading import Reading
from murmura.streams import Stream

if TYPE_CHECKING:
    from murmura.experiment.questions import Asked
    from murmura.experiment.sites import Population


def reading(experiment: Experiment, tokenizer: Any, config: Any, *, masked: bool) -> Reading:
    """What stands around the records of an experiment, and which of them fit.

    Args:
        config: the model's, as transformers reads it.
        masked: whether the model fills in masks.

    Raises:
        ConfigError: records that are longer than the model reads, or patterns or words that it cannot take.
        DataError: a chat template that it does not have.
    """
    limit, longest = _reads(tokenizer, config, masked=masked), experiment.data.max_length
    if limit is not None and longest > limit:
        what = f"records may have {longest} tokens, and the model reads {limit} at most"
        fix = f"Set data.max_length = {limit} or less; what is longer is shortened or left out."
        raise ConfigError(what, where="data.max_length", fix=fix)
    return experiment.task.reading(experiment.method, experiment.data, tokenizer, masked=masked)


def _reads(tokenizer: Any, config: Any, *, masked: bool) -> int | None:
    """Most tokens that a model reads, None where it does not say. RoBERTa's kind counts positions from behind the
    padding's, so its config says too much; the tokenizers of masked models know."""
    limits = [context_of(config), tokenizer.model_max_length if masked else None]
    return min((limit for limit in limits if limit), default=None)


def evaluation_set(
    experiment: Experiment, people: Population, stream: Stream, asked: Asked | None = None
) -> EvaluationSet:
    """What the run is measured with.

    Args:
        stream: which held-out records are set apart for validation.
        asked: questions that are asked too.

    Raises:
        DataError: the held-out records cannot be measured with.
    """
    kinds = ("choices", "benchmarks", "harness", "asks")
    questions = {name: getattr(asked, name) for name in kinds} if asked else {}
    return experiment.task.evaluation_set(
        experiment.method,
        experiment.data,
        people.heldout,
        people.nonmembers,
        stream,
        sample=experiment.evaluation.sample,
        **questions,
    )

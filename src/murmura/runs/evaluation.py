"""What is in ``evaluation.json``: how good models are on tasks of lm-evaluation-harness."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Evaluated:
    """One model.

    Attributes:
        model: The base model, what the run has made of it, or a site's own adapter; in words.
        figures: Of each task its figure, by key (``measure.harness.figures``), with ``..._n``, or ``..._low`` and
            ``..._high``, as in ``metrics.jsonl``.
    """

    model: str
    figures: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """``evaluation.json``.

    Attributes:
        murmura: Murmura's version.
        made: When, in ISO 8601 with the time zone.
        models: The base model first.
        limit: Most questions of each task; None: all.
        few_shot: Answered questions before each; None: as many as each task has of its own.
        form: ``plain`` or ``template``.
    """

    murmura: str
    made: str
    models: tuple[Evaluated, ...]
    limit: int | None
    few_shot: int | None
    form: str

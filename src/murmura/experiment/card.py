"""What the card of a run's model says of how it was made, and what is guaranteed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from murmura import __version__
from murmura.experiment.config import Experiment
from murmura.federation.method import Method
from murmura.units import bound, several

_UNBOUNDED = "What the model tells of the records that it was trained on is not bounded."


def made_by(experiment: Experiment, method: Method, rows: Sequence[Mapping[str, Any]]) -> str:
    """The end of the card, in Markdown.

    Args:
        rows: the run's metrics as anybody may see them.
    """
    options, last, name = experiment.model, rows[-1], experiment.run.name
    rounds = several(last["round"], "round")
    parts = [
        f"{method.title}, {rounds}, with Murmura {__version__}, as the run '{name}' with seed {experiment.run.seed}; "
        "its report has the figures."
    ]
    if options.quantization is not None:
        parts.append(f"The base model was quantised ({options.quantization}) meanwhile.")
    if options.adapter is not None:
        parts.append("It began with another adapter, and what that was trained on is in it, too.")
    promise = _guaranteed(last.get("privacy") or {})
    return f"## How it was made\n\n{' '.join(parts)}\n\n## What is guaranteed\n\n{promise}"


def _guaranteed(privacy: Mapping[str, Any]) -> str:
    if privacy.get("epsilon") is not None:
        caveat = f" {privacy['caveat']}" if privacy.get("caveat") else ""
        return (
            f"Differential privacy for each {privacy['unit']}: ε = {bound(privacy['epsilon'])} at "
            f"δ = {privacy['delta']:g} ({privacy['adjacency']} adjacency). The run's report says what this means, and "
            f"against whom it holds.{caveat}"
        )
    if privacy.get("refused"):
        return f"Nothing: {privacy['refused']}. {_UNBOUNDED}"
    return f"Nothing. {_UNBOUNDED}"

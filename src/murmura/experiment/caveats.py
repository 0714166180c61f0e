"""What to say beside a guarantee that is worth less than it looks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from murmura.experiment.config import Experiment
from murmura.federation.adapter_folder import is_made_here
from murmura.privacy.plan import PrivacyPlan


def caveats(experiment: Experiment, plan: PrivacyPlan | None, records: Sequence[int]) -> list[str]:
    """In sentences.

    Args:
        plan: that the run follows; None where a mechanism at the sites protects by itself.
        records: how many each site has.
    """
    found = [_of_start(experiment)]
    if plan is not None:
        found += [plan.caveat(records), _of_passes(experiment, plan)]
    return [one for one in found if one]


def _of_start(experiment: Experiment) -> str | None:
    """Whoever has the model has seen what it began with, too."""
    model, begun = experiment.model, None
    if model.adapter is not None:
        begun = "an adapter (model.adapter)"
    elif is_made_here(Path(model.name)):
        begun = "a model that another run has trained (model.name)"
    return begun and f"The run began with {begun}, and this does not cover what that was trained on."


def _of_passes(experiment: Experiment, plan: PrivacyPlan) -> str | None:
    """Clipped by themselves, records must not meet in a pass: see docs/privacy.md, "Rounding"."""
    asked = experiment.training.tokens_per_pass
    if asked in ("auto", 1) or plan.clipping.kind != "example":
        return None
    return (
        f"Records share passes (training.tokens_per_pass = {asked}), so this holds against a server that follows the "
        "protocol, and not against one that makes up an adapter; without the option each record has a pass of its own."
    )

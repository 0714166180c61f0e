"""What to say beside a guarantee that is worth less than it looks."""

from __future__ import annotations

from collections.abc import Sequence

from murmura.experiment.config import Experiment
from murmura.privacy.plan import PrivacyPlan


def caveat(experiment: Experiment, plan: PrivacyPlan, records: Sequence[int]) -> str | None:
    """In words, or None where there is nothing to say.

    Args:
        plan: that the run follows.
        records: how many each site has.
    """
    found = [plan.caveat(records), _of_passes(experiment, plan)]
    return " ".join(one for one in found if one) or None


def _of_passes(experiment: Experiment, plan: PrivacyPlan) -> str | None:
    """Clipped by themselves, records must not meet in a pass: see docs/privacy.md, "Rounding"."""
    asked = experiment.training.tokens_per_pass
    if asked in ("auto", 1) or plan.clipping.kind != "example":
        return None
    return (
        f"Records share passes (training.tokens_per_pass = {asked}), so this holds against a server that follows the "
        "protocol, and not against one that makes up an adapter; without the option each record has a pass of its own."
    )

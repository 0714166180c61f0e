"""What a round that was interrupted has cost of the privacy that its run promised."""

from __future__ import annotations

from murmura.experiment.prepare import Plan
from murmura.federation.server.checkpoint import last_saved
from murmura.privacy.standing import standing
from murmura.runs.folder import RunFolder

_COUNTS = "What sites sent in the interrupted round counts, and what is repeated after --resume counts again."
_ELSEWHERE = (
    "What sites have sent in the interrupted round counts, by their privacy ledgers, which are with them; and what is "
    "repeated after --resume counts again."
)


def cost_of(folder: RunFolder, plan: Plan) -> str:
    """What the round in which the run stopped has cost of the privacy that it promised, in words."""
    if plan.privacy is None:  # a mechanism at the sites protects by itself, and no ledger here has counted it
        return _COUNTS
    saved = last_saved(folder.checkpoint)
    found = standing(folder.path, -1 if saved is None else saved, plan.experiment.tables()["method"])
    if found:
        return found.cost
    elsewhere = plan.is_remote and plan.privacy.unit == "record"
    return _ELSEWHERE if elsewhere else "The interrupted round has spent no privacy."

"""What to say beside a guarantee that is worth less than it looks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from murmura.config import leaves
from murmura.experiment.config import Experiment
from murmura.experiment.verbs import verbs_of
from murmura.federation.method import Method
from murmura.privacy.plan import PrivacyPlan
from murmura.runs.card import is_made_here
from murmura.units import listing

_BEGUN = "The run uses {} ({}), and this does not cover what that was trained on."
CHOSEN = (
    "Options of the run were chosen by what other runs over the same records came to (run.chosen_by): after its last "
    "round, ε counts what these have spent too."
)
_READ = "The run reads records that another run has left ({}), and this does not cover what those were made of."
_MEASURED = "Sites also measure on their records ({}), and this does not cover what they tell of that."
_HEARD = (
    "Single uploads are attacked as they arrive (evaluation.uploads), before there is noise, and this does not cover "
    "what is told of that."
)


def caveats(experiment: Experiment, method: Method, plan: PrivacyPlan | None, records: Sequence[int]) -> list[str]:
    """In sentences.

    Args:
        method: of the experiment.
        plan: that the run follows; None where a mechanism at the sites protects by itself.
        records: how many each site has.
    """
    found: list[str | None] = [*_of_start(experiment), _of_measuring(experiment, method)]
    found += [CHOSEN] if experiment.run.chosen_by else []
    if plan is not None:
        found += [plan.caveat(records), _of_passes(experiment, plan), _of_uploads(experiment, method, plan)]
    return list(dict.fromkeys(one for one in found if one))


def _of_start(experiment: Experiment) -> Iterator[str]:
    """Whoever has the outcome has seen what it was made with, too."""
    read = dict(experiment.sources())
    for key, value in experiment.sources():
        if key == "model.adapter":
            yield _BEGUN.format("an adapter that was trained before", key)
        elif key != "data.train" and is_made_here(Path(value)):
            yield _READ.format(key)
    options = experiment.model_dump(include={"model", "method", "augment"})
    for key, value in leaves({name: part for name, part in options.items() if part}):
        if isinstance(value, str) and key not in read and is_made_here(Path(value)):
            yield _BEGUN.format("a model that another run has trained", key)


def _of_measuring(experiment: Experiment, method: Method) -> str | None:
    """Figures of it that a later part of the run does not have are marked nowhere else."""
    asked = [
        one.declaration(verb) for one in verbs_of(experiment, method) for verb in one.verbs() if not one.is_free(verb)
    ]
    options = sorted({one.option for one in asked if one.measures and one.option})
    return _MEASURED.format(listing(options)) if options else None


def _of_passes(experiment: Experiment, plan: PrivacyPlan) -> str | None:
    """Clipped by themselves, records must not meet in a pass: see docs/privacy.md, "Rounding"."""
    asked = experiment.training.tokens_per_pass
    if asked in ("auto", 1) or plan.clipping.kind != "example":
        return None
    return (
        f"Records share passes (training.tokens_per_pass = {asked}), so this holds against a server that follows the "
        "protocol, and not against one that makes up an adapter; without the option each record has a pass of its own."
    )


def _of_uploads(experiment: Experiment, method: Method, plan: PrivacyPlan) -> str | None:
    """A sum has noise, and no upload of it has any. Where cohorts are secret no upload is looked at."""
    attacked = experiment.evaluation.attacks or experiment.audit.canaries
    heard = experiment.evaluation.uploads and method.uploads_are_heard and not plan.has_secret_cohort
    return _HEARD if plan.unit == "site" and attacked and heard else None

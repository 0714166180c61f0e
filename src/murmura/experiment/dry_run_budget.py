"""What a run would do to the accounts of sites whose owners have set a budget (``[budget]``), in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from murmura.augment.strategies import strategy
from murmura.augment.verbs import Augmenting
from murmura.errors import PrivacyError
from murmura.experiment.config import Experiment
from murmura.federation.method import Method
from murmura.privacy.budget import foresee
from murmura.units import bound


def of_budgets(
    experiment: Experiment,
    method: Method,
    sizes: Mapping[str, int] | None,
    digests: Mapping[str, str] | None = None,
) -> list[str]:
    """What each site would spend, and whether it would refuse, as sentences; sites that fare alike share one.

    Args:
        sizes: records of each site.
        digests: of each site's records, where they are known; else they count as none that were there before.
    """
    chosen = experiment.budget
    if chosen.folder is None or not sizes:
        return []
    asked = uncovered(experiment, method, sizes)
    if asked:
        refuses = "do not answer it" if chosen.epsilon is not None else "keep no budget for these records from then on"
        return [f"No ε at the sites covers {asked}: sites {refuses} (budget.folder = {chosen.folder})."]
    alike: dict[str, list[str]] = {}
    for site, records in sizes.items():
        alike.setdefault(_words(experiment, method, (digests or {}).get(site, ""), records), []).append(site)
    return [f"Budget of {', '.join(sites)}: {words}" for words, sites in alike.items()]


def uncovered(experiment: Experiment, method: Method, sizes: Mapping[str, int]) -> str:
    """What the run would ask of sites that no ε covers; empty where there is nothing."""
    asked = [
        f"what verb {verb} releases"
        for verb in method.verbs()
        if not method.is_free(verb)
        and any(method.spends(verb, records, experiment.training) is None for records in sizes.values())
    ]
    augment = experiment.augment
    if augment is not None and augment.noise_multiplier is None:
        verbs = Augmenting(augment)
        asked += [f"what verb {verb} releases" for verb in strategy(augment).asks if not verbs.is_free(verb)]
    evaluation = experiment.evaluation
    asked += ["attacks on their records"] * bool(evaluation.attacks or evaluation.memorisation)
    return " and ".join(asked)


def _words(experiment: Experiment, method: Method, digest: str, records: int) -> str:
    """How one site's account would fare."""
    chosen, settings = experiment.budget, cast(Any, experiment.method)
    spends = [method.spends(verb, records, experiment.training) for verb in method.verbs()]
    try:
        found = [foresee(chosen, digest, *one, settings.rounds) for one in spends if one is not None]
    except (PrivacyError, OSError) as error:
        return f"the account cannot be read ({error}), so that the run would not start."
    if not found:
        return "this run asks for nothing that costs any ε."
    worst = min(found, key=lambda one: one.answered)
    allowed = "" if chosen.epsilon is None else f" of {chosen.epsilon:g}"
    told = (
        f"ε = {bound(worst.before)}{allowed} is spent at δ = {chosen.delta:g}, and it would be {bound(worst.after)} "
        "after this run."
    )
    if worst.answered == settings.rounds:
        return told
    answered = f"{worst.answered} of its {settings.rounds} rounds" if worst.answered else "none of its rounds"
    return f"{told} That is too much: {answered} would be answered."

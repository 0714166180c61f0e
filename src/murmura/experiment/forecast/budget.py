"""What a run would do to the accounts of sites whose owners have set a budget (``[budget]``), and whether it would get
beyond its start."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from murmura.augment.strategies import strategy
from murmura.augment.verbs import Augmenting
from murmura.data.records import digest
from murmura.data.refusal import indented
from murmura.errors import BudgetError, CheckpointError, PrivacyError
from murmura.experiment.config import Experiment
from murmura.federation.method import Method
from murmura.federation.wire.cohorts import draw
from murmura.privacy.budget import AccountEntry, BudgetConfig, read
from murmura.privacy.guarantee import Cost
from murmura.privacy.plan import PrivacyPlan
from murmura.streams import Stream
from murmura.units import bound


def of_budgets(
    experiment: Experiment, method: Method, sizes: Mapping[str, int] | None, digests: Mapping[str, str] | None = None
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


def require_answers(
    experiment: Experiment, method: Method, promised: PrivacyPlan | None, records: Mapping[str, Sequence[Any]]
) -> None:
    """Refuse a run that would stop, since sites' budgets do not allow an answer in its first round. Sites refuse too,
    but are only asked once the model is measured.

    Args:
        experiment: with what is measured decided.
        promised: the plan that the run follows.
        records: of each site.

    Raises:
        BudgetError: it would stop.
        PrivacyError: an account is damaged or was edited.
        CheckpointError: one cannot be read.
    """
    if experiment.budget.epsilon is None or not method.asks(1):
        return
    asked, stops = list(records), 0  # where cohorts are secret: who is asked is not known, and so all must refuse
    if promised is None or not promised.has_secret_cohort:
        number = experiment.method.cohort_size
        asked = draw(asked, number, Stream(experiment.run.seed), 1)
        alone = experiment.run.engine == "local"  # where one site's refusal stops the run
        stops = len(asked) - 1 if alone else min(experiment.run.min_replies, len(asked)) - 1
    whys = {site: _refusal(experiment, method, site, records) for site in asked}
    refusing = [f"site {site}: {why}" for site, why in whys.items() if why]
    if len(asked) - len(refusing) <= stops:
        what = f"{len(refusing)} of {len(asked)} sites would not answer:{indented(refusing)}"
        fix = "That is for the sites' owners to decide: nothing was trained, and nothing was sent."
        raise BudgetError(what, where="budget.epsilon", fix=fix)


def _refusal(experiment: Experiment, method: Method, site: str, records: Mapping[str, Sequence[Any]]) -> str:
    """Why a site would not answer in the first round; empty where it would."""
    chosen, own = experiment.budget, list(records[site])
    asked = _verbs_uncovered(experiment, method, {name: len(some) for name, some in records.items()})
    if experiment.run.engine == "local":  # elsewhere a run goes on where a site does not have itself measured
        asked += _measuring_uncovered(experiment)
    if asked:
        return f"no ε covers what verb {asked[0]} releases"
    costs = [method.cost(verb, len(own), experiment.training) for verb in method.verbs()]
    for cost in (one for one in costs if one is not None):
        try:
            found = foresee(chosen, digest(own), cost, 1)
        except OSError as error:
            raise CheckpointError(f"the account cannot be read ({error})", where=f"site {site}") from error
        if not found.answered:
            before, after = bound(found.before), bound(found.after)
            return f"ε = {before} of {chosen.epsilon:g} is spent, and it would be {after} (δ = {chosen.delta:g})"
    return ""


def uncovered(experiment: Experiment, method: Method, sizes: Mapping[str, int]) -> str:
    """What the run would ask of sites that no ε covers; empty where there is nothing."""
    asked = [f"what verb {verb} releases" for verb in _verbs_uncovered(experiment, method, sizes)]
    asked += ["attacks on their records"] * bool(_measuring_uncovered(experiment))
    return " and ".join(asked)


def _verbs_uncovered(experiment: Experiment, method: Method, sizes: Mapping[str, int]) -> list[str]:
    """The verbs that a run's rounds ask for, and no ε at the sites covers."""
    asked = [
        verb
        for verb in method.verbs()
        if not method.is_free(verb)
        and any(method.cost(verb, records, experiment.training) is None for records in sizes.values())
    ]
    augment = experiment.augment
    if augment is not None and augment.noise_multiplier is None:
        verbs = Augmenting(augment)
        asked += [verb for verb in strategy(augment).asks if not verbs.is_free(verb)]
    return asked


def _measuring_uncovered(experiment: Experiment) -> list[str]:
    """The verbs that measure a run on the sites' records, which no ε covers."""
    evaluation = experiment.evaluation
    return ["attack"] * bool(evaluation.attacks) + ["memorise"] * evaluation.memorisation


def _words(experiment: Experiment, method: Method, about: str, records: int) -> str:
    """How one site's account would fare."""
    chosen = experiment.budget
    rounds = sum(method.asks(round) for round in range(1, experiment.method.total_rounds + 1))
    costs = [method.cost(verb, records, experiment.training) for verb in method.verbs()]
    try:
        found = [foresee(chosen, about, one, rounds) for one in costs if one is not None]
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
    if worst.answered == rounds:
        return told
    answered = f"{worst.answered} of its {rounds} rounds" if worst.answered else "none of its rounds"
    return f"{told} That is too much: {answered} would be answered."


@dataclass(frozen=True)
class Foreseen:
    """What a run would do to a site's account.

    Attributes:
        before: ε that is on it; infinite where an earlier run did what no ε covers.
        after: ε that would be on it, were all rounds answered.
        answered: how many of them the site would answer.
    """

    before: float
    after: float
    answered: int


def foresee(chosen: BudgetConfig, records: str, cost: Cost, rounds: int) -> Foreseen:
    """What a new run would do to a site's account, which is left as it is; there may be none yet.

    Args:
        chosen: with a folder.
        records: digest of the site's.
        cost: of the site's answer in a round.

    Raises:
        PrivacyError: an account is damaged or was edited.
        OSError: one cannot be read.
    """
    assert chosen.folder is not None, "without a folder there is no account"
    before = read(Path(chosen.folder))
    if before.lost_of(records) is not None:
        return Foreseen(math.inf, math.inf, 0 if chosen.epsilon is not None else rounds)

    def after(count: int) -> float:
        found = before.with_(AccountEntry("", records, "", cost.times(count))) if count else before
        return found.epsilon(records, chosen.delta).value if found.entries else 0.0

    limit = math.inf if chosen.epsilon is None else chosen.epsilon
    answered = bisect_right(range(1, rounds + 1), limit, key=after)
    return Foreseen(after(0), after(rounds), answered)

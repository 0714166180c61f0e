"""What a dry run has to remark on: what is only an example here, what an ε does not cover, what will say little."""

from __future__ import annotations

from collections.abc import Mapping

from murmura.augment.noise import planned
from murmura.augment.strategies import strategy
from murmura.data.records import digest
from murmura.experiment.caveats import caveats
from murmura.experiment.config import Experiment
from murmura.experiment.forecast.budget import of_budgets
from murmura.experiment.precision import slow
from murmura.experiment.sites import Gathered, Population
from murmura.federation.method import Method
from murmura.measure.figure import FEW
from murmura.runs.folder import RunFolder
from murmura.units import bound


def notes(
    experiment: Experiment,
    method: Method,
    gathered: Gathered | None,
    people: Population | None,
    sizes: Mapping[str, int] | None,
) -> list[str]:
    """Sentences for whoever is about to start the run.

    Args:
        gathered: the records, where they can be reached.
        people: which of them fit the model, where that is known.
        sizes: records of each site.
    """
    too_slow = slow(experiment)
    digests = {one.name: digest(one.records) for one in people.sites} if people else None
    return [
        *([f"{too_slow[0].upper()}{too_slow[1:]}."] if too_slow else []),
        *_of_run(experiment, method, gathered, people),
        *method.remarks({site.name: site.records for site in people.sites} if people else {}),
        *_few(experiment, people),
        *_caveats(experiment, method, sizes),
        *of_budgets(experiment, method, sizes, digests),
    ]


def _few(experiment: Experiment, people: Population | None) -> list[str]:
    """That an attack will say little, and what to do about it."""
    if not experiment.evaluation.attacks or people is None:
        return []
    most = experiment.evaluation.attack_records
    members = min(most, sum(len(site.records) for site in people.sites))
    others = min(most, len(people.nonmembers or people.heldout))
    if min(members, others) >= FEW:
        return []
    return [
        f"Attacks compare {members} members with {others} non-members; fewer than {FEW} of either say little. Take "
        "non-members out of the training records (data.nonmember_records), or hold out more that are like them."
    ]


def _caveats(experiment: Experiment, method: Method, sizes: Mapping[str, int] | None) -> list[str]:
    records = list((sizes or {}).values())
    found = method.guarantee(records, experiment.training) if records else None
    return caveats(experiment, found.plan, records) if found else []


def _of_run(experiment: Experiment, method: Method, gathered: Gathered | None, people: Population | None) -> list[str]:
    data, folder, found = experiment.data, experiment.run.path, list[str]()
    by_cluster = data.few_shot is not None or (data.sites.scheme != "iid" and data.sites.label is None)
    if gathered and by_cluster:
        found.append(
            "Records are chosen or shared out by clusters of their embeddings. Random vectors stand in for those here, "
            "so which records a site gets is an example, and so is what follows from it."
        )
    if gathered and people is None:
        found.append(
            "Steps are counted, and an ε computed, as if every record fitted: to know takes the model's tokenizer. "
            "Fewer records at a site can make its ε larger."
        )
    measuring = [name for name in method.verbs() if method.declaration(name).measures]
    if method.protects and measuring:
        what = " and ".join(one.what for name in measuring for one in method.releases(name).values())
        found.append(f"Sites also tell figures that the ε does not cover, without noise: {what}.")
    if method.protects:
        found.append(
            "How many records each site has is not covered by the ε, and is shown only here: the run publishes none of "
            "these numbers. Do not publish this either."
        )
    evaluation = experiment.evaluation
    if method.protects and (evaluation.attacks or evaluation.memorisation):
        found.append(
            "Figures of attacks (evaluation.attacks, evaluation.memorisation) are computed from private records and "
            "leave the sites without noise: the ε does not cover them, and the report marks them so."
        )
    elif method.protects:
        found.append(
            "The sites' records are not attacked, since the ε would not cover what that tells of them: "
            "evaluation.attacks = true measures leakage all the same."
        )
    if experiment.audit.canaries:
        found.append(
            f"{experiment.audit.canaries} canaries (random secrets) would stand among the sites' records and are "
            "counted with them. The model would not be for release."
        )
    if experiment.audit.keep:
        found.append(
            "The global model and all uploads of every round would be kept in private/@run/rounds, as a curious server "
            "keeps them, for `murmura audit`: for the run's owner alone."
        )
    if experiment.aggregation.secure:
        found.append(
            "What sites send is added up under masks (aggregation.secure): bytes of adapters hold the keys and shares "
            "that this takes, and sites tell of one another who takes part in a round."
        )
    if experiment.augment and experiment.augment.noise_multiplier is not None:
        plan = planned(experiment.augment, experiment.method.rounds)
        found.append(
            f"Centres of each site's instructions would be sent behind noise: they alone are covered by ε = "
            f"{bound(plan.epsilon().value)} ({plan.describe()}). Whatever else sites send has no ε, and so the run has "
            "none."
        )
    elif experiment.augment and (warning := strategy(experiment.augment).warning):
        found.append(warning)
    if RunFolder(folder).holds_run:
        found.append(f"{folder} already holds a run: --resume continues it, --overwrite renames it and starts over.")
    return found

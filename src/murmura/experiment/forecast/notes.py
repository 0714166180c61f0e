"""What a dry run has to remark on: what is only an example here, what an ε does not cover, what will say little."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from murmura.augment.noise import planned
from murmura.augment.strategies import strategy
from murmura.data.config import DataConfig
from murmura.data.records import digest
from murmura.experiment.caveats import caveats
from murmura.experiment.choosing import uncounted
from murmura.experiment.config import Experiment
from murmura.experiment.elsewhere import Elsewhere
from murmura.experiment.forecast.budget import of_budgets
from murmura.experiment.precision import slow
from murmura.experiment.prepare import Plan
from murmura.experiment.sites import Population
from murmura.federation.method import Method
from murmura.measure.membership import chosen, member_stream, others_stream, set_apart
from murmura.measure.monitor import attacked
from murmura.runs.folder import RunFolder
from murmura.runs.schema import FEW
from murmura.streams import Stream
from murmura.units import bound, several


def notes(plan: Plan) -> list[str]:
    """Sentences for whoever is about to start the run."""
    experiment, method, people = plan.decided, plan.method, plan.records.planted if plan.records else None
    too_slow = slow(experiment)
    digests = {one.name: digest(one.records) for one in people.sites} if people else None
    return [
        *([f"{too_slow[0].upper()}{too_slow[1:]}."] if too_slow else []),
        *_of_run(experiment, method, plan.gathered, people),
        *method.remarks({site.name: site.records for site in people.sites} if people else {}),
        *few(plan),
        *_evenly(plan),
        *_caveats(plan),
        *of_budgets(experiment, method, plan.sizes, digests),
    ]


def few(plan: Plan) -> list[str]:
    """That an attack will say little, and what to do about it."""
    experiment, method, people = plan.decided, plan.method, plan.records.planted if plan.records else None
    if not experiment.evaluation.attacks or people is None:
        return []
    (members, others), apart = _compared(experiment, method, people)
    if min(members, others) >= FEW:
        return []
    besides = f", and choose the strongest attack by {apart} more records" if apart else ""
    return [
        f"Attacks compare {members} members with {others} non-members{besides}; fewer than {FEW} of either say little. "
        f"{' '.join(_for_more(experiment.data, members, others))}"
    ]


def _evenly(plan: Plan) -> Iterator[str]:
    """That members are not drawn as non-members are, where this would tell how many records sites have."""
    experiment, method, people = plan.decided, plan.method, plan.records.planted if plan.records else None
    if not experiment.evaluation.attacks or people is None or method.keeps_adapters or method.tells_sizes:
        return
    sizes, asked = _asked(experiment, method, people)
    largest = max(sizes.values())
    enough = 10 ** len(str(largest * len(sizes)))  # the run publishes it, and a round number tells no site's
    if largest - min(sizes.values()) > 1 and any(asked.get(site, 0) < size for site, size in sizes.items()):
        yield (
            "Attacks ask as much of a small site as of a large one: to ask in proportion would tell how many records "
            "sites have. So where small sites have other kinds of record than large ones, leakage will seem larger or "
            f"smaller than it is. With evaluation.attack_records = {enough} all records are attacked."
        )


def _for_more(data: DataConfig, members: int, others: int) -> Iterator[str]:
    """How there are more of those that are too few."""
    if others < FEW and data.heldout is None:
        yield "Hold out more of the training records (data.heldout_records)."
    elif others < FEW and data.train is None:
        yield "Hold out more that are like them."
    elif others < FEW:
        yield "Take non-members out of the training records (data.nonmember_records), or hold out more like them."
    if members < FEW:
        yield "For more members sites need more records to train on (of texts, with a label)."


def _compared(experiment: Experiment, method: Method, people: Population) -> tuple[tuple[int, int], int]:
    """How many members and how many non-members say how strong an attack is, drawn as the run draws them; and how many
    records are set apart to choose the strongest by."""
    most, task, stream = experiment.evaluation.attack_records, experiment.task, Stream(experiment.run.seed)
    canaries, (sizes, asked) = _canaries(people), _asked(experiment, method, people)
    drawn = {site.name: min(asked.get(site.name, 0), sizes[site.name]) for site in people.sites}
    for site in people.sites:
        if not isinstance(site.records, Elsewhere):
            own = method.members(site, stream)
            own = [one for one in own if not task.is_canary(one)] if canaries[site.name] else own
            drawn[site.name] = len(chosen(own, drawn[site.name], member_stream(stream, site.name)))
    public = others_stream(stream)
    others = len(chosen(people.nonmembers or people.heldout, most, public))
    of_members = sum(int(set_apart(count, task, member_stream(stream, name)).sum()) for name, count in drawn.items())
    of_others = int(set_apart(others, task, public).sum())
    return (sum(drawn.values()) - of_members, others - of_others), of_members + of_others


def _asked(experiment: Experiment, method: Method, people: Population) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """Of each site how many records are no canaries, and how many the run attacks at most."""
    canaries = _canaries(people)
    sizes = {site.name: len(site.records) - canaries[site.name] for site in people.sites}
    is_told = method.tells_sizes and not method.keeps_adapters
    known = {site: size if is_told else None for site, size in sizes.items()}
    return sizes, attacked(known, experiment.evaluation.attack_records, Stream(experiment.run.seed))


def _canaries(people: Population) -> Counter[str]:
    return Counter({one.site: one.canaries for one in people.reports})


def _caveats(plan: Plan) -> list[str]:
    sizes = list((plan.sizes or {}).values())
    told = caveats(plan.decided, plan.method, plan.privacy, sizes) if plan.guarantee else []
    return told + uncounted(plan.chosen_by, plan.privacy, plan.is_remote)


def _of_run(
    experiment: Experiment, method: Method, gathered: Population | None, people: Population | None
) -> Iterator[str]:
    if gathered:
        yield from _of_stand_ins(experiment, exact=people is not None)
    if method.protects:
        yield from _beside_the_guarantee(experiment, method)
    least, there = experiment.run.min_replies, len(people.sites) if people else None
    known = [size for size in (there, experiment.method.cohort_size) if size is not None]
    if known and least > min(known):
        most = several(min(known), "site")
        yield f"run.min_replies is {least}, and a round asks {most} at most: all that are asked have to answer."
    if experiment.audit.canaries:
        yield (
            f"{experiment.audit.canaries} canaries (random secrets) would stand among the sites' records and are "
            "counted with them. The model would not be for release."
        )
    if experiment.audit.keep:
        yield (
            "The global model and all uploads of every round would be kept in private/@run/rounds, as a curious server "
            "keeps them, for `murmura audit`: for the run's owner alone."
        )
    if experiment.aggregation.secure:
        yield (
            "What sites send is added up under masks (aggregation.secure): bytes of adapters hold the keys and shares "
            "that this takes, and sites tell of one another who takes part in a round."
        )
    if experiment.augment and experiment.augment.noise_multiplier is not None:
        plan = planned(experiment.augment, experiment.method.rounds)
        yield (
            f"Centres of each site's instructions would be sent behind noise: they alone are covered by ε = "
            f"{bound(plan.epsilon().value)} ({plan.describe()}). Whatever else sites send has no ε, and so the run has "
            "none."
        )
    elif experiment.augment and (warning := strategy(experiment.augment).warning):
        yield warning
    folder = experiment.run.path
    if RunFolder(folder).holds_run:
        yield f"{folder} already holds a run: --resume continues it, --overwrite renames it and starts over."


def _of_stand_ins(experiment: Experiment, exact: bool) -> Iterator[str]:
    """What a dry run does without a model.

    Args:
        exact: its tokenizer is here, so that it is known which records fit.
    """
    if experiment.data.may_cluster:
        yield (
            "Records are chosen or shared out by clusters of their embeddings. Random vectors stand in for those here, "
            "so which records a site gets is an example, and so is what follows from it."
        )
    if not exact:
        yield (
            "Steps are counted, and an ε computed, as if every record fitted: to know takes the model's tokenizer. "
            "Fewer records at a site can make its ε larger, and only those that fit are held out or chosen."
        )


def _beside_the_guarantee(experiment: Experiment, method: Method) -> Iterator[str]:
    """What the ε of a run does not cover."""
    measuring = [name for name in method.verbs() if method.declaration(name).measures]
    if measuring:
        what = " and ".join(one.what for name in measuring for one in method.releases(name).values())
        yield f"Sites also tell figures that the ε does not cover, without noise: {what}."
    yield (
        "How many records each site has is not covered by the ε, and is shown only here: the run publishes none of "
        "these numbers. Do not publish this either."
    )
    if experiment.evaluation.attacks or experiment.evaluation.memorisation:
        yield (
            "Figures of attacks (evaluation.attacks, evaluation.memorisation) are computed from private records and "
            "leave the sites without noise: the ε does not cover them, and the report marks them so."
        )
    else:
        yield (
            "The sites' records are not attacked, since the ε would not cover what that tells of them: "
            "evaluation.attacks = true measures leakage all the same."
        )

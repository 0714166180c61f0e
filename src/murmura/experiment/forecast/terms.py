"""What a run will ask of a site, from the site's own folder: no server is asked, and nothing is trained or loaded."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from murmura.data.records import digest
from murmura.errors import PrivacyError
from murmura.experiment.caveats import caveats
from murmura.experiment.config import Experiment
from murmura.experiment.consent import digest_of
from murmura.experiment.forecast.budget import of_budgets
from murmura.experiment.forecast.rounds import foreseen_rounds
from murmura.experiment.inputs import require_same_models, tell_unnoted_models
from murmura.experiment.model_spec import ModelSpec, model_spec
from murmura.experiment.reading import reading
from murmura.experiment.site_file import AskedOf, SiteFile
from murmura.experiment.site_side import experiment_of, records_of
from murmura.experiment.skeleton import OutOfReachError
from murmura.experiment.validate import method_of
from murmura.experiment.verbs import verbs_of
from murmura.federation.membership import Membership
from murmura.federation.method import Method
from murmura.federation.site.identity import fingerprint, read_roster
from murmura.federation.wire.masks import STEPS
from murmura.federation.wire.releases import Verbs, rows_of
from murmura.privacy.composition import ReleasedSteps, composed
from murmura.privacy.guarantee import Guarantee
from murmura.privacy.plan import USELESS, PrivacyPlan
from murmura.runs.names import ROSTER
from murmura.runs.schema import Disclosure
from murmura.units import bound


@dataclass(frozen=True)
class Terms:
    """What a run asks of a site.

    Args:
        site: its name.
        experiment: digest of the experiment and of its list of what it is measured on (``consent.digest_of``).
        method: what is done, in words.
        rounds: in which sites may be asked.
        records: of the site.
        fitting: whether only those are counted that fit the model; without its tokenizer, all are.
        reads: most of them that a round's answers depend on.
        fields: all that may leave the site.
        often: how often each of them, in words.
        bytes_up: most bytes that a round's answers to the method take, in each round; None where it is not known.
        measured: verbs that measure the run on the site's records.
        trackers: that the experiment has the server tell what the run publishes; the server may choose others.
        secure: how single answers to the method are hidden in sums; None where the server reads each.
        roster: the sites that it goes by, where sums are secure; empty where they are not.
        fingerprint: of these sites' public keys; empty without them.
        guarantee: what is promised, sentence by sentence; empty where nothing is.
        budget: what the run would do to the site's account over all runs, in a sentence; None where it keeps none.
        rejection: why the owner's own limits do not allow the run; None where they do.
    """

    site: str
    experiment: str
    method: str
    rounds: int
    records: int
    fitting: bool
    reads: int
    fields: tuple[Disclosure, ...]
    often: tuple[str, ...]
    bytes_up: int | None
    measured: tuple[str, ...]
    trackers: tuple[str, ...]
    secure: str | None
    roster: tuple[str, ...]
    fingerprint: str
    guarantee: tuple[str, ...]
    budget: str | None
    rejection: str | None

    @property
    def digest(self) -> str:
        """SHA-256 of all of it, as JSON with sorted keys."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()


def terms(folder: Path, *, rostered: bool = True) -> Terms:
    """What the experiment of a site's federation asks of it.

    Args:
        folder: of the site, with its ``site.toml``.
        rostered: whether there has to be a roster of the sites, where sums are to be secure.

    Raises:
        ConfigError: the site's file or the experiment is wrong.
        ModelError: a model on this machine is not the one that the federation was made with.
        DataError: the site cannot take part with its records.
        CheckpointError: sums are to be secure, and there is no roster of the sites.
    """
    file = SiteFile.load(folder)
    federation = Path(file.federation)
    experiment = experiment_of(federation)
    require_same_models(federation, experiment, "site")
    tell_unnoted_models(federation, experiment)
    method, model = method_of(experiment), _model(experiment)
    meets = reading(experiment, model.tokenizer, model.config, masked=model.masked) if model else None
    records = records_of(file, experiment, meets, told=True)
    method.check(file.name, records)
    verbs = verbs_of(experiment, method)
    roster = read_roster(federation / ROSTER) if method.rule.config.secure and rostered else None
    sites = None if roster is None else len(roster)
    asked = AskedOf(experiment, method, verbs, len(records), sites, fitting=meets is not None)
    secure = [sum.words for one in verbs for verb in one.verbs() if (sum := one.secure(verb)) is not None]
    return Terms(
        site=file.name,
        experiment=digest_of(experiment, federation),
        method=method.title,
        rounds=experiment.method.total_rounds,
        records=len(records),
        fitting=asked.fitting,
        reads=asked.reads,
        fields=tuple(row for _, row in rows_of(verbs)),
        often=tuple(_often(experiment, one, row.verb) for one, row in rows_of(verbs)),
        bytes_up=_bytes_up(experiment, method, model, file, records, sites),
        measured=tuple(asked.measured),
        trackers=experiment.tracking.to,
        secure=secure[0] if secure else None,
        roster=tuple(sorted(roster or ())),
        fingerprint=fingerprint({site: key.hex() for site, key in roster.items()}) if roster else "",
        guarantee=tuple(_promised(asked)),
        budget=_budgeted(file, asked, records),
        rejection=file.allow.rejection_reason(asked),
    )


def _often(experiment: Experiment, verbs: Verbs, verb: str) -> str:
    """How often a verb may be asked for, in words."""
    if isinstance(verbs, Membership):
        return "when the run starts or is resumed" if verb == "join" else "after each round"
    if verb in STEPS:
        return "in each secure sum"
    if (most := verbs.answers(verb)) is not None:
        return "once" if most == 1 else f"{most} times at most"
    rounds = sum(verbs.asks(round) for round in range(1, experiment.method.total_rounds + 1))
    return "in one round" if rounds == 1 else f"in {rounds} rounds at most"


def _model(experiment: Experiment) -> ModelSpec | None:
    """What is known of the model; None where it is out of reach."""
    try:
        return model_spec(experiment, fetch=False)
    except OutOfReachError:
        return None


def _bytes_up(
    experiment: Experiment,
    method: Method,
    model: ModelSpec | None,
    file: SiteFile,
    records: list[Any],
    sites: int | None,
) -> int | None:
    """Most bytes that a round's answers to the method take; where ranks differ, by the largest."""
    if model is None:
        return None
    ranks = method.rule.ranks
    before = [""] * ranks.index(max(ranks)) if ranks else []
    rounds = range(1, experiment.method.total_rounds + 1)
    cohorts = [[file.name] if method.asks(round) else [] for round in rounds]
    owned = {file.name: records}
    found = foreseen_rounds(experiment, method, [*before, file.name], cohorts, owned, model, 0, federation=sites)
    known = [one.bytes_up for one in found]
    return None if None in known else max(one for one in known if one is not None)


def _promised(asked: AskedOf) -> Iterator[str]:
    """What the run promises this site, in sentences."""
    try:
        guarantee = asked.guarantee
        if guarantee is not None:
            yield from _words(asked, guarantee)
    except PrivacyError as error:
        yield f"What the run promises is not known from here: {error.what}."


def _budgeted(file: SiteFile, asked: AskedOf, records: list[Any]) -> str | None:
    """What the run would do to the site's account."""
    if file.budget.folder is None:
        return None
    if not asked.fitting:  # counted as if all fitted, a site would spend less of each than it does
        return "What the run would spend is not known from here: the model is not on this machine."
    evaluation = asked.experiment.evaluation.settled(promises=asked.method.protects is not None)
    experiment = asked.experiment.model_copy(update={"budget": file.budget, "evaluation": evaluation})
    try:
        [told] = of_budgets(experiment, asked.method, {file.name: len(records)}, {file.name: digest(records)})
    except PrivacyError as error:
        return f"What the run would spend is not known from here: {error.what}."
    return told


def _of_persons(most: int | None, plan: PrivacyPlan) -> Iterator[str]:
    """What is promised to whoever has as many of the site's records as one person may."""
    if plan.unit != "record" or most == 1:
        return
    if most is None:
        yield "For a person with several records it is more, and the run does not bound how many one has."
        return
    found = composed([ReleasedSteps(plan, plan.steps)], plan.delta, plan.adjacency, size=most)
    yield (
        f"A person may have {most} of these records: for all of them together ε = {bound(found.value)} at the same δ. "
        "What [allow] epsilon limits is that of one record."
    )


def _words(asked: AskedOf, guarantee: Guarantee) -> Iterator[str]:
    from murmura.privacy.curve import Curve

    whom = f"each of the site's {asked.records} records" if guarantee.unit == "record" else "the site as a whole"
    yield f"For {whom}: {guarantee.told()}."
    fewest = asked.sites or asked.experiment.method.cohort_size or 1
    beside = caveats(asked.experiment, asked.method, guarantee.plan, [asked.records] * fewest)
    if guarantee.unit == "site" and asked.sites is None:
        yield "How many sites there are is not told here; this is for the fewest that there can be."
        if guarantee.plan is not None and not any(USELESS in one for one in beside):
            at = f"δ = {guarantee.plan.delta:g}"
            yield f"Whether {at} is of use cannot be told either: it has to be well below 1 divided by their number."
    if guarantee.plan is not None:
        yield from _of_persons(asked.experiment.data.records_per_user, guarantee.plan)
        yield from Curve.of(guarantee.plan.event(), guarantee.plan.adjacency).words()
    yield from beside

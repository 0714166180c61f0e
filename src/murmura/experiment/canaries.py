"""Writing canaries into the records of simulated sites."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from murmura.errors import ConfigError
from murmura.experiment.config import Experiment
from murmura.experiment.sites import Population
from murmura.federation.method import Method
from murmura.federation.site.site import Site
from murmura.measure.canaries import Canary
from murmura.privacy.parts import Unit
from murmura.reading import Reading
from murmura.runs.names import NOT_FOR_RELEASE
from murmura.streams import Stream

_DIGITS = 6  # of a secret, and of the number of what it is the secret of

WHY_NOT = """\
Not for release. This model was trained in an audit: random secrets (canaries) were written into the sites' records, and
the figures of the run tell how far it gives them away. Train again without [audit] for a model to use.
"""


def has_learnt(experiment: Experiment) -> bool:
    """Whether a run's model knows canaries: its own, or those of what it began with."""
    begun = [Path(one).absolute() for one in (experiment.model.name, experiment.model.adapter) if one]
    return bool(experiment.audit.canaries) or any(one.is_dir() and is_marked(one) for one in begun)


def is_marked(place: Path) -> bool:
    """Whether a folder is noted as not for release, or a run that it lies in."""
    return any((folder / NOT_FOR_RELEASE).is_file() for folder in (place, *place.parents))


def plant(
    experiment: Experiment, method: Method, people: Population, reading: Reading, stream: Stream
) -> tuple[Population, list[Canary]]:
    """The sites with the canaries among their records, if ``audit.canaries`` asks for any; ``stream`` decides about
    secrets, sites and coins.

    Raises:
        ConfigError: canaries would tell nothing here, or do not fit the model.
    """
    if not experiment.audit.canaries:
        return people, []
    if method.keeps_adapters:
        what = "canaries are looked for in what leaves the sites, and here they keep adapters of their own"
        raise ConfigError(what, where="audit.canaries", fix="Remove it, or choose a method with one model for all.")
    canaries = drawn(experiment, [site.name for site in people.sites], method.protects or "record", stream)
    candidates = [record for canary in canaries for record in canary.candidates]
    fitted = reading.fit(candidates)
    if len(fitted.kept) < len(candidates) or fitted.shortened:
        what = f"a canary does not fit {experiment.data.max_length} tokens"
        raise ConfigError(what, where="data.max_length", fix="Raise it.")
    return _among(people, canaries), canaries


def drawn(experiment: Experiment, sites: Sequence[str], unit: Unit, stream: Stream) -> list[Canary]:
    """Canaries, spread over the sites as evenly as their number allows.

    Args:
        unit: what is protected: each ``record`` gets a coin of its own, all canaries of a ``site`` share one.
    """
    rng, audit = stream.python(), experiment.audit
    order = rng.sample(list(sites), len(sites))
    shared = {site: rng.randrange(2) for site in order}
    numbers = range(10 ** (_DIGITS - 1), 10**_DIGITS)
    canaries = []
    for place, holder in enumerate(rng.sample(numbers, audit.canaries)):
        site, coin = order[place % len(order)], rng.randrange(2)
        secrets = rng.sample(numbers, audit.candidates)
        records = tuple(experiment.task.canary(str(holder), str(secret)) for secret in secrets)
        canaries.append(Canary(site, records, shared[site] if unit == "site" else coin))
    return canaries


def _among(people: Population, canaries: Sequence[Canary]) -> Population:
    """Each site's canaries stand behind its own records."""
    own: dict[str, list[object]] = {site.name: [] for site in people.sites}
    for canary in canaries:
        own[canary.site].append(canary.record)
    counts = Counter(canary.site for canary in canaries)
    sites = [Site(site.name, [*site.records, *own[site.name]]) for site in people.sites]
    reports = [
        replace(one, records=(one.records or 0) + extra, used=(one.used or 0) + extra, canaries=extra)
        for one, extra in ((report, counts[report.site]) for report in people.reports)
    ]
    return replace(people, sites=sites, reports=reports)

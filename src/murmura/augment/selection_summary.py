"""A choice of public records, as the run tells of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import islice, zip_longest
from typing import TYPE_CHECKING

import numpy as np

from murmura.augment.config import AugmentConfig
from murmura.augment.strategies import Chosen, FromPool, Rows, weigh
from murmura.retrieval.coverage import coverage
from murmura.retrieval.map import histogram, plane
from murmura.runs.augment import Example, Given, MapPoint, PublicSelection, Similarity

if TYPE_CHECKING:
    from murmura.retrieval.pool import Pool
    from murmura.streams import Stream

_EXAMPLES, _LONGEST = 20, 400  # records shown, characters of each
_POINTS = 600  # of the domain, and of what was fetched, in the plane
_BLOCK = 32_768  # rows of a domain in memory at once


def given(chosen: Chosen, pool: Pool, config: AugmentConfig) -> Given:
    """What one site was given."""
    scores = chosen.scores if chosen.scores is not None and len(chosen.scores) else None
    return Given(
        rows=len(chosen.rows),
        missing=0 if config.bytes is not None else config.records - len(chosen.rows),
        bytes=sum(weigh(pool.records(chosen.rows))),
        by_domain=dict(Counter(_domains(pool, chosen.rows)).most_common()),
        similarity=None if scores is None else Similarity(*(float(f(scores)) for f in (np.mean, np.min, np.max))),
    )


def told(
    strategy: FromPool,
    pool: Pool,
    answered: Mapping[str, Chosen],
    sites: Mapping[str, Given],
    round: int,
    stream: Stream,
) -> PublicSelection:
    """The whole choice.

    Args:
        answered: what was chosen for each site.
        sites: what each was given that has taken its records.
        stream: draws what is shown of the domain and of what was fetched.
    """
    config = strategy.config
    chosen = {site: answered[site] for site in sites}
    centres, alone = centres_of(answered.values(), config)
    rows = np.unique(np.concatenate([np.zeros(0, np.int64), *(one.rows for one in chosen.values())]))
    scored = [one for one in chosen.values() if one.scores is not None]
    domains = [name for one in scored for name in _domains(pool, one.rows)]
    return PublicSelection(
        round=round,
        strategy=strategy.title + (", projected" if config.site_encoder else ""),
        sites=sites,
        records=None if config.bytes is not None else config.records,
        clusters=config.clusters if config.by_centres else None,
        scored_by=strategy.scored_by,
        private=strategy.private,
        domain=config.domain,
        coverage=None if config.domain is None else _coverage(pool, config.domain, rows, strategy.device),
        examples=_examples(strategy, pool, chosen),
        points=() if config.domain is None else _points(pool, config.domain, rows, stream),
        histogram=histogram(np.concatenate([one.scores for one in scored]), domains) if scored else None,
        guarantee=strategy.guarantee,
        without_private=pool.manifest.without_private,
        centres=centres,
        alone=alone,
    )


def centres_of(answered: Iterable[Chosen], config: AugmentConfig) -> tuple[int | None, int | None]:
    """How many centres sites have sent, and how many of them are of one record; see ``PublicSelection``."""
    sizes = [one.sizes for one in answered if one.sizes is not None]
    if not sizes:
        return None, None
    alone = int(sum((own == 1).sum() for own in sizes)) if config.noise_multiplier is None else None
    return sum(map(len, sizes)), alone


def _domains(pool: Pool, rows: Rows) -> list[str]:
    return [pool.domains[index] for index in pool.domain[rows]]


def _coverage(pool: Pool, domain: str, fetched: Rows, device: str | None) -> float:
    """Of the domain's rows by those of it that were fetched."""
    rows = pool.rows_of(domain)
    covering = pool.vectors[np.intersect1d(fetched, rows)]
    blocks = [rows[first : first + _BLOCK] for first in range(0, len(rows), _BLOCK)]
    shares = (len(block) * coverage(pool.vectors[block], covering, device=device) for block in blocks)
    return sum(shares) / max(len(rows), 1)


def _examples(strategy: FromPool, pool: Pool, chosen: Mapping[str, Chosen]) -> tuple[Example, ...]:
    """The first record of each site, then the second of each, and so on."""
    places = zip_longest(*([(site, place) for place in range(len(one.rows))] for site, one in chosen.items()))
    shown = list(islice((pair for turn in places for pair in turn if pair is not None), _EXAMPLES))
    found = []
    for site, place in shown:
        one = chosen[site]
        [record], [domain] = pool.records(one.rows[[place]]), _domains(pool, one.rows[[place]])
        score = None if one.scores is None else float(one.scores[place])
        text = record.question if len(record.question) <= _LONGEST else record.question[: _LONGEST - 1] + "…"
        found.append(Example(site, domain, score, text, strategy.why(one, place)))
    return tuple(found)


def _points(pool: Pool, domain: str, fetched: Rows, stream: Stream) -> tuple[MapPoint, ...]:
    """Some of the domain and some of what was fetched, in one plane."""
    shown = [
        (stream / kind).numpy().choice(rows, min(_POINTS, len(rows)), replace=False)
        for kind, rows in (("pool", pool.rows_of(domain)), ("fetched", fetched))
    ]
    rows = np.concatenate(shown)
    places = plane(pool.vectors[rows], (stream / "plane").integer() % 2**32)
    kinds = ["pool"] * len(shown[0]) + ["fetched"] * len(shown[1])
    return tuple(
        MapPoint(float(x), float(y), kind, name)  # type: ignore[arg-type]
        for (x, y), kind, name in zip(places, kinds, _domains(pool, rows), strict=True)
    )

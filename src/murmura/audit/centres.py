"""What the centres of a site's clusters give away: how often the record nearest to one is a record of the site itself.

The attacker is a curious server that has kept the centres. It guesses, of all texts that it can think of, the one whose
vector is nearest to a centre by cosine. Here these are the records of the public pool and those of all sites: a server
does not have the latter, but nothing keeps it from trying texts like them, or from inverting the vector
(Morris et al. 2023, arXiv 2310.06816). So what is found is a bound for an attacker who can think of every record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from murmura.augment.config import AugmentConfig
from murmura.errors import MurmuraError
from murmura.measure.figure import interval
from murmura.retrieval.cache import Cached
from murmura.retrieval.centres import Centres, cluster
from murmura.retrieval.encoder import Encoder
from murmura.retrieval.pool import Pool
from murmura.retrieval.search import Nearest, nearest
from murmura.runs.audit import Centred, CentreShare

if TYPE_CHECKING:
    from murmura.audit.subject import Subject

Vectors = npt.NDArray[np.float32]
Whose = Literal["own", "another site's", "public"]

_SIZES = ((1, 1), (2, 3), (4, 7), (8, None))
_MOST = 10_000  # public records that are embedded again, where sites have another encoder than the pool
_NOT_KEPT = "Centres of sites’ records were not attacked: the run kept none. With `[audit] keep = true` it would have."


@dataclass(frozen=True)
class Guess:
    """What is nearest to one centre.

    Attributes:
        site: which sent the centre, in ``round``; it is number ``place`` of those.
        size: of its cluster, by what the site says.
        whose: the nearest record is.
        record: its place among the site's own, where it is one of them.
        score: its cosine with the centre.
    """

    site: str
    round: int
    place: int
    size: int
    whose: Whose
    record: int | None
    score: float

    def line(self, kind: str) -> dict[str, Any]:
        """For the run's owner alone, JSON."""
        told = {} if self.record is None else {"record": self.record}
        return {
            "target": f"centres, {kind}",
            "site": self.site,
            "round": self.round,
            "centre": self.place,
            "size": self.size,
            "nearest": self.whose,
            "cosine": self.score,
            **told,
        }


def attacked(what: Subject, missing: list[str]) -> tuple[list[Centred], list[dict[str, Any]]]:
    """What the centres give away that the sites of a run have sent, and every guess as a line for the run's owner;
    nothing where a run asks for none.

    Where sites made them noisy, the same clusters without noise are attacked too.

    Args:
        what: the run.
        missing: what cannot be done is added here, in a sentence.

    Raises:
        CheckpointError: something that was kept is damaged.
    """
    config = what.experiment.augment
    if config is None or not config.by_centres:
        return [], []
    sent = {
        (one.number, site): Centres(points.numpy(), sizes.numpy())
        for one in what.rounds
        for site in one.centred
        for points, sizes in [one.centres(site)]
    }
    if not sent:
        missing.append(_NOT_KEPT)
        return [], []
    try:
        encoder = Encoder(config.site_encoder or config.encoder or "", device=str(what.runtime.device))
        pool = _public(config, encoder, what)
        planted = what.experiment.task.is_canary if what.experiment.audit.canaries else lambda record: False
        own = {
            site: encoder.embed([one.question for one in records if not planted(one)])  # canaries come last
            for site, records in what.records.items()
        }
    except MurmuraError as error:
        missing.append(f"Centres of sites’ records were not attacked: {error}")
        return [], []
    arms = {"sent": sent}
    if config.noise_multiplier:
        arms["exact"] = {key: _without_noise(config, what, own, *key) for key in sent}
    found = {kind: guesses(centres, own, pool, str(what.runtime.device)) for kind, centres in arms.items()}
    counts = {site: len(vectors) for site, vectors in own.items()}
    return (
        [shares(kind, some, counts, len(pool)) for kind, some in found.items() if some],
        [one.line(kind) for kind, some in found.items() for one in some],
    )


def _public(config: AugmentConfig, encoder: Encoder, what: Subject) -> Vectors:
    """The pool's vectors; of FedDCA*, those that the sites' encoder makes of some of its records."""
    assert config.pool is not None, "centres are asked for to choose from one"
    pool = Pool.open(config.pool)
    if config.site_encoder is None:
        pool.refuse_other(encoder)
        return pool.vectors
    rows = (what.stream / "audit" / "pool").numpy().choice(len(pool), min(_MOST, len(pool)), replace=False)
    return Cached(encoder).embed([record.question for record in pool.records(rows)])


def _without_noise(config: AugmentConfig, what: Subject, own: Mapping[str, Vectors], round: int, site: str) -> Centres:
    seed = (what.stream / "audit" / "centres" / round / site).integer()
    return cluster(own[site], config.clusters, seed, config.smallest_cluster)


def guesses(
    sent: Mapping[tuple[int, str], Centres], own: Mapping[str, Vectors], pool: Vectors, device: str | None = None
) -> list[Guess]:
    """What is nearest to each centre.

    Args:
        sent: centres by round and site.
        own: the vectors of each site's records [n, d], of length 1.
        pool: those of public records [n, d], likewise.
        device: where to compare them, as torch names it; None takes a GPU where there is one.
    """
    sites = list(own)
    starts = np.cumsum([0, *(len(own[site]) for site in sites)])
    every = np.concatenate([own[site] for site in sites])
    found, near = [], partial(nearest, device=device)
    for (round, site), centres in sent.items():
        lengths = np.linalg.norm(centres.points.astype(np.float64), axis=1, keepdims=True)
        points = np.divide(centres.points, lengths, out=np.zeros_like(centres.points), where=lengths > 0)
        place = sites.index(site)
        mine = [np.arange(starts[place], starts[place + 1])] * len(points)
        ranked = zip(
            near(points, own[site], 1), near(points, every, 1, without=mine), near(points, pool, 1), strict=True
        )
        for number, ((self_, others, public), length) in enumerate(zip(ranked, lengths[:, 0], strict=True)):
            whose, record, score = _closest(self_, others, public) if length else ("public", None, 0.0)
            found.append(Guess(site, round, number, int(centres.sizes[number]), whose, record, score))
    return found


def _closest(own: Nearest, others: Nearest, public: Nearest) -> tuple[Whose, int | None, float]:
    """Of equally near ones the site's own: whoever finds a copy of a record has found the record."""
    scores = [float(one.scores[0]) if len(one.scores) else -np.inf for one in (own, others, public)]
    best = int(np.argmax(scores))
    names: tuple[Whose, ...] = ("own", "another site's", "public")
    return names[best], int(own.rows[0]) if best == 0 else None, scores[best]


def shares(kind: str, found: Sequence[Guess], own: Mapping[str, int], pool: int) -> Centred:
    """How often the nearest record is the site's own, by size of the cluster, over all rounds in which sites sent
    centres; n, of its interval, is the number of centres of one round.

    Args:
        kind: a key of ``runs.audit.CENTRES``.
        found: at least one.
        own: how many records each site has.
        pool: how many public records there are.
    """
    records, rounds = sum(own.values()), _rounds(found)
    groups = [
        _share(least, most, some, rounds)
        for least, most in _SIZES
        if (some := [one for one in found if least <= one.size and (most is None or one.size <= most)])
    ]
    chance = sum(own[one.site] for one in found) / len(found) / (records + pool)
    return Centred(kind, pool, records, chance, (*groups, _share(0, None, found, rounds)))


def _rounds(found: Sequence[Guess]) -> dict[str, int]:
    """In how many rounds each site has sent centres."""
    seen = {(one.site, one.round) for one in found}
    return Counter(site for site, _ in seen)


def _share(least: int, most: int | None, found: Sequence[Guess], rounds: Mapping[str, int]) -> CentreShare:
    """Centres of one site's records in other rounds are no further evidence, so each is taken to be the same one over
    again, and they count as many as have that many times the weight (Kish 1965): as those of one round, where all sites
    have sent as often."""
    own, others = (sum(one.whose == whose for one in found) / len(found) for whose in ("own", "another site's"))
    count = max(1, len(found) ** 2 // sum(rounds[one.site] for one in found))
    return CentreShare(least, most, count, own, *interval(own, count), others)

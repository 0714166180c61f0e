"""What is in ``augment.json``: which public records each site was given, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Similarity:
    """Scores of the records that a site was given."""

    mean: float
    least: float
    most: float


@dataclass(frozen=True, slots=True)
class Given:
    """What one site was given, and what the server learnt of it for that.

    Attributes:
        rows: How many public records.
        missing: How many fewer than were asked for; 0 where a budget of bytes decides.
        bytes: Of their texts.
        by_domain: Records of each of the pool's domains.
        similarity: Their scores; None where the strategy has none.
    """

    rows: int
    missing: int
    bytes: int
    by_domain: Mapping[str, int]
    similarity: Similarity | None = None


@dataclass(frozen=True, slots=True)
class Example:
    """A public record that was given to a site: its instruction, and why it was chosen, in words."""

    site: str
    domain: str
    similarity: float | None
    text: str
    why: str


@dataclass(frozen=True, slots=True)
class MapPoint:
    """A public record in the plane (``retrieval.map``)."""

    x: float
    y: float
    kind: Literal["pool", "fetched"]
    domain: str


@dataclass(frozen=True, slots=True)
class ScoreHistogram:
    """How many of the records that were given score between two of the ``edges``, which are one more, by domain."""

    edges: tuple[float, ...]
    counts: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class CentresGuarantee:
    """The ε of noisy centres, over all selections so far. It covers the centres of a site, and nothing else of the run.

    Attributes:
        epsilon: For one record of the site that is protected least; None where it is refused.
        delta: That belongs to it.
        adjacency: Which sets of records it compares.
        plan: What it rests on, in words.
        refused: Why there is none.
    """

    epsilon: float | None
    delta: float
    adjacency: str
    plan: str
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class PublicSelection:
    """An entry of ``augment.json``: one choice of public records for all sites.

    Nothing in it tells more of private records than the server has learnt.

    Attributes:
        round: At whose beginning it was made.
        strategy: As reports name it.
        sites: What each was given; also those that had missed the choice and were given theirs later.
        records: How many were asked for, for each site; None where a budget of bytes decides.
        clusters: Into how many each site's records were divided; None where they were not.
        scored_by: What ``similarity`` is, such as ``cosine``; empty where there is none.
        private: What of private records the strategy reads, in words; empty for nothing.
        domain: The sites' domain in the pool, where it was named.
        coverage: Of the pool's records of that domain by those of it that were given in that round.
        examples: A few of the records that were given.
        points: The domain and what was given, in the plane; empty as soon as there is a later choice.
        histogram: Of the scores.
        guarantee: Of centres that sites made noisy.
        without_private: Whether private records were left out of the pool.
        centres: How many centres came, from all sites, also from those that then took no records, and twice from those
            that were asked twice; None where none were asked for.
        alone: How many of these are of a single record, as their sites said, whose vector they then are; None where
            sizes are noisy.
    """

    round: int
    strategy: str
    sites: Mapping[str, Given]
    records: int | None = None
    clusters: int | None = None
    scored_by: str = ""
    private: str = ""
    domain: str | None = None
    coverage: float | None = None
    examples: tuple[Example, ...] = ()
    points: tuple[MapPoint, ...] = ()
    histogram: ScoreHistogram | None = None
    guarantee: CentresGuarantee | None = None
    without_private: bool = False
    centres: int | None = None
    alone: int | None = None

    @property
    def rows(self) -> int:
        """Records that all sites were given; one that several were given counts each time."""
        return sum(one.rows for one in self.sites.values())

    @property
    def by_domain(self) -> dict[str, int]:
        """The same by domain, the most frequent first."""
        found: Counter[str] = Counter()
        for one in self.sites.values():
            found.update(one.by_domain)
        return dict(found.most_common())

    @property
    def mean_similarity(self) -> float | None:
        """Mean score of all of them; None where there is none."""
        known = [(one.similarity.mean, one.rows) for one in self.sites.values() if one.similarity and one.rows]
        return sum(mean * rows for mean, rows in known) / sum(rows for _, rows in known) if known else None

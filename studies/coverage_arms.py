"""What the study of coverage compares: who has which records, and what each strategy fetches for them.

Everything here works on rows of one pool, in which the records of all domains lie, private ones too. What is private
is drawn anew for each seed and never fetched.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from murmura.data.partition import partition
from murmura.data.selection import kmeans
from murmura.retrieval.centres import Centres, cluster
from murmura.retrieval.coverage import coverage
from murmura.retrieval.projector import Projector, ProjectorTraining, train
from murmura.retrieval.search import in_turn, nearest
from murmura.retrieval.selection import covering, facility_location, greedy
from murmura.streams import Stream

Rows = npt.NDArray[np.int64]
Vectors = npt.NDArray[np.float32]
Influence = Callable[[Rows, Sequence[Rows]], Vectors]
"""Of public rows on each of some sites' own, float32 [rows, sites]."""

MIXTURES = ("iid", "non-iid")  # how records of all domains are dealt out
LABELS = 100  # k-means clusters that stand in for labels, as in the paper
PROJECTED = 10_000  # public texts that a projector is trained on, as in the paper
GRADIENTS = 2  # of each site's records that LESS compares with
AUTHORS = ProjectorTraining(epochs=3, lr=1e-4, hidden=128, heldout=0)
"""A projector as the authors' code trains it, but for the loss."""


@dataclass(frozen=True, eq=False)
class World:
    """All records, by the encoder at the server and by the one at the sites of FedDCA*.

    Args:
        vectors: float32 [n, d].
        small: float32 [n, d'].
        domain: Index of each record's domain, [n].
        domains: Their names.
        influence: What LESS goes by.
    """

    vectors: Vectors
    small: Vectors
    domain: npt.NDArray[np.integer[Any]]
    domains: tuple[str, ...]
    influence: Influence | None = None

    def rows_of(self, domain: str) -> Rows:
        """The rows of a domain."""
        return np.flatnonzero(self.domain == self.domains.index(domain))


@dataclass(frozen=True)
class Setting:
    """One cell of the study, but for its seed and strategy.

    Args:
        private: The domain that the sites' records are of; ``iid`` and ``non-iid`` for a mixture of all domains.
        fetched: N^p, records for each site.
        clusters: ξ.
        alpha: What is at least this like a site's centre is not fetched; None fetches it too.
        dirichlet: Concentration of the mix over pseudo-labels; None deals records out in turn.
        sites: N.
        records: Private ones of each site.
        candidates: So many records, drawn at random and the same for all seeds, are all that is public; None leaves
            out none.
        own: So many of these candidates are of the private domain; None leaves that to chance.
    """

    private: str
    fetched: int = 200
    clusters: int = 10
    alpha: float | None = 0.7
    dirichlet: float | None = None
    sites: int = 10
    records: int = 50
    candidates: int | None = None
    own: int | None = None

    @property
    def options(self) -> dict[str, Any]:
        """What makes it other than the usual setting of its domain."""
        usual = Setting(self.private)
        return {name: value for name, value in vars(self).items() if value != getattr(usual, name)}


@dataclass(eq=False)
class Case:
    """Who has which records, for one setting and seed."""

    world: World
    setting: Setting
    seed: int
    sites: list[Rows] = field(init=False)

    def __post_init__(self) -> None:
        self.sites = deal(self.world, self.setting, self.seed)
        self.private = np.sort(np.concatenate(self.sites))
        self.public = np.setdiff1d(candidates(self.world, self.setting), self.private)
        self.withheld = np.setdiff1d(np.arange(len(self.world.vectors)), self.public)

    def stream(self, name: str) -> Stream:
        """A stream of this case's seed."""
        return Stream(self.seed) / "coverage" / self.setting.private / name

    @cached_property
    def centres(self) -> list[Centres]:
        """What the sites send: k-means over their own records alone."""
        return self._clustered(self.world.vectors)

    @cached_property
    def small_centres(self) -> list[Centres]:
        """The same with the sites' encoder of FedDCA*."""
        return self._clustered(self.world.small)

    def _clustered(self, vectors: Vectors) -> list[Centres]:
        seed = self.stream("clusters").integer()
        return [cluster(vectors[rows], self.setting.clusters, seed) for rows in self.sites]

    @cached_property
    def covering(self) -> list[int | None]:
        """The centres for which the most different records would be fetched."""
        found = iter(self.fetch(np.concatenate([own.points for own in self.centres])))
        return covering([[next(found) for _ in range(len(own))] for own in self.centres], self.world.vectors)

    def fetch(self, queries: Vectors, *, apart: bool = False) -> list[Rows]:
        """For each query the public records nearest to it that are less like it than α; with ``apart`` none that a
        query before it has."""
        search, setting = in_turn if apart else nearest, self.setting
        without = [self.withheld] * len(queries)
        found = search(queries, self.world.vectors, setting.fetched, below=setting.alpha, without=without)
        return [one.rows for one in found]

    def covered(self, domain: str, fetched: list[Rows]) -> float:
        """How well the sites' own records and what they were given cover a domain: of all that they hold, what is of
        that domain."""
        rows = self.world.rows_of(domain)
        held = np.unique(np.concatenate([*self.sites, *fetched]))
        return coverage(self.world.vectors[rows], self.world.vectors[np.intersect1d(held, rows)])


def candidates(world: World, setting: Setting) -> Rows:
    """What is public, but for private records."""
    order = (Stream(0) / "coverage" / "candidates").numpy().permutation(len(world.vectors))
    if setting.candidates is None or setting.own is None:
        return order[: setting.candidates]
    own = np.isin(order, world.rows_of(setting.private))
    return np.concatenate([order[own][: setting.own], order[~own][: setting.candidates - setting.own]])


def deal(world: World, setting: Setting, seed: int) -> list[Rows]:
    """Each site's own records."""
    rng = (Stream(seed) / "coverage" / setting.private / "private").numpy()
    if setting.private == "non-iid":
        return _from_clusters(world, setting, rng)
    rows = np.arange(len(world.domain)) if setting.private == "iid" else world.rows_of(setting.private)
    rows = rng.permutation(rows)[: setting.sites * setting.records]
    if setting.dirichlet is None:
        return [rows[site :: setting.sites] for site in range(setting.sites)]
    own = labels(world, setting.private)[rows]
    shares = partition(own, len(rows), setting.sites, "dirichlet-equal", setting.dirichlet, rng)
    return [rows[share] for share in shares]


def _from_clusters(world: World, setting: Setting, rng: np.random.Generator) -> list[Rows]:
    """Each site's records from clusters of its own, of all records of all domains, as many of each as of another."""
    own, dealt = labels(world, None), []
    for clusters in np.array_split(rng.permutation(LABELS), setting.sites):
        each = math.ceil(setting.records / len(clusters))
        rows = [rng.permutation(np.flatnonzero(own == label))[:each] for label in clusters]
        dealt.append(np.sort(np.concatenate(rows)[: setting.records]))
    return dealt


@cache
def labels(world: World, domain: str | None) -> Rows:
    """Pseudo-labels of the records of a domain, or of all records, by k-means; −1 elsewhere. The same for all seeds."""
    rows = np.arange(len(world.domain)) if domain is None else world.rows_of(domain)
    found = np.full(len(world.domain), -1)
    found[rows] = kmeans(world.vectors[rows], LABELS, 0)
    return found


def local(case: Case) -> list[Rows]:
    """Nothing is fetched."""
    return [np.zeros(0, np.int64) for _ in case.sites]


def random(case: Case, rows: Rows | None = None) -> list[Rows]:
    """At random from all that is public."""
    rows = case.public if rows is None else rows
    most = min(case.setting.fetched, len(rows))
    streams = [case.stream("random") / site for site in range(len(case.sites))]
    return [stream.numpy().choice(rows, most, replace=False) for stream in streams]


def in_domain(case: Case) -> list[Rows]:
    """At random from what is public and of the right domain, which no strategy knows: what is gained by finding the
    domain, and not by which of its records are found."""
    return random(case, np.intersect1d(case.public, case.world.rows_of(case.setting.private)))


def direct(case: Case) -> list[Rows]:
    """Direct retrieval (Algorithm 2): the nearest to each of a site's centres, as many to each, none twice."""
    fetched = []
    for own in case.centres:
        share = math.ceil(case.setting.fetched / len(own))
        by_centre = in_turn(own.points, case.world.vectors, share, without=[case.withheld] * len(own))
        # The best of each centre first, so that what is too many is the last of some.
        ranked = [one.rows[rank] for rank in range(share) for one in by_centre if rank < len(one.rows)]
        fetched.append(np.array(ranked[: case.setting.fetched], dtype=np.int64))
    return fetched


def less(case: Case) -> list[Rows]:
    """LESS: what would lower the loss of one of a site's records most, by the influence of a training step."""
    assert case.world.influence is not None, "nothing to compare gradients by"
    scores = case.world.influence(case.public, [own[:GRADIENTS] for own in case.sites])
    order = np.argsort(-scores, axis=0, kind="stable")[: case.setting.fetched].T
    return [case.public[own[np.isfinite(scores[own, site])]] for site, own in enumerate(order)]


def _by(case: Case, picks: list[int | None], *, apart: bool = False) -> list[Rows]:
    return case.fetch(_chosen(case.centres, picks), apart=apart)


def _chosen(centres: list[Centres], picks: list[int | None]) -> Vectors:
    return np.stack([own.points[row] for own, row in zip(centres, picks, strict=True)])


def feddca(case: Case) -> list[Rows]:
    """FedDCA: greedy client-centre selection (Algorithm 1)."""
    return _by(case, greedy(case.centres))


def feddca_apart(case: Case) -> list[Rows]:
    """The same, and no record goes to two sites."""
    return _by(case, greedy(case.centres), apart=True)


def by_pseudocode(case: Case) -> list[Rows]:
    """FedDCA with the filter rule of the paper's pseudo-code, where with fewer sites than clusters that of its text is
    usual."""
    return _by(case, greedy(case.centres, filter_rule="pseudocode"))


def by_cosine(case: Case) -> list[Rows]:
    """FedDCA, with α on cosines in place of dot products with centres as they are."""
    chosen = _chosen(case.centres, greedy(case.centres))
    return case.fetch(chosen / np.linalg.norm(chosen, axis=1, keepdims=True))


def largest(case: Case) -> list[Rows]:
    """Each site's largest cluster, whatever the others choose."""
    return _by(case, [int(own.sizes.argmax()) for own in case.centres])


def facility(case: Case) -> list[Rows]:
    """Size-weighted facility location among the centres in place of the greedy rule."""
    return _by(case, facility_location(case.centres))


def coverage_greedy(case: Case) -> list[Rows]:
    """Facility location over what would be fetched."""
    return _by(case, case.covering)


def coverage_apart(case: Case) -> list[Rows]:
    """The same, and no record goes to two sites."""
    return _by(case, case.covering, apart=True)


def star(case: Case, training: ProjectorTraining | None = None) -> list[Rows]:
    """FedDCA*: clustered and selected in the small encoder's space, and projected into the large one's."""
    chosen = _chosen(case.small_centres, greedy(case.small_centres))
    return case.fetch(projector(case, training).project(chosen))


def star_by_authors(case: Case) -> list[Rows]:
    """The same, with a projector that is as large and trained for as long as the authors'."""
    return star(case, AUTHORS)


def star_exact(case: Case) -> list[Rows]:
    """FedDCA* with a projector that makes no mistake: the centres, by the large encoder, of the clusters that are
    selected in the small one's space. No server could do that."""
    clusters, seed = case.setting.clusters, case.stream("clusters").integer()
    queries = []
    for rows, pick in zip(case.sites, greedy(case.small_centres), strict=True):
        own = kmeans(case.world.small[rows], min(clusters, len(rows)), seed)
        queries.append(case.world.vectors[rows[own == np.unique(own)[pick]]].mean(axis=0))
    return case.fetch(np.stack(queries))


def projector(case: Case, training: ProjectorTraining | None = None) -> Projector:
    """Trained on public texts alone; the same for all settings with the same public texts."""
    usual = Setting(case.setting.private)
    setting = replace(case.setting, fetched=usual.fetched, clusters=usual.clusters, alpha=usual.alpha)
    return _projector(case.world, setting, case.seed, training)


@cache
def _projector(world: World, setting: Setting, seed: int, training: ProjectorTraining | None) -> Projector:
    case = Case(world, setting, seed)
    rows = np.sort((case.stream("projected").numpy()).permutation(case.public)[:PROJECTED])
    return train(world.small[rows], world.vectors[rows], case.stream("projector").integer(), training)


Arm = Callable[[Case], list[Rows]]
ARMS: Mapping[str, Arm] = {
    "local": local,
    "random": random,
    "direct": direct,
    "FedDCA*": star,
    "FedDCA": feddca,
    "coverage": coverage_greedy,
    "facility location among centres": facility,
    "FedDCA, rule of the pseudo-code": by_pseudocode,
    "FedDCA, α on cosines": by_cosine,
    "FedDCA*, authors' projector": star_by_authors,
    "FedDCA*, perfect projector": star_exact,
    "largest cluster": largest,
    "FedDCA, no record twice": feddca_apart,
    "coverage, no record twice": coverage_apart,
    "random in the domain": in_domain,
    "LESS": less,
}

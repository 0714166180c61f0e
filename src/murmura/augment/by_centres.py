"""FedDCA, and what it is compared with: records that are near to centres of the sites' instructions.

Each site clusters its embedded instructions and sends the centres (``verbs.Augmenting.centres``); the server, which
holds the pool, does the rest.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt
import torch

from murmura.augment import noise
from murmura.augment.config import ENCODER, SITE_ENCODER
from murmura.augment.strategies import Chosen, FromPool, Rows, Selections
from murmura.federation.forecast import Forecast, Trial, Work, seconds
from murmura.federation.wire.sums import misfit
from murmura.retrieval.approximate import Index
from murmura.retrieval.cache import Cached
from murmura.retrieval.centres import LONGEST, Centres
from murmura.retrieval.projector import Projector, ProjectorTraining, train
from murmura.retrieval.search import Nearest, in_turn, nearest
from murmura.retrieval.selection import covering, facility_location, greedy
from murmura.units import FLOAT32

if TYPE_CHECKING:
    from murmura.federation.server.fleet import Fleet
    from murmura.federation.server.rounds import Server
    from murmura.federation.wire.messages import Payload, Reply
    from murmura.retrieval.encoder import Encoder
    from murmura.retrieval.pool import Pool

Vectors = npt.NDArray[np.float32]

_INT64 = 8  # bytes
_TRIED = 16  # texts


class ByCentres(FromPool):
    """What these strategies share: sites are asked for centres, and what is near to some of them is fetched.

    With a ``site_encoder`` (FedDCA*) centres are projected into the pool's space.

    Attributes:
        filters: whether rows that are as similar as ``alpha`` are left out.
    """

    filters: ClassVar[bool] = True
    asks: ClassVar[tuple[str, ...]] = ("centres",)
    betrays: ClassVar[str] = "the centre of a few instructions is nearly an instruction"

    @property
    def private(self) -> str:  # type: ignore[override]
        what = "the centres of clusters of each site's embedded instructions, and how many records each cluster has"
        return what if self.config.noise_multiplier is None else f"{what}, behind Gaussian noise"

    @property
    def scored_by(self) -> str:  # type: ignore[override]
        return "cosine" if self.config.similarity == "cosine" else "dot product"

    def forecast(self, run: Selections, pool: Pool | None) -> Forecast:
        assert pool is not None
        found, c = super().forecast(run, pool), self.config
        adapters = (run.times - 1) * run.sites * run.adapter if c.focus == "hardest" else 0
        each = c.clusters * (FLOAT32 * pool.dimension + _INT64)  # how wide another encoder is, is not known yet
        up = math.nan if c.site_encoder else run.times * run.sites * each
        return replace(found, down=found.down + adapters, up=up)

    def work(self, run: Selections, pool: Pool | None) -> Iterator[Work]:
        """The sites' texts, and with FedDCA* what the server trains its projector on."""
        assert pool is not None
        own, server = run.times * (run.own or 0), self.config.site_encoder is not None
        yield Work(
            "texts to embed", "choosing", own + server * min(self.config.projector_records, len(pool)), self._text
        )

    def _text(self, trial: Trial) -> float:
        """To embed one. The encoder is loaded before."""
        encoder = trial.site.resources.encoder(SITE_ENCODER if self.config.site_encoder else ENCODER)
        some = [record.question for record in trial.heldout[:_TRIED]]
        encoder.embed(some[:1])
        return seconds(lambda: encoder.embed(some)) / len(some)

    def choose(self, server: Server, fleet: Fleet, sites: Sequence[str], pool: Pool, round: int) -> dict[str, Chosen]:
        told = self._told(server, fleet, sites, pool, round)
        answered = [site for site in sites if site in told]
        sent = [told[site] for site in answered]
        placed = self._placed(server, sent, pool)
        picked = self.pick(server, pool, sent, placed, round)
        queries = [self._queries(own, rows) for own, rows in zip(placed, picked, strict=True)]
        given = {}
        fetched = self.fetch(pool, queries, sent)
        if self._index is not None:
            server.tell(f"public records were found by {self._index.about.in_words}")
        for site, own, rows, found in zip(answered, sent, picked, fetched, strict=True):
            centres = np.repeat(np.array(rows, dtype=np.int64), [len(one.rows) for one in found])
            places = np.concatenate([np.zeros(0, np.int64), *(one.rows for one in found)])
            scores = np.concatenate([np.zeros(0, np.float32), *(one.scores for one in found)])
            given[site] = Chosen(places, scores, centres, own.sizes)
        return given

    _trained: Projector | None = None
    _index: Index | None = None

    @abstractmethod
    def pick(
        self, server: Server, pool: Pool, sent: Sequence[Centres], placed: Sequence[Centres], round: int
    ) -> list[list[int]]:
        """For each site which of its centres are fetched for; none of a site that has sent none.

        Args:
            sent: centres as they came.
            placed: the same in the pool's space.
        """

    @abstractmethod
    def fetch(self, pool: Pool, queries: Sequence[Vectors], sent: Sequence[Centres]) -> list[list[Nearest]]:
        """For each site what is found for each of its queries [m, d]."""

    def why(self, chosen: Chosen, place: int) -> str:
        assert chosen.scores is not None and chosen.centres is not None and chosen.sizes is not None
        centre = int(chosen.centres[place])
        turn = int((chosen.centres[:place] == centre).sum()) + 1
        return (
            f"number {turn} of those nearest to the site's centre {centre + 1} of {len(chosen.sizes)}, by "
            f"{self.scored_by}"
        )

    def ranked(self, pool: Pool, queries: Vectors, without: Rows, *, apart: bool, shares: int = 1) -> list[Nearest]:
        """What is nearest to each query, as much as ``afford`` says.

        Args:
            without: rows that are not to be found.
            apart: no row is found for two queries; the first one has it.
            shares: queries of one site.
        """
        below = self.config.alpha or None if self.filters else None

        search = self._search(pool)

        def near(points: Vectors, without: Rows, by: Callable[..., list[Nearest]] = search) -> list[Nearest]:
            withheld = [without] * len(points)
            return self.afford(pool, lambda most: by(points, pool.vectors, most, below=below, without=withheld), shares)

        if not apart:
            return near(queries, without)
        if self.config.bytes is None:
            return near(queries, without, partial(in_turn, search=search))
        found: list[Nearest] = []
        for query in queries:  # one after the other, since in bytes nobody knows before how many rows each has
            taken = [without, *(one.rows for one in found)]
            found += near(query[None], np.concatenate(taken))
        return found

    def identity(self, pool: Pool) -> str:
        own = super().identity(pool)
        return own if self.config.search == "exact" else f"{own} {self._indexed(pool).about.file.sha256}"

    def _search(self, pool: Pool) -> Callable[..., list[Nearest]]:
        if self.config.search == "exact":
            return partial(nearest, device=self.device)
        return self._indexed(pool).nearest

    def _indexed(self, pool: Pool) -> Index:
        self._index = self._index or Index.open(pool)
        return self._index

    # ---- what sites say ----------------------------------------------------------------------------------------------

    def _told(self, server: Server, fleet: Fleet, sites: Sequence[str], pool: Pool, round: int) -> dict[str, Centres]:
        """What each site has answered; the run's events say who has fewer centres than were asked for."""
        again = self.config.every is not None and round > self.config.every  # not for who is late for the first choice
        hardest = again and self.config.focus == "hardest"
        each: dict[str, Payload] = server.current(sites) if hardest else {}
        width = self._encoder(server).dimension if self.config.site_encoder else pool.dimension
        asked: Payload = {"hardest": hardest}
        if self.config.noise_multiplier is not None:
            encoder = self._encoder(server) if self.config.site_encoder else None
            asked["starts"] = noise.starts(self.config, pool, encoder, server.stream / "augment" / "starts")
            noise.asked(server, self.config, sites)
            self.guarantee = noise.guaranteed(server, self.config)

        def heard(reply: Reply) -> None:
            if "privacy" in reply.fields:
                noise.reported(server).record(reply.site, reply["privacy"], answers=1)

        def unfit(reply: Reply) -> str | None:
            return _unfit(reply.fields, clusters=self.config.clusters, width=width)

        told = {
            reply.site: Centres(reply["centres"].numpy(), reply["sizes"].numpy())
            for reply in fleet.ask("centres", sites, each, refused=unfit, heard=heard, **asked)
        }
        if self.config.noise_multiplier is not None:
            self.guarantee = noise.guaranteed(server, self.config)
        few = {site: len(own) for site, own in told.items() if len(own) < self.config.clusters}
        if few:
            counts = ", ".join(f"{site} {count}" for site, count in few.items())
            noisy = "" if self.config.noise_multiplier is None else ", by noisy counts,"
            server.event(
                f"sites with fewer centres than the {self.config.clusters} asked for, since they have{noisy} few "
                f"different instructions or clusters of fewer than {self.config.smallest_cluster}: {counts}"
            )
        return told

    # ---- where centres lie in the pool's space -----------------------------------------------------------------------

    def _placed(self, server: Server, sent: Sequence[Centres], pool: Pool) -> list[Centres]:
        """Centres in the space of the pool's vectors."""
        if self.config.site_encoder is None:
            return list(sent)
        projector = self._projector(server, pool)
        return [Centres(projector.project(own.points), own.sizes) for own in sent]

    def _queries(self, own: Centres, rows: Sequence[int]) -> Vectors:
        points = own.points[list(rows)]
        if self.config.similarity == "dot":
            return points
        lengths = np.linalg.norm(points, axis=1, keepdims=True)
        return np.divide(points, lengths, out=np.zeros_like(points), where=lengths > 0)

    def _encoder(self, server: Server) -> Encoder:
        """The sites' encoder, where the pool's is another one."""
        return server.runtime.resources.encoder(SITE_ENCODER)

    def _projector(self, server: Server, pool: Pool) -> Projector:
        """Trained when it is first needed, on rows of the pool that follow from the run's seed alone."""
        if self._trained is None:
            c, stream = self.config, server.stream / "augment" / "projector"
            rows = stream.numpy().choice(len(pool), min(c.projector_records, len(pool)), replace=False)
            small = Cached(self._encoder(server)).embed([record.question for record in pool.records(rows)])
            training = ProjectorTraining(
                **{one.name: getattr(c, f"projector_{one.name}") for one in fields(ProjectorTraining)}
            )
            self._trained = train(small, pool.vectors[rows], stream.integer(), training)
            server.tell(self._trained.in_words)
        return self._trained


class _OneCentre(ByCentres):
    """Fetches for one centre of each site; what is as similar to it as ``alpha`` is left out."""

    def fetch(self, pool: Pool, queries: Sequence[Vectors], sent: Sequence[Centres]) -> list[list[Nearest]]:
        present = [own for own in queries if len(own)]
        if not present:
            return [[] for _ in queries]
        together = np.concatenate(present)
        found = iter(self.ranked(pool, together, self.withheld, apart=self.config.dedup == "all"))
        return [[next(found)] if len(own) else [] for own in queries]


class FedDCA(_OneCentre):
    """Greedy client-centre selection and retrieval (FedDCA, Wang et al. 2024, arXiv 2409.20135, Algorithm 1)."""

    title = "FedDCA"

    def pick(
        self, server: Server, pool: Pool, sent: Sequence[Centres], placed: Sequence[Centres], round: int
    ) -> list[list[int]]:
        centres = placed if self.config.project_first else sent
        order = list(range(len(centres)))
        if self.config.order == "random":
            (self.stream(server, round) / "order").python().shuffle(order)
        chosen = greedy(centres, filter_rule=self.config.filter_rule, order=order)
        return [[] if row is None else [row] for row in chosen]


class Coverage(_OneCentre):
    """What is near to the centres that together cover most, one of each site (``retrieval.selection``)."""

    title = "coverage"

    def pick(
        self, server: Server, pool: Pool, sent: Sequence[Centres], placed: Sequence[Centres], round: int
    ) -> list[list[int]]:
        if self.config.targets == "centres":
            chosen = facility_location(placed if self.config.project_first else sent)
        else:
            targets = (self.stream(server, round) / "targets").integer()
            chosen = covering(self._reached(pool, placed), pool.vectors, seed=targets, device=self.device)
        return [[] if row is None else [row] for row in chosen]

    def _reached(self, pool: Pool, placed: Sequence[Centres]) -> list[list[Rows]]:
        """For each site and each of its centres the rows that would be fetched for it."""
        queries = [query for own in placed for query in self._queries(own, range(len(own)))]
        found = iter(self.ranked(pool, np.stack(queries), self.withheld, apart=False) if queries else ())
        return [[next(found).rows for _ in range(len(own))] for own in placed]


class Direct(ByCentres):
    """Direct retrieval (FedDCA, Wang et al. 2024, arXiv 2409.20135, Algorithm 2): an equal share for each own centre.

    Where that leaves a remainder, the largest clusters have one more.
    """

    title = "direct"
    filters = False

    def pick(
        self, server: Server, pool: Pool, sent: Sequence[Centres], placed: Sequence[Centres], round: int
    ) -> list[list[int]]:
        return [list(range(len(own))) for own in placed]

    def fetch(self, pool: Pool, queries: Sequence[Vectors], sent: Sequence[Centres]) -> list[list[Nearest]]:
        without = self.withheld
        fetched: list[list[Nearest]] = []
        for own, centres in zip(queries, sent, strict=True):
            if not len(own):
                fetched.append([])
                continue
            found = self.ranked(pool, own, without, apart=self.config.dedup != "none", shares=len(own))
            fetched.append(self._cut(found, centres))
            if self.config.dedup == "all":
                without = np.union1d(without, [row for one in fetched[-1] for row in one.rows]).astype(np.int64)
        return fetched

    def _cut(self, found: list[Nearest], centres: Centres) -> list[Nearest]:
        """Equal shares are rounded up: what is more than a site may have goes, from the smallest clusters of those that
        have a whole share. Where little is left to find, some have less."""
        if self.config.bytes is not None:
            return found
        counts = np.array([len(one.rows) for one in found])
        surplus = max(0, counts.sum() - self.config.records)  # fewer than there are whole shares
        by_size = np.argsort(centres.sizes, kind="stable")
        for centre in by_size[counts[by_size] == counts.max()][:surplus]:
            found[centre] = Nearest(found[centre].rows[:-1], found[centre].scores[:-1])
        return found


def _unfit(fields: Payload, clusters: int, width: int) -> str | None:
    """Why what a site has sent is not the centres that it was asked for; None where it is.

    Args:
        clusters: how many there are at most.
        width: of the vectors of its encoder.
    """
    points = fields.get("centres")
    count = min(len(points), clusters) if isinstance(points, torch.Tensor) and points.ndim else 0
    like = {"centres": torch.empty(count, width), "sizes": torch.empty(count, dtype=torch.int64)}
    if why := misfit(fields, like):
        return f"{why}. Use the same release and the same encoder there"
    if bool((fields["sizes"] < 1).any()):
        return "'sizes' holds a cluster of nothing"
    too_long = bool((fields["centres"].norm(dim=1) > LONGEST).any())
    return "'centres' holds some where no mean of texts can be" if too_long else None

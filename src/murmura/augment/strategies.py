"""Which public records each site is given."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
import numpy.typing as npt

from murmura.augment.config import AugmentConfig
from murmura.federation.forecast import Forecast, Work
from murmura.retrieval.search import Nearest

if TYPE_CHECKING:
    from murmura.data.records import Instruction
    from murmura.federation.server.fleet import Fleet
    from murmura.federation.server.rounds import Server
    from murmura.retrieval.pool import Pool
    from murmura.runs.augment import CentresGuarantee
    from murmura.streams import Stream

Rows = npt.NDArray[np.int64]

_LOOKED_AT = 100  # rows of a pool, to know about how many bytes one has


@dataclass(frozen=True, eq=False, slots=True)
class Chosen:
    """What one site is given, and why.

    Args:
        rows: of the pool, in the order in which they were found, int64 [k].
        scores: of each, float32 [k]; None where the strategy has none.
        centres: the site's centre that each was fetched for, int64 [k]; None where none were asked for.
        sizes: how many records each of the site's clusters has, int64 [ξ']; None likewise.
    """

    rows: Rows
    scores: npt.NDArray[np.float32] | None = None
    centres: Rows | None = None
    sizes: Rows | None = None

    def of(self, rows: Rows) -> Chosen:
        """What of it is among some rows."""
        kept = np.isin(self.rows, rows)
        return replace(
            self,
            rows=self.rows[kept],
            scores=None if self.scores is None else self.scores[kept],
            centres=None if self.centres is None else self.centres[kept],
        )


def sent(record: Instruction) -> list[str]:
    """A public record as a field of an ask."""
    return [record.instruction, record.input, record.output]


def weigh(records: Sequence[Instruction]) -> list[int]:
    """How many bytes each record adds to an ask, which is JSON: its own, and a comma and a space."""
    return [len(json.dumps(sent(record))) + 2 for record in records]


def typical_weight(pool: Pool) -> float:
    """The mean of that over some records of a pool, from its beginning to its end."""
    rows = np.linspace(0, len(pool) - 1, min(_LOOKED_AT, len(pool))).astype(np.int64)
    return float(np.mean(weigh(pool.records(rows))))


@dataclass(frozen=True)
class Selections:
    """All times that a run has records chosen, or written at the sites, before it begins.

    Args:
        times: how often.
        sites: of the run.
        own: records of all of them; None where that is not known.
        adapter: bytes of one; 0 where the model is not known.
    """

    times: int
    sites: int
    own: int | None
    adapter: int


class Strategy(ABC):
    """One way to have sites train on other records besides their own.

    Args:
        config: the options.

    Attributes:
        title: what reports call it.
        asks: verbs that it asks of sites (``murmura.augment.verbs``).
        private: what it reads of private records, in words; empty for nothing.
        betrays: what the server learns of them by that, in words.
    """

    title: ClassVar[str]
    asks: ClassVar[tuple[str, ...]] = ()
    private: ClassVar[str] = ""
    betrays: ClassVar[str] = ""

    def __init__(self, config: AugmentConfig) -> None:
        self.config = config

    @property
    def warning(self) -> str:
        """What to know of it before a run; empty for nothing."""
        if not self.private:
            return ""
        return (
            f"To choose public records the server is sent {self.private}. Nothing protects that, and no ε covers it: "
            f"{self.betrays}."
        )

    @abstractmethod
    def forecast(self, run: Selections, pool: Pool | None) -> Forecast:
        """What a whole run has: records for each site, and bytes and tokens for all of them."""

    def work(self, run: Selections, pool: Pool | None) -> Iterable[Work]:
        """What is done for it in a whole run."""
        return ()


class FromPool(Strategy):
    """One way to choose public records.

    Args:
        config: the options.
        withheld: rows of the pool that nobody is given.
        device: where vectors are compared, as torch names it; None takes a GPU where there is one.

    Attributes:
        scored_by: what its scores are; empty where there are none.
        guarantee: of what it has read of private records so far; None where nothing protects that.
    """

    scored_by: str = ""
    guarantee: CentresGuarantee | None = None

    def __init__(self, config: AugmentConfig, withheld: Rows | None = None, device: str | None = None) -> None:
        super().__init__(config)
        self.device = device
        self.withheld = np.zeros(0, np.int64) if withheld is None else withheld

    def forecast(self, run: Selections, pool: Pool | None) -> Forecast:
        assert pool is not None
        each = typical_weight(pool)
        most = self.config.records if self.config.bytes is None else int(self.config.bytes / each)
        records = min(len(pool), most)
        return Forecast(records=records, down=run.sites * run.times * records * each)

    def without(self, rows: Rows) -> Self:
        """The same, which gives these rows to nobody either."""
        other = copy(self)
        other.withheld = np.union1d(self.withheld, rows)
        return other

    def identity(self, pool: Pool) -> str:
        """A digest of what it chooses from."""
        return hashlib.sha256(pool.manifest.model_dump_json(include={"files"}).encode()).hexdigest()

    @abstractmethod
    def choose(self, server: Server, fleet: Fleet, sites: Sequence[str], pool: Pool, round: int) -> dict[str, Chosen]:
        """What each of these sites is given in a round; a site that cannot be chosen for is left out.

        Raises:
            RunError: too few sites answer what they are asked, or one answers with what cannot be used.
        """

    @abstractmethod
    def why(self, chosen: Chosen, place: int) -> str:
        """Why the record in a place of ``chosen`` was, in words."""

    def stream(self, server: Server, round: int) -> Stream:
        """The randomness of a choice."""
        return server.stream / "augment" / round

    def afford(self, pool: Pool, rank: Callable[[int], Sequence[Nearest]], shares: int = 1) -> list[Nearest]:
        """Of each ranking of rows as many from its beginning as a site may be given, counted in records or bytes.

        Args:
            rank: gives rankings of at most so many rows.
            shares: rankings that have one site's rows between them.
        """
        if self.config.bytes is None:
            return list(rank(-(-self.config.records // shares)))
        budget = self.config.bytes // shares
        most = 1 + int(2 * budget / typical_weight(pool))
        while True:
            found = rank(most)
            fit = [int(np.searchsorted(np.cumsum(weigh(pool.records(one.rows))), budget, "right")) for one in found]
            if all(count < len(one.rows) or len(one.rows) < most for count, one in zip(fit, found, strict=True)):
                return [Nearest(one.rows[:count], one.scores[:count]) for count, one in zip(fit, found, strict=True)]
            most *= 2


class RandomRows(FromPool):
    """Rows of all domains, each as likely as any other: random sampling, a baseline of FedDCA (Wang et al. 2024)."""

    title = "random"

    def choose(self, server: Server, fleet: Fleet, sites: Sequence[str], pool: Pool, round: int) -> dict[str, Chosen]:
        free = np.ones(len(pool), dtype=bool)
        free[self.withheld] = False
        given = {}
        for site in sites:
            order = (self.stream(server, round) / "random" / site).numpy().permutation(np.flatnonzero(free))
            [found] = self.afford(pool, beginnings(order))
            given[site] = Chosen(found.rows)
            if self.config.dedup == "all":
                free[found.rows] = False
        return given

    def why(self, chosen: Chosen, place: int) -> str:
        return "drawn at random"


def beginnings(rows: Rows, scores: npt.NDArray[np.float32] | None = None) -> Callable[[int], list[Nearest]]:
    """A ranking, as ``afford`` takes it; without scores all are 0."""
    own = np.zeros(len(rows), np.float32) if scores is None else scores
    return lambda most: [Nearest(rows[:most], own[:most])]


def strategy(config: AugmentConfig) -> Strategy:
    """The strategy that a config names."""
    if config.pool is not None:
        return choosing(config)
    from murmura.augment.writing import SelfInstruct

    return SelfInstruct(config)


def choosing(config: AugmentConfig, withheld: Rows | None = None, device: str | None = None) -> FromPool:
    """The strategy that a config names, which chooses from a pool; arguments as of ``FromPool``."""
    from murmura.augment.by_centres import Coverage, Direct, FedDCA
    from murmura.augment.by_influence import LESS

    known: dict[str, type[FromPool]] = {"feddca": FedDCA, "coverage": Coverage, "direct": Direct, "random": RandomRows}
    known["less"] = LESS
    return known[config.strategy](config, withheld, device)

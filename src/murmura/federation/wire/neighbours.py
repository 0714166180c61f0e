"""Who shares masks and secrets with whom in a secure sum: all with all, or in large sums each site with its neighbours.

The graph of neighbours is that of Bell, Bonawitz, Gascón, Lepoint and Raykova 2020 ("Secure Single-Server Aggregation
with (Poly)Logarithmic Overhead"), Section 3: a Harary graph, in which sites stand on a ring in random order and each is
joined to the next k/2 on either side. How many neighbours are enough, and how many of them it takes to join a secret,
follows from exact tails of the hypergeometric distribution; in whole numbers, since all sites must find the same.

Nobody chooses the order: it follows from what all sites have signed, by a function that is slow on purpose, so that
trying many costs much.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import sha256

from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from murmura.aggregation.config import SecureSumConfig
from murmura.federation.wire.masks import Roll

MANY = 100
"""Sites from which on each has neighbours, unless the experiment says otherwise."""
SECURITY = 70
"""−log2 of the probability that a graph protects less than it should: 40, and 30 for as many orders as are tried."""
CORRECTNESS = 20
"""−log2 of the probability that a sum fails though no more sites than foreseen drop out."""
_SLOW = 2**15  # scrypt's cost: 32 MiB and about a tenth of a second for each order that is tried


@dataclass(frozen=True)
class Degree:
    """Of a graph: how many neighbours a site has, an even number, and how many shares join a secret of it."""

    neighbours: int
    threshold: int


@dataclass(frozen=True)
class Graph:
    """Who holds shares of whose secrets: a site's *holders* are its neighbours and itself.

    Args:
        order: places of the sites as they stand on the ring.
        half: how many neighbours a site has on either side; None: all are neighbours.
        threshold: so many shares join a secret, and one less says nothing of it.
    """

    order: tuple[int, ...]
    half: int | None
    threshold: int

    @property
    def is_full(self) -> bool:
        """Whether all sites are neighbours."""
        return self.half is None

    @property
    def rows(self) -> int:
        """How many holders each site has."""
        return len(self.order) if self.half is None else 2 * self.half + 1

    @cached_property
    def _positions(self) -> dict[int, int]:
        return {place: position for position, place in enumerate(self.order)}

    def holders(self, place: int) -> tuple[int, ...]:
        """Places of those who hold shares of a site's secrets, itself among them: these are also the sites whose
        secrets it has shares of. In the order in which messages have a row for each."""
        if self.half is None:
            return self.order
        at, count = self._positions[place], len(self.order)
        return tuple(self.order[(at + step) % count] for step in range(-self.half, self.half + 1))

    def row(self, place: int, holder: int) -> int:
        """Which of a site's holders one is, from 0."""
        if self.half is None:
            return holder
        return (self._positions[holder] - self._positions[place] + self.half) % len(self.order)


@lru_cache(maxsize=4)  # simulated sites all have the same one
def graph(roll: Roll, options: SecureSumConfig) -> Graph:
    """The neighbours of all who take part in a sum, as each of them finds it by itself."""
    asked, count = int(roll.sum[3]), len(roll.names)
    found = degree(count, asked, options)
    if found is None:
        return Graph(tuple(range(count)), None, options.least(asked))
    key = Scrypt(b"murmura neighbours", 32, n=_SLOW, r=8, p=1).derive(roll.digest)
    drawn = sorted(range(count), key=lambda place: sha256(key + place.to_bytes(8)).digest())
    return Graph(tuple(drawn), found.neighbours // 2, found.threshold)


def degree(count: int, asked: int, options: SecureSumConfig) -> Degree | None:
    """How many neighbours each of ``count`` sites has; None where all are neighbours, since so few sites were asked, or
    fewer neighbours would not be enough.

    Args:
        asked: of how many sites the sum was asked: so many may help a server that lies as can be without two lists of
            who is in the sum finding enough signatures each.
    """
    if options.neighbours == "all" or (options.neighbours == "auto" and asked < MANY):
        return None
    corrupted = 2 * options.least(asked) - asked - 1
    dropouts = math.floor(options.dropouts * count + 1e-9)
    least = 2 if options.neighbours == "auto" else options.neighbours
    return fewest(count, corrupted, dropouts, SECURITY, CORRECTNESS, least)


@lru_cache(maxsize=64)
def fewest(count: int, corrupted: int, dropouts: int, security: int, correctness: int, least: int = 2) -> Degree | None:
    """The fewest neighbours with which a sum is secure and succeeds, and the lowest threshold; None if all would have
    to be.

    With h = k/2 neighbours on either side, and t shares to join a secret:

    * a server that lies sees the graph before it says who has dropped out. If it left honest sites out of what others
      are summed over, a site at the edge of these had no honest one among the h on its one side, and so at most
      h + 1 + c shares of its seed could be had, where c of these h help the server. So it cannot join that seed, with
      t = h + c + 2, unless more than c of the h on one side of any site help it (n · P[X > c] ≤ 2^−security, X of
      h out of n − 1 with so many corrupted), *whichever* sites drop out;
    * at least t of each site's k neighbours are left (n · P[X > k − t] ≤ 2^−correctness).

    Args:
        count: n, of the sites.
        corrupted: most that help the server; known before the order is.
        dropouts: most that drop out after they have shared their secrets.
        security, correctness: −log2 of how probable it may be that the one or the other fails.
        least: neighbours that there are to be at least.
    """
    for k in range(max(2, least + least % 2), count - 1, 2):
        t = k // 2 + _most(count - 1, corrupted, k // 2, count << security) + 2
        if t <= k and _most(count - 1, dropouts, k, count << correctness) <= k - t:
            return Degree(k, t)
    return None


def _most(population: int, marked: int, drawn: int, rarity: int) -> int:
    """The least x with P[X > x] · rarity ≤ 1, where X of the ``drawn`` out of a population are among the ``marked``
    (hypergeometric), in whole numbers."""
    marked = min(marked, population)
    every, tail, x = math.comb(population, drawn), 0, min(marked, drawn)
    ways = math.comb(marked, x) * math.comb(population - marked, drawn - x)
    while x >= 0:
        tail += ways
        if tail * rarity > every:
            return x
        # That of the next x by its ratio to this one, which leaves no remainder: a binomial takes far longer.
        ways = ways * x * (population - marked - drawn + x) // ((marked - x + 1) * (drawn - x + 1))
        x -= 1
    return 0

"""Exact search among more vectors than fit into memory."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import torch

BLOCK = 32_768
_UNIT = 2.0**-24  # rounding unit of float32
_IN_TURN = 8  # queries that are searched for together though they take turns
_AT_ONCE = 256  # candidates scored in float64 together: they stay in the processor's cache

Rows = npt.NDArray[np.int64]
Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False, slots=True)
class Nearest:
    """What is nearest to a query, best first.

    Attributes:
        rows: int64 [k].
        scores: float32 [k], the dot product of each with the query, descending; of equal ones the lower row is first.
    """

    rows: Rows
    scores: npt.NDArray[np.float32]


def nearest(
    queries: Vectors,
    vectors: Vectors,
    most: int,
    *,
    below: float | None = None,
    without: Sequence[Rows | None] | None = None,
    block: int = BLOCK,
    device: str | None = None,
) -> list[Nearest]:
    """For each query the rows of largest dot product, the same ones that sorting all rows would give.

    A score is the dot product in float64, rounded to float32. So it does not depend on how rows are blocked, on
    threads or on the device, equal vectors have equal scores, and what is found is the same everywhere. Products of
    whole blocks are in float32; those rows are scored again that these products, with the error they may have, do not
    rule out.

    Args:
        queries: float32 [m, d], of any length.
        vectors: float32 [n, d], each of length 1; may be memory-mapped.
        most: Rows for each query; fewer come back where fewer are eligible.
        below: Only rows whose score is less than this (FedDCA's α: what is closer is nearly the site's own record).
        without: For each query, rows that it is not to get.
        block: Rows in one matrix product with all queries. Memory is about that of a block's vectors, of a score for
            each of its rows and queries, and of what was found.
        device: Where to multiply, as torch names it; None takes a GPU where there is one.
    """
    kept = [
        _Best(query, most, below, rows) for query, rows in zip(queries, without or [None] * len(queries), strict=True)
    ]
    with _threads(len(queries)) as each:
        for first, scores in _products(queries, vectors, block, device) if most > 0 else ():
            each(_Best.offer, kept, repeat(first), scores)
        return each(_Best.found, kept, repeat(vectors))


def in_turn(
    queries: Vectors,
    vectors: Vectors,
    most: int,
    *,
    below: float | None = None,
    without: Sequence[Rows | None] | None = None,
    search: Callable[..., list[Nearest]] = nearest,
) -> list[Nearest]:
    """As ``nearest``, query after query: what one has taken no later one takes.

    Args:
        search: ``nearest``, or another one with its arguments. The others are as there.
    """
    taken = np.zeros(len(vectors), dtype=bool)
    left = []
    for first in range(0, len(queries), _IN_TURN):
        some, gone = queries[first : first + _IN_TURN], np.flatnonzero(taken)
        theirs = [None] * len(some) if without is None else without[first : first + _IN_TURN]
        excluded = [gone if rows is None else np.union1d(gone, rows) for rows in theirs]
        # The ones before a query, of these, take at most so many of those that it would take.
        for one in search(some, vectors, most * len(some), below=below, without=excluded):
            free = np.flatnonzero(~taken[one.rows])[:most]
            taken[one.rows[free]] = True
            left.append(Nearest(one.rows[free], one.scores[free]))
    return left


class _Best:
    """The best rows for one query so far, and all that may turn out to be as good.

    A product in float32 is off by at most ``slack``, in whatever order it adds: d·u/(1 − d·u) times the lengths of both
    vectors, u = 2⁻²⁴ (Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 3.1).
    """

    def __init__(self, query: Vectors, most: int, below: float | None, without: Rows | None) -> None:
        self._query, self._most, self._below = query.astype(np.float64), most, below
        self._without = np.sort(without) if without is not None else np.empty(0, np.int64)
        rounding = (len(query) + 8) * _UNIT  # the score's own rounding included, and that of what it is compared with
        self._slack = 1.01 * rounding / (1 - rounding) * float(np.linalg.norm(self._query))
        self._rows, self._scores = np.empty(0, np.int64), np.empty(0, np.float32)
        self._floor = -np.inf  # what scores less cannot be among the best

    def offer(self, first: int, scores: npt.NDArray[np.float32]) -> None:
        """The scores, in float32, of the rows from ``first`` on."""
        start, end = np.searchsorted(self._without, (first, first + len(scores)))
        scores[self._without[start:end] - first] = np.nan  # compares as neither more nor less
        possible = scores >= self._floor
        if self._below is not None:
            possible &= scores < self._below + self._slack
        new = np.flatnonzero(possible)
        self._rows = np.concatenate([self._rows, new + first])
        self._scores = np.concatenate([self._scores, scores[new]])
        self._raise_floor()

    def _raise_floor(self) -> None:
        certain = self._scores if self._below is None else self._scores[self._scores < self._below - self._slack]
        if len(certain) >= self._most:
            place = len(certain) - self._most
            self._floor = float(np.partition(certain, place)[place]) - 2 * self._slack
            possible = self._scores >= self._floor
            self._rows, self._scores = self._rows[possible], self._scores[possible]

    def found(self, vectors: Vectors) -> Nearest:
        return best_of(self._rows, self._query, vectors, self._most, self._below)


def best_of(
    rows: Rows, query: npt.NDArray[np.floating], vectors: Vectors, most: int, below: float | None = None
) -> Nearest:
    """Of some rows, ascending, the best ones for a query [d], scored as ``nearest`` says."""
    exact, scores = query.astype(np.float64), np.empty(len(rows), np.float32)
    for first in range(0, len(rows), _AT_ONCE):
        some = np.take(vectors, rows[first : first + _AT_ONCE], axis=0)
        scores[first : first + _AT_ONCE] = some.astype(np.float64) @ exact
    if below is not None:
        rows, scores = rows[scores < below], scores[scores < below]
    order = np.argsort(-scores, kind="stable")[:most]  # stable: rows are ascending
    return Nearest(rows[order], scores[order])


@contextmanager
def _threads(most: int) -> Iterator[Callable[..., list[Any]]]:
    """A ``map`` that uses as many threads as torch does, at most so many."""
    import torch

    with ThreadPoolExecutor(max(1, min(most, torch.get_num_threads()))) as pool:
        yield lambda function, *of: list(pool.map(function, *of))


def tensor(array: Vectors, device: str | None) -> torch.Tensor:
    """An array, copied only where the device is another than the processor; None takes a GPU where there is one."""
    import torch

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)  # nobody writes to it
        return torch.from_numpy(array).to(device or ("cuda" if torch.cuda.is_available() else "cpu"))


def _products(
    queries: Vectors, vectors: Vectors, block: int, device: str | None
) -> Iterator[tuple[int, npt.NDArray[np.float32]]]:
    """First row, and scores [m, rows], of block after block."""
    right = tensor(queries, device).T
    for first in range(0, len(vectors), block):
        scores = tensor(vectors[first : first + block], device) @ right  # twice as fast as the transposed product
        yield first, scores.T.contiguous().cpu().numpy()

"""Approximate search of a pool that has outgrown exact search, by faiss (Douze et al. 2024, arXiv 2401.08281).

The index is an inverted file of vectors with a byte for each number. What it proposes is scored exactly, as in
``search``, so scores are right and only rows can be missing. How many are, is measured against exact search when the
index is made, and told.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, ValidationError

from murmura.atomic import replacing
from murmura.errors import ConfigError, DataError, explaining
from murmura.progress import bar
from murmura.retrieval.pool import VECTORS, File, Pool
from murmura.retrieval.search import Nearest, Rows, Vectors, best_of, nearest
from murmura.streams import Stream

INDEX, ABOUT = "approximate.faiss", "approximate.json"
_AT_ONCE = 65_536
_OF_A_LIST = 64  # vectors that each list's centre is learnt from
_QUERIES = 50  # that recall is measured with
_MIXED = 8  # vectors whose mean is one of these, as a site's centre is the mean of a few
_MOST = 5000


class About(BaseModel):
    """What an index is.

    Attributes:
        vectors: SHA-256 of the vectors that it was made of.
        file: its own file.
        lists: how many lists the vectors are in.
        probes: how many of these a search reads.
        most: rows that were asked for when recall was measured.
        recall: share of what exact search finds that is found, mean over queries.
        least: of the query for which it is least.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    vectors: str
    file: File
    lists: int
    probes: int
    most: int
    recall: float
    least: float

    @property
    def in_words(self) -> str:
        return (
            f"approximate search, which reads {self.probes} of {self.lists} lists and finds {self.recall:.1%} of the "
            f"{self.most} nearest rows (in the worst of {_QUERIES} trials {self.least:.1%})"
        )


class Index:
    """The approximate index of a pool."""

    def __init__(self, index: Any, about: About) -> None:
        self._index, self.about = index, about

    @classmethod
    def make(cls, pool: Pool, recall: float = 0.95) -> Index:
        """Make the index, as part of the pool's folder, and measure it.

        Args:
            recall: a search reads as many lists, doubled until at least this is reached on average.

        Raises:
            ConfigError: faiss is not installed.
            DataError: it cannot be written.
        """
        faiss = _faiss()
        lists = max(1, min(int(4 * len(pool) ** 0.5), len(pool) // _OF_A_LIST))
        index = faiss.index_factory(pool.dimension, f"IVF{lists},SQ8", faiss.METRIC_INNER_PRODUCT)
        stream = Stream(0) / "approximate"
        some = (stream / "train").numpy().choice(len(pool), min(len(pool), _OF_A_LIST * lists), replace=False)
        index.train(pool.vectors[np.sort(some)])
        with bar("indexing", len(pool)) as progress:
            for first in range(0, len(pool), _AT_ONCE):
                index.add(np.ascontiguousarray(pool.vectors[first : first + _AT_ONCE]))
                progress.advance(min(_AT_ONCE, len(pool) - first))
        mixed = (stream / "queries").numpy().choice(len(pool), (_QUERIES, _MIXED))
        queries = pool.vectors[mixed.ravel()].reshape(_QUERIES, _MIXED, -1).mean(axis=1)
        probes, most = 1, min(_MOST, max(1, len(pool) // 10))
        exact = nearest(queries, pool.vectors, most)
        while (shares := _shares(index, pool, queries, most, probes, exact)).mean() < recall and probes < lists:
            probes = min(2 * probes, lists)
        with explaining("the index cannot be written", pool.folder, kind=DataError):
            with replacing(pool.folder / INDEX) as file:
                faiss.write_index(index, faiss.PyCallbackIOWriter(file.write))
            found = {"recall": float(shares.mean()), "least": float(shares.min())}
            vectors, file_of_index = pool.manifest.files[VECTORS].sha256, File.of(pool.folder / INDEX)
            about = About(vectors=vectors, file=file_of_index, lists=lists, probes=probes, most=most, **found)
            with replacing(pool.folder / ABOUT) as file:
                file.write(about.model_dump_json(indent=1).encode())
        return cls(index, about)

    @classmethod
    def open(cls, pool: Pool) -> Index:
        """The index that was made of a pool.

        Raises:
            ConfigError: faiss is not installed.
            DataError: There is none, or it is damaged, or of other vectors.
        """
        faiss = _faiss()
        make = f"Make it: murmura pool index {pool.folder}"
        try:
            about = About.model_validate_json((pool.folder / ABOUT).read_bytes())
            whole = File.of(pool.folder / INDEX) == about.file
        except FileNotFoundError as error:
            raise DataError("the pool has no index for approximate search", where=str(pool.folder), fix=make) from error
        except (OSError, ValidationError) as error:
            raise DataError("the index cannot be read", where=str(pool.folder / ABOUT), fix=make) from error
        if not whole or about.vectors != pool.manifest.files[VECTORS].sha256:
            what = "the index is damaged, or of other vectors than the pool's"
            raise DataError(what, where=str(pool.folder / INDEX), fix=make)
        return cls(faiss.read_index(str(pool.folder / INDEX)), about)

    def nearest(
        self,
        queries: Vectors,
        vectors: Vectors,
        most: int,
        *,
        below: float | None = None,
        without: Sequence[Rows | None] | None = None,
    ) -> list[Nearest]:
        """As ``search.nearest``, of the rows that the index proposes; ``vectors`` are the pool's."""
        each = zip(queries, without or [None] * len(queries), strict=True)
        return [_found(self._index, vectors, query, most, self.about.probes, below, rows) for query, rows in each]


def _found(
    index: Any, vectors: Vectors, query: Vectors, most: int, probes: int, below: float | None, without: Rows | None
) -> Nearest:
    """Twice as many as are wanted are looked at, and twice as many again while too few of them are eligible."""
    wanted = min(2 * most + (0 if without is None else len(without)), index.ntotal)
    while True:
        settings = _faiss().SearchParametersIVF(nprobe=probes)
        rows = index.search(query[None].astype(np.float32), wanted, params=settings)[1][0]
        rows = np.sort(rows[rows >= 0])
        free = rows if without is None else np.setdiff1d(rows, without)
        found = best_of(free, query, vectors, most, below)
        if len(found.rows) == most or len(rows) < wanted or wanted == index.ntotal:
            return found
        wanted = min(2 * wanted, index.ntotal)


def _shares(
    index: Any, pool: Pool, queries: Vectors, most: int, probes: int, exact: Sequence[Nearest]
) -> npt.NDArray[np.float64]:
    """Of each query the share of what is nearest that is found."""
    found = [_found(index, pool.vectors, query, most, probes, None, None) for query in queries]
    return np.array([np.isin(right.rows, one.rows).mean() for one, right in zip(found, exact, strict=True)])


def _faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise ConfigError("approximate search needs faiss", fix="pip install 'murmura[faiss]'") from error
    return faiss

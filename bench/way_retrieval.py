"""Ways of ``feddca.py``: one of them in this process. Called as ``way_retrieval.py WORK OUT WAY``."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from work import WORDS, Kept, finish, gpu_peak, timed

ALPHA = 0.7
CHECKED = 500  # rows of the domain whose coverage is computed plainly too
TILE = 4096  # rows in one plain product, since all of them would not fit into memory


@dataclass(frozen=True)
class RetrievalWork(Kept):
    """What ``feddca.py`` measures: fetching for all sites from one pool, coverage, encoding.

    Attributes:
        folder: ``pool.npy``, float32 [pool, width] unit vectors, and ``centres.npz``, of all sites.
        records: fetched for each site.
        domain: so many rows of the pool are covered, by as many as all sites fetch.
        encoder: folder of a sentence encoder.
        texts: so many are encoded, in batches of ``batch``.
        repeats: how often a way does its work within its process.
    """

    folder: str
    sites: int
    clusters: int
    records: int
    domain: int
    encoder: str
    texts: int
    batch: int
    repeats: int
    cores: int
    device: str = "cpu"
    dtype: str = "float32"

    def pool(self) -> np.ndarray:
        return np.load(Path(self.folder) / "pool.npy", mmap_mode="r")

    def centres(self) -> list[Any]:
        from murmura.retrieval.centres import Centres

        kept = np.load(Path(self.folder) / "centres.npz")
        return [Centres(points, sizes) for points, sizes in zip(kept["points"], kept["sizes"], strict=True)]

    def chosen(self) -> np.ndarray:
        """One centre for each site, float32 [sites, width]."""
        from murmura.retrieval.selection import greedy

        centres = self.centres()
        return np.stack([of.points[row] for of, row in zip(centres, greedy(centres), strict=True)])

    def covered(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows of the domain, and those that cover it."""
        pool = self.pool()
        fetched = self.sites * self.records
        return pool[: self.domain], pool[len(pool) - fetched :]

    def all_texts(self) -> list[str]:
        draw = random.Random(0)
        return [" ".join(draw.choices(WORDS, k=draw.randint(4, 100))) for _ in range(self.texts)]


def sorting(work: RetrievalWork) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """All rows are sorted for each site. A stable sort in float64, rounded, is what ways are held to, and not timed."""
    pool = work.pool()

    def fetch() -> list[np.ndarray]:
        return [best(pool @ centre) for centre in work.chosen()]

    def best(scores: np.ndarray, kind: str | None = None) -> np.ndarray:
        order = np.argsort(-scores, kind=kind)
        return order[scores[order] < ALPHA][: work.records]

    def exact(_: Any) -> torch.Tensor:
        scores = np.empty(len(pool), np.float32)
        rows = []
        for centre in work.chosen().astype(np.float64):
            for first in range(0, len(pool), TILE):
                scores[first : first + TILE] = pool[first : first + TILE].astype(np.float64) @ centre
            rows.append(best(scores, "stable"))
        return {"rows": torch.from_numpy(np.stack(rows))}

    return fetch, exact


def searching(work: RetrievalWork) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    from murmura.retrieval.search import nearest

    pool = work.pool()
    return (
        lambda: nearest(work.chosen(), pool, work.records, below=ALPHA, device=work.device),
        lambda found: {"rows": torch.from_numpy(np.stack([one.rows for one in found]))},
    )


def multiplying_pool(work: RetrievalWork) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """The product of the whole pool with all sites' chosen centres alone, which no exact search does without."""
    from murmura.retrieval.search import tensor

    pool, centres = work.pool(), torch.from_numpy(work.chosen()).to(work.device).T

    def multiply() -> None:
        for first in range(0, len(pool), TILE):
            tensor(pool[first : first + TILE], work.device) @ centres
        if centres.is_cuda:
            torch.cuda.synchronize()

    return multiply, lambda _: {}


def faiss_flat(work: RetrievalWork) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """It knows no upper limit, so it is asked for as many rows more as one site has above it."""
    import faiss

    pool, chosen = work.pool(), work.chosen()
    faiss.omp_set_num_threads(work.cores)
    index = faiss.IndexFlatIP(pool.shape[1])
    index.add(pool)
    above = max(int((pool @ centre >= ALPHA).sum()) for centre in chosen)

    def fetch() -> list[np.ndarray]:
        scores, rows = index.search(work.chosen(), work.records + above)
        return [of[score < ALPHA][: work.records] for of, score in zip(rows, scores, strict=True)]

    return fetch, lambda found: {"rows": torch.from_numpy(np.stack(found))}


def covering(work: RetrievalWork) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    from murmura.retrieval.coverage import closest, coverage

    domain, fetched = work.covered()
    return (
        lambda: coverage(domain, fetched, device=work.device),
        lambda _: {"closest": torch.from_numpy(closest(domain[:CHECKED], fetched, device=work.device))},
    )


def multiplying(work: RetrievalWork) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """The product alone, into memory that is there."""
    domain, fetched = (torch.from_numpy(np.array(rows)).to(work.device) for rows in work.covered())
    products = torch.empty(TILE, len(fetched), device=work.device)

    def multiply() -> None:
        for first in range(0, len(domain), TILE):
            rows = domain[first : first + TILE]
            torch.mm(rows, fetched.T, out=products[: len(rows)])
        if products.is_cuda:
            torch.cuda.synchronize()

    return multiply, lambda _: {"closest": (domain[:CHECKED].double() @ fetched.double().T).amax(dim=1).float().cpu()}


def encoding(work: RetrievalWork) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    from murmura.retrieval.encoder import Encoder

    encoder, texts = Encoder(work.encoder, batch_size=work.batch, device=work.device), work.all_texts()
    encoder.embed(texts[:2])  # loads it
    return lambda: encoder.embed(texts), lambda vectors: {"vectors": torch.from_numpy(vectors)}


def encoding_theirs(work: RetrievalWork) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """Its loop sorts texts by length too."""
    from sentence_transformers import SentenceTransformer

    model, texts = SentenceTransformer(work.encoder, device=work.device), work.all_texts()
    model.encode(texts[:2], show_progress_bar=False)
    return (
        lambda: model.encode(
            texts, batch_size=work.batch, normalize_embeddings=True, show_progress_bar=False, convert_to_numpy=True
        ),
        lambda vectors: {"vectors": torch.from_numpy(vectors)},
    )


WAYS = {
    "s": sorting,
    "m": searching,
    "f": faiss_flat,
    "b": multiplying_pool,
    "p": multiplying,
    "c": covering,
    "l": encoding_theirs,
    "e": encoding,
}


def main(work: RetrievalWork, out: str, way: str) -> None:
    act, found = WAYS[way](work)
    result, seconds = timed(act, work.repeats)
    finish(out, found(result), seconds, gpu_peak(work))


if __name__ == "__main__":
    main(RetrievalWork.read(sys.argv[1]), sys.argv[2], sys.argv[3])

"""Choosing few records that still cover what many are about: cluster, then take some from each cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from murmura.data.records import Labelled
from murmura.errors import ConfigError, DataError
from murmura.streams import Stream


def kmeans(embeddings: npt.NDArray[np.float32], k: int, seed: int) -> npt.NDArray[np.int64]:
    """The cluster of every row, int64 [n], by k-means (k-means++ start, Lloyd).

    Where there are fewer than ``k`` different rows, there are as many clusters as different rows. The number of threads
    plays no part.

    Args:
        embeddings: [n, d].

    Raises:
        ConfigError: ``k`` is below 1 or above n.
    """
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    if not 1 <= k <= len(embeddings):
        raise ConfigError(f"{k} clusters of {len(embeddings)} records, expected between 1 and {len(embeddings)}")
    distinct = len(np.unique(embeddings, axis=0))
    model = KMeans(n_clusters=min(k, distinct), n_init=1, random_state=seed % 2**32)
    # Threads add up in whatever order they finish, and a site and a simulation of it may have different ones.
    with threadpool_limits(1):
        return model.fit_predict(embeddings).astype(np.int64)


def few_shot(
    clusters: npt.NDArray[Any], per_cluster: int, apart: int, rng: np.random.Generator, keep: int = 0
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Up to ``per_cluster`` random records of each cluster (FewFedPIT: 100 clusters, 5 or 10 of each), and ``apart``
    others that are drawn alike, to compare the chosen ones with.

    A cluster gives records to both in one proportion, ``per_cluster`` to ρ, in expectation: k = ``per_cluster`` and ρ
    where it has that many, and where it has fewer all of them, divided in that proportion; lots decide what rounding
    leaves open. ρ is such that all clusters together give ``apart``. So a record that is drawn apart is of each cluster
    with the probability of one that is chosen, and within a cluster lots alone decide.

    Where ``per_cluster`` is as large as any cluster, all records are chosen or drawn apart, each one with the same
    probability of being drawn apart, and each cluster gives its share rounded up or down.

    Args:
        clusters: [n], the cluster of each record.
        per_cluster: At least 1.
        apart: How many, below n.
        keep: So many records of each cluster are never drawn apart; clusters that are so small give less, and the
            others more.

    Returns:
        Indices of the chosen records, int64, ascending, and of those apart, in random order.

    Raises:
        DataError: There are no records, or not more than ``apart`` beside those that are kept.
    """
    if len(clusters) <= apart:
        raise DataError(f"no records to choose few from, beside {apart}" if apart else "no records to choose few from")
    names, sizes = np.unique(clusters, return_counts=True)
    most = np.maximum(sizes - keep, 0)
    if apart > most.sum():
        raise DataError(f"{apart} records drawn apart of {len(clusters)} would leave clusters with fewer than {keep}")
    given = _shares(sizes, most, per_cluster, apart, rng) if apart else np.zeros_like(sizes)
    chosen, others = [], []
    for name, more in zip(names, given, strict=True):
        order = rng.permutation(np.flatnonzero(clusters == name))
        others.append(order[:more])
        chosen.append(order[more:][:per_cluster])
    return np.sort(np.concatenate(chosen)), rng.permutation(np.concatenate(others))


def _shares(
    sizes: npt.NDArray[np.int64], most: npt.NDArray[np.int64], k: int, total: int, rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """How many records each cluster gives to the ``total`` that are drawn apart, at ``most`` so many."""
    from scipy.optimize import brentq

    def expected(rho: float) -> npt.NDArray[np.float64]:
        return np.minimum(np.minimum(sizes, k + rho) * rho / (k + rho), most)

    # At this ρ no cluster has k + ρ records, so that each gives the share ρ / (k + ρ) of all its records, or, where it
    # keeps some, at least so large a share that it keeps no more.
    kept = int((sizes - most).max())
    highest = max(int(sizes.max()), k * total / (int(sizes.sum()) - total), k * int(sizes.max()) * (kept > 0)) + 1
    rho = brentq(lambda rho: expected(rho).sum() - total, 0, highest)
    # Systematic sampling: every count is its expectation rounded up or down, and their sum is the total.
    sums = np.cumsum(expected(rho))
    sums[-1] = total
    counts = np.diff(np.floor(sums + rng.random()), prepend=0.0).astype(np.int64)
    return np.minimum(counts, most)


def text_order(records: Sequence[Labelled], seed: int) -> list[int]:
    """Places of records in a random order that follows from the run's seed and from each one's own text.

    Two records stand in the same order whatever others there are. So the first of all records, dealt out to sites in
    this order, are the first ones of each site, however many sites there are.
    """
    stream = Stream(seed) / "texts"
    turns = [(stream / record.text).integer() for record in records]
    return sorted(range(len(records)), key=lambda place: (turns[place], place))


def label_order(records: Sequence[Labelled], seed: int) -> list[int]:
    """The order of ``text_order`` in which records keep their labels, where an experiment hides some; those that have
    none come last."""
    return sorted(text_order(records, seed), key=lambda place: not records[place].label)

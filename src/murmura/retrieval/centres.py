"""What a site tells of the texts that it has: the centres of their clusters, and how many each cluster has."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from murmura.data.selection import kmeans

LONGEST = 1 + 1e-3
"""Of a mean of vectors of length 1, as far as encoders are exact."""


@dataclass(frozen=True)
class Centres:
    """The clusters of one site's texts. Its centres are means of unit vectors and therefore at most of length 1.

    Args:
        points: The centres, float32 [ξ', d].
        sizes: How many texts each cluster has, int64 [ξ'].
    """

    points: npt.NDArray[np.float32]
    sizes: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.sizes)


def cluster(vectors: npt.NDArray[np.float32], clusters: int, seed: int, smallest: int = 1) -> Centres:
    """Cluster one site's texts by k-means (the client's step in Algorithm 1 of FedDCA, Wang et al. 2024).

    The centres are the means as they are, not brought back to length 1. Where there are fewer different vectors than
    clusters, there are as many clusters as different vectors. As long as a cluster has fewer than ``smallest`` texts,
    the smallest one joins the one whose centre is nearest. So no centre is the mean of fewer texts, and fewer texts
    than ``smallest`` have none.

    Args:
        vectors: Of length 1, [n, d].
        clusters: ξ, at least 1.
        seed: The same seed gives the same clusters, however many threads there are.
        smallest: How many texts a cluster has at least, 1 or more.
    """
    if len(vectors) < smallest:
        return Centres(np.zeros((0, vectors.shape[1]), np.float32), np.zeros(0, np.int64))
    labels = kmeans(vectors, min(clusters, len(vectors)), seed)
    _, labels, sizes = np.unique(labels, return_inverse=True, return_counts=True)  # so that no number is left out
    sums = np.zeros((len(sizes), vectors.shape[1]))
    np.add.at(sums, labels, vectors)
    while sizes.min() < smallest:
        sums, sizes = _join_smallest(sums, sizes)
    return Centres((sums / sizes[:, None]).astype(np.float32), sizes.astype(np.int64))


def _join_smallest(
    sums: npt.NDArray[np.float64], sizes: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """The smallest cluster becomes part of its nearest one."""
    least = int(sizes.argmin())
    means = sums / sizes[:, None]
    distances = np.linalg.norm(means - means[least], axis=1)
    distances[least] = np.inf
    nearest = int(distances.argmin())
    sums, sizes = sums.copy(), sizes.copy()
    sums[nearest] += sums[least]
    sizes[nearest] += sizes[least]
    return np.delete(sums, least, axis=0), np.delete(sizes, least)

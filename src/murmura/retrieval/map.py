"""A domain in the plane, and how the scores of what was fetched from it lie."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from murmura.runs.augment import ScoreHistogram

_FEW = 5  # fewer points have no neighbourhoods to keep
_PERPLEXITY = 30.0
_BINS = 24


def plane(vectors: npt.NDArray[np.floating], seed: int) -> npt.NDArray[np.float32]:
    """Vectors in the plane by t-SNE (van der Maaten and Hinton 2008): what lies close together is alike, while
    distances between what does not mean little. A thousand points take some seconds.

    Args:
        vectors: [n, d], of length 1, so that distances follow the cosine.
        seed: the same one gives the same plane.

    Returns:
        float32 [n, 2], centred, the longest coordinate 1.
    """
    from sklearn.manifold import TSNE

    if len(vectors) < _FEW:
        found = _principal(vectors)
    else:
        perplexity = min(_PERPLEXITY, (len(vectors) - 1) / 3)
        # Starting from the principal components keeps what is far apart where it is (Kobak and Berens 2019).
        start = _principal(vectors) * 1e-4
        found = TSNE(2, perplexity=perplexity, init=start, random_state=seed).fit_transform(vectors)
    found = found - found.mean(axis=0) if len(found) else found
    largest = float(np.abs(found).max(initial=0.0))
    return (found / largest if largest else found).astype(np.float32)


def histogram(scores: npt.NDArray[np.floating], domains: Sequence[str]) -> ScoreHistogram | None:
    """How scores lie, by domain, in bins of the same width; None where there are no scores.

    Args:
        scores: [n], finite.
        domains: the domain of each of them.
    """
    if not len(scores):
        return None
    edges = np.histogram_bin_edges(scores.astype(np.float64), _BINS)
    names = np.asarray(domains)
    counts = {
        name: tuple(int(count) for count in np.histogram(scores[names == name], edges)[0]) for name in np.unique(names)
    }
    order = sorted(counts, key=lambda name: (-sum(counts[name]), name))
    return ScoreHistogram(tuple(float(edge) for edge in edges), {str(name): counts[name] for name in order})


def _principal(vectors: npt.NDArray[np.floating]) -> npt.NDArray[np.float32]:
    """The first two principal components, float32 [n, 2], the first of standard deviation 1; what there is no room for
    is 0. Signs are those that make the largest coordinates positive."""
    found = np.zeros((len(vectors), 2), dtype=np.float32)
    if not len(vectors):
        return found
    centred = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    left, values, _ = np.linalg.svd(centred, full_matrices=False)
    parts = (left * values)[:, :2]
    largest = parts[np.abs(parts).argmax(axis=0), np.arange(parts.shape[1])]
    spread = float(parts[:, 0].std()) or 1.0
    found[:, : parts.shape[1]] = parts * np.where(largest < 0, -1, 1) / spread
    return found

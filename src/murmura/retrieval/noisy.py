"""Centres of a site's clusters that are differentially private: k-means on noisy sums and counts.

This is the k-means of SuLQ (Blum et al. 2005), called DPLloyd by Su et al. (2016): from starts that do not depend on
the records, each iteration releases, of every cluster, the noisy sum of its vectors and their noisy count, and goes on
from their quotient. A record adds a vector of length 1 at most to one sum, and 1 to one count. So, under zero-out, it
moves all that an iteration releases by √2 at most, whatever other records there are; iterations compose like any other
Gaussian releases, though each depends on the ones before.

Noise on the centres of an ordinary k-means would promise nothing: one record more may end the search elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from murmura.errors import PrivacyError
from murmura.privacy.clipping import ClusterClipping
from murmura.privacy.entropy import Entropy
from murmura.privacy.ledger import Spent
from murmura.privacy.mechanisms.gaussian import GaussianNoise
from murmura.privacy.mechanisms.noise import Noise
from murmura.privacy.observation import Observation
from murmura.privacy.plan import PrivacyPlan
from murmura.privacy.samplers import FullParticipation

Floats = npt.NDArray[np.float64]

_GRID = 2.0**-32
"""Vectors are rounded to multiples of this, so that sums of fewer than 2²⁰ are exact and no record moves how those of
others are rounded."""
_SHORTER = 1 - 2.0**-20  # rounding makes no vector of up to 2²⁵ numbers longer than 1
_BLOCK = 1 << 22  # products that assigning holds at a time


@dataclass(frozen=True)
class NoisyCentres:
    """Centres and what they cost.

    Attributes:
        points: float32 [k, d], each of length 1 at most.
        sizes: int64 [k], noisy counts, rounded; never negative.
        spent: what was done, for the site's ledger.
    """

    points: npt.NDArray[np.float32]
    sizes: npt.NDArray[np.int64]
    spent: Spent


def plan_of(noise_multiplier: float, iterations: int, selections: int, delta: float) -> PrivacyPlan:
    """The plan of a site that gives noisy centres for so many selections of a run.

    Args:
        noise_multiplier: standard deviation of the noise on each number of the sums and the counts, where vectors have
            length 1.
        iterations: of k-means, each time.
        selections: how often sites are asked for centres.
        delta: δ.

    Raises:
        PrivacyError: a number is out of range, or there is no noise.
    """
    if not noise_multiplier > 0:
        raise PrivacyError("without noise no centre is protected", fix="Give a noise multiplier above 0.")
    return PrivacyPlan(
        unit="record",
        adjacency="zero-out",
        sampler=FullParticipation(),
        clipping=ClusterClipping(),
        noise=GaussianNoise(noise_multiplier),
        steps=iterations * selections,
        delta=delta,
    )


def noisy_centres(
    vectors: npt.NDArray[np.floating],
    starts: npt.NDArray[np.floating],
    iterations: int,
    plan: PrivacyPlan,
    entropy: Entropy,
) -> NoisyCentres:
    """Centres of a site's vectors, as a plan protects them.

    What is released is as large as ``starts``, however many vectors there are. A cluster whose noisy count is below 1
    keeps its centre from before, and in the end has size 0.

    Args:
        vectors: [n, d], of any length: they are scaled to length 1; one that is not finite counts as the zero vector.
            Each must depend on its own record alone, to the last bit (``Encoder.embed_each``).
        starts: [k, d], which depend on no private record.
        iterations: at least 1.
        plan: as ``plan_of`` makes it.
        entropy: where the noise comes from.

    Raises:
        PrivacyError: the plan is not one for centres, or the starts are of another dimension or not finite.
    """
    norm, std = plan.clipping.norm, plan.noise.std
    if (plan.clipping.kind, plan.noise.kind, norm) != ("cluster", "gaussian", 1):
        raise PrivacyError(f"a plan for something else than centres: {plan.describe()}")
    if starts.ndim != 2 or not len(starts) or starts.shape[1] != vectors.shape[1] or not np.isfinite(starts).all():
        raise PrivacyError(
            f"starting centres of shape {list(starts.shape)} for vectors of {vectors.shape[1]} numbers, or not finite",
            fix="The server takes them from a pool with the vectors of the sites' encoder.",
        )
    rows, seen = _contributions(vectors)
    points, counts = _within(starts.astype(np.float64)), np.zeros(len(starts))
    for _ in range(iterations):
        exact = sums(rows, points)
        noisy = _noised(exact, plan.noise, entropy)
        counts = noisy[:, -1]
        kept = counts >= 1
        points[kept] = _within(noisy[kept, :-1] / counts[kept, None])
        drawn, squares = round(float(exact[:, -1].sum())), float(np.square(noisy - exact).sum())
        seen += Observation(1, drawn, len(rows), numbers=exact.size, squares=squares)
    seen += Observation(is_secret=entropy.is_secret, clipped=(plan.clipping.observed,))
    spent = Spent(iterations, FullParticipation(), norm, std, observed=seen)
    return NoisyCentres(points.astype(np.float32), np.maximum(np.rint(counts), 0).astype(np.int64), spent)


def sums(rows: Floats, points: Floats) -> Floats:
    """What one iteration would release without noise, float64 [k, d + 1]: of each cluster, the sum of the rows that are
    nearer to its point than to any other (to the first of several), and in the last column how many they are.

    Args:
        rows: float64 [n, d], of length 1 at most, multiples of 2⁻³².
        points: float64 [k, d].
    """
    found = np.zeros((len(points), points.shape[1] + 1))
    step = max(1, _BLOCK // max(points.size, 1))
    for first in range(0, len(rows), step):
        some = rows[first : first + step]
        # Not a matrix product: how that adds up, and so who is nearest, may depend on how many rows there are.
        apart = np.square(some[:, None, :] - points).sum(axis=2)
        nearest = apart.argmin(axis=1)
        np.add.at(found[:, :-1], nearest, some)
        np.add.at(found[:, -1], nearest, 1.0)
    return found


def _contributions(vectors: npt.NDArray[np.floating]) -> tuple[Floats, Observation]:
    """Rows of length 1 at most, float64 [n, d], each made of its own vector alone; and what was seen of lengths."""
    exact = vectors.astype(np.float64)
    bad = ~np.isfinite(exact).all(axis=1)
    exact[bad] = 0.0
    largest = np.abs(exact).max(axis=1, initial=0.0)[:, None]
    safe = np.divide(exact, largest, out=np.zeros_like(exact), where=largest > 0)  # no square overflows
    lengths = np.sqrt(np.square(safe).sum(axis=1))[:, None]
    unit = np.divide(safe, lengths, out=np.zeros_like(exact), where=lengths > 0)
    rows = np.rint(unit * _SHORTER / _GRID) * _GRID
    with np.errstate(over="ignore"):
        before = float((largest * lengths).max(initial=0.0))
    after = float(np.sqrt(np.square(rows).sum(axis=1)).max(initial=0.0))
    return rows, Observation(before=before, after=after, not_finite=int(bad.sum()))


def _noised(exact: Floats, noise: Noise, entropy: Entropy) -> Floats:
    import torch

    noisy: Floats = noise.add({"sums": torch.from_numpy(exact)}, 1.0, entropy)["sums"].double().numpy()
    return noisy


def _within(points: Floats) -> Floats:
    """Points [k, d] that lie no further from 0 than a mean of vectors of length 1 can."""
    lengths = np.sqrt(np.square(points).sum(axis=1))[:, None]
    return points / np.maximum(lengths, 1.0)

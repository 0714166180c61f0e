"""One centre for each site, such that the sites' centres together cover what all of them are about."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from murmura.retrieval.centres import Centres
from murmura.retrieval.coverage import closest
from murmura.retrieval.search import Rows, Vectors
from murmura.streams import Stream

FilterRule = Literal["pseudocode", "text"]


def greedy(
    centres: Sequence[Centres], *, filter_rule: FilterRule | None = None, order: Sequence[int] | None = None
) -> list[int | None]:
    """Greedy client-centre selection (Algorithm 1 of FedDCA, Wang et al. 2024, arXiv 2409.20135).

    The first site gives its largest cluster. Of each next one, the clusters most like those chosen so far are left
    out, by the sum of dot products with them, and the largest of the rest is taken. Site i (from 0) of N keeps, of its
    ξ clusters, N − i by the paper's pseudo-code, or ξ − i ("filter out i") by its text; with ξ = N the two are one.
    Where sites and clusters differ in number, the pseudo-code is read with b = min(N, ξ) in place of N, and from site
    b on half of b clusters are kept, as in the authors' runs with 100 sites. At least one is always kept. Of equals
    the first is taken.

    With fewer sites than clusters the pseudo-code leaves the last site the one cluster that is least like the others,
    which is often a single record. So the text's rule is taken there, and the pseudo-code's elsewhere, unless one is
    asked for.

    Args:
        centres: One for each site.
        filter_rule: Which of the two; None for the text's at a site that has more clusters than there are sites.
        order: The places of all sites in the order in which they choose; as given if None.

    Returns:
        For each site the row of its centre; None for a site that has no centres, which then counts as absent.
    """
    present = [site for site in (range(len(centres)) if order is None else order) if len(centres[site])]
    chosen: list[int | None] = [None] * len(centres)
    total: float | npt.NDArray[np.float64] = 0.0
    for turn, site in enumerate(present):
        points = centres[site].points.astype(np.float64)
        likeness = (points * total).sum(axis=1)
        kept = np.argsort(likeness, kind="stable")[: _kept(turn, len(present), len(points), filter_rule)]
        largest_first = np.argsort(-centres[site].sizes, kind="stable")
        choice = int(largest_first[np.isin(largest_first, kept)][0])
        chosen[site] = choice
        total = total + points[choice]
    return chosen


def _kept(turn: int, sites: int, clusters: int, rule: FilterRule | None) -> int:
    """How many of its clusters a site may choose from."""
    if turn == 0:
        return clusters
    if rule == "text" or (rule is None and sites < clusters):
        return max(1, clusters - turn)
    bound = min(sites, clusters)
    return bound - turn if turn < bound else max(1, bound // 2)


def facility_location(centres: Sequence[Centres]) -> list[int | None]:
    """The centres that best stand for all texts of all sites, one of each site: the mean over the texts of their cosine
    with the centre that their cluster is most like, where 0 is the least, step by step.

    Args:
        centres: One for each site.

    Returns:
        For each site the row of its centre; None for a site that has no centres. At least half of what could be
        reached: see ``_one_of_each``.
    """
    if not any(map(len, centres)):
        return [None] * len(centres)
    sizes, likeness = _likeness(centres)
    return _one_of_each(np.maximum(0.0, likeness), sizes, [len(own) for own in centres])


def covering(
    ranked: Sequence[Sequence[Rows]], vectors: Vectors, *, targets: int = 2048, seed: int = 0, device: str | None = None
) -> list[int | None]:
    """The centres for which the most different records would be fetched, one of each site.

    Of all records that would be fetched for any centre, it maximises the mean of the largest cosine (0 is the least)
    to one that is fetched for a chosen centre. That is coverage, with what the sites' centres reach in place of the
    domain, which nobody knows. Unlike facility location among the centres themselves, it sees how many records two
    centres have in common.

    Args:
        ranked: For each site and each of its centres the rows that would be fetched for it.
        vectors: Of the pool, float32 [n, d], each of length 1; may be memory-mapped.
        targets: Records that count, drawn at random where there are more.
        seed: The draw follows from it.
        device: Where to multiply, as torch names it; None takes a GPU where there is one.

    Returns:
        As ``facility_location``, with the same guarantee for the records that count.
    """
    owned = [rows for own in ranked for rows in own]
    reached = np.unique(np.concatenate(owned)) if owned else np.zeros(0, np.int64)
    if not len(reached):
        return [0 if len(own) else None for own in ranked]
    counted = reached
    if len(reached) > targets:
        counted = np.sort((Stream(seed) / "targets").numpy().choice(reached, targets, replace=False))
    wanted = vectors[counted]
    likeness = np.stack([np.maximum(0.0, closest(wanted, vectors[rows], device=device)) for rows in owned])
    return _one_of_each(likeness, np.ones(len(counted)), [len(own) for own in ranked])


def _one_of_each(
    likeness: npt.NDArray[np.floating[Any]], weights: npt.NDArray[np.float64], counts: Sequence[int]
) -> list[int | None]:
    """One candidate of each site, by lazy greedy facility location.

    Maximises the weighted sum over targets of the largest likeness to a chosen candidate, which is monotone and
    submodular, and one candidate a site is a partition matroid. So what is reached by taking the candidate that adds
    most, of all sites that have none, is at least half of the best possible (Fisher, Nemhauser and Wolsey, 1978). Gains
    only fall, so most need not be computed again (Minoux, 1978). Of equal ones the first is taken. No order of the
    sites plays a part in anything else.

    Args:
        likeness: Of each candidate with each target, at least 0, [c, t]; the candidates of a site stand together.
        weights: Of the targets, [t].
        counts: How many candidates each site has.
    """
    owners = [(site, row) for site, count in enumerate(counts) for row in range(count)]
    best = np.zeros(len(weights))  # of each target, how well what is chosen stands for it

    def gain(candidate: int) -> float:
        return float(weights @ np.maximum(0.0, likeness[candidate] - best))

    # Bounds, each with the step in which it was a gain.
    queue = [(-gain(candidate), candidate, 0) for candidate in range(len(owners))]
    heapq.heapify(queue)
    chosen: list[int | None] = [None] * len(counts)
    for step in range(sum(1 for count in counts if count)):
        while True:
            _, candidate, computed = heapq.heappop(queue)
            site, row = owners[candidate]
            if chosen[site] is not None:
                continue
            if computed == step:
                break
            heapq.heappush(queue, (-gain(candidate), candidate, step))
        chosen[site] = row
        best = np.maximum(best, likeness[candidate])
    return chosen


def _likeness(centres: Sequence[Centres]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The sizes of all clusters, [c], and the mean cosine of cluster j's texts with centre i, [c, c]."""
    points = np.concatenate([own.points for own in centres if len(own)]).astype(np.float64)
    sizes = np.concatenate([own.sizes for own in centres if len(own)]).astype(np.float64)
    lengths = np.linalg.norm(points, axis=1, keepdims=True)
    directions = np.divide(points, lengths, out=np.zeros_like(points), where=lengths > 0)
    return sizes, directions @ points.T

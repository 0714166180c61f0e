"""Sharing one set of records out to sites."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]


def partition(
    labels: npt.NDArray[Any] | None, n_items: int, sites: int, scheme: str, alpha: float, rng: np.random.Generator
) -> list[Indices]:
    """Give every item to one site.

    * ``iid``: at random, sizes equal within one.
    * ``dirichlet``: each label's items are split by shares drawn from Dir(alpha, ..., alpha) over the sites (Yurochkin
      et al., 2019; Li et al., NIID-Bench, 2022, without their lower bound on sizes). Sizes differ; a site may get none.
    * ``dirichlet-equal``: each site's mix of labels is drawn from Dir(alpha * prior), prior being the labels' shares
      of all items; where a label runs out, the site is topped up from what is left of the others. Sizes are equal
      within one. This is the form of FedNLP (Lin et al., 2022) and of FewFedPIT's experiments; FedNLP gives the
      remainder of n_items / sites to the last site, we give one item of it to each of the first.

    Args:
        labels: [n_items], of any type with an order: classes, or k-means clusters. ``iid`` alone needs none.
        scheme, alpha: as ``SitesConfig`` has them.

    Returns:
        For each site its indices, int64, ascending; together they are 0 ... n_items - 1, each once.
    """
    if scheme == "iid" or n_items == 0:
        shares = np.array_split(rng.permutation(n_items), sites)
        return [np.sort(share) for share in shares]
    assert labels is not None and len(labels) == n_items
    _, codes = np.unique(labels, return_inverse=True)
    stock = [rng.permutation(np.flatnonzero(codes == label)) for label in range(codes.max(initial=-1) + 1)]
    deal = _deal_by_label if scheme == "dirichlet" else _deal_by_site
    return [np.sort(np.concatenate(share)) for share in deal(stock, sites, alpha, rng)]


def _deal_by_label(stock: list[Indices], sites: int, alpha: float, rng: np.random.Generator) -> list[list[Indices]]:
    dealt: list[list[Indices]] = [[] for _ in range(sites)]
    for items in stock:
        shares = _mix(np.full(sites, alpha), rng)
        cuts = np.rint(np.cumsum(shares)[:-1] * len(items)).astype(np.int64)
        for site, part in enumerate(np.split(items, cuts)):
            dealt[site].append(part)
    return dealt


def _deal_by_site(stock: list[Indices], sites: int, alpha: float, rng: np.random.Generator) -> list[list[Indices]]:
    left = np.array([len(items) for items in stock], dtype=np.int64)
    total = int(left.sum())
    prior = left / total
    dealt: list[list[Indices]] = []
    for site in range(sites):
        size = total // sites + (site < total % sites)
        given = np.minimum(_whole(_mix(alpha * prior, rng) * size), left)
        # The top-up: at random from all that is left, so in expectation in proportion to what is left of each label.
        given += rng.multivariate_hypergeometric(left - given, size - int(given.sum()))
        dealt.append([items[n - k : n] for items, n, k in zip(stock, left, given, strict=True)])
        left -= given
    return dealt


def _whole(shares: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Rounded to integers of the same sum (largest remainders)."""
    counts = np.floor(shares).astype(np.int64)
    missing = round(float(shares.sum())) - int(counts.sum())
    counts[np.argsort(counts - shares, kind="stable")[:missing]] += 1
    return counts


def _mix(concentration: npt.NDArray[np.float64], rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """A draw from the Dirichlet distribution. Its limit, where alpha is so small that the sampler underflows, is one
    entry alone, chosen in proportion to the concentrations."""
    mix = rng.dirichlet(concentration)
    if np.isfinite(mix).all() and math.isclose(mix.sum(), 1.0, rel_tol=1e-6):
        return mix
    alone = np.zeros_like(concentration)
    alone[rng.choice(len(alone), p=concentration / concentration.sum())] = 1.0
    return alone

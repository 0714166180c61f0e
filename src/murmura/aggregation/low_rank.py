"""Products of stacked factors, B·A with B [out, R] and A [R, in]; the [out, in] matrix itself is never formed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch

from murmura.training.adapter import State

Factors = tuple[torch.Tensor, torch.Tensor]
"""B [out, R] and A [R, in], float64, standing for their product."""

_ROUNDING = 1e-12  # relative to what is summed: far above the float64 rounding left of a zero sum, far below float32


def modules(state: State) -> Iterator[tuple[str, str]]:
    """Names of A and B of each adapted module."""
    for name in state:
        if ".lora_A." in name:
            yield name, name.replace(".lora_A.", ".lora_B.")


def stack(terms: Iterable[Factors]) -> Factors:
    """One pair of factors for the sum of products: ``[B_1 … B_K]·[A_1; …; A_K]``."""
    columns, rows = zip(*terms, strict=True)
    return torch.cat(columns, dim=1), torch.cat(rows, dim=0)


def truncate(factors: Factors, rank: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The best approximation of a product by one of smaller rank (Eckart and Young), from QR of both factors and the
    SVD of the small matrix between them.

    Returns:
        U [out, k], σ [k] in falling order, V [k, in]: the product is about ``U·diag(σ)·V``, and the first j columns and
        rows are its best approximation of rank j. k is ``rank`` or, if that is less, the product's own rank; what is
        zero but for rounding does not count, so k may be 0.
    """
    B, A = factors
    left, upper = torch.linalg.qr(B)
    right, lower = torch.linalg.qr(A.T)
    u, values, v = torch.linalg.svd(upper @ lower.T, full_matrices=False)
    summed = (
        B.norm(dim=0) * A.norm(dim=1)
    ).sum()  # relative to the lengths of the outer products: bounds their rounding errors
    k = min(rank, int((values > _ROUNDING * summed).sum()))
    return left @ u[:, :k], values[:k], v[:k] @ right.T


def compressed(factors: Factors, rank: int | None = None) -> Factors:
    """The same product from factors of no higher rank than it has; of at most ``rank``, if given, the best such one."""
    u, values, v = truncate(factors, len(factors[1]) if rank is None else rank)
    root = values.sqrt()
    return u * root, root[:, None] * v


def fitting(factors: Factors) -> Factors:
    """The same product, compressed if its factors are of a higher rank than an [out, in] matrix can have."""
    B, A = factors
    return compressed(factors) if len(A) > min(B.shape[0], A.shape[1]) else factors


class WeightedProducts:
    """``Σ w_k B_k A_k`` of every module, one contribution at a time.

    However many are added, the factors kept are never of a higher rank than twice the smaller side of the weight.
    """

    def __init__(self) -> None:
        self._terms: dict[str, list[Factors]] = {}
        self._weight = 0.0

    def add(self, state: State, weight: float) -> None:
        """Add one adapter, of any rank."""
        for a, b in modules(state):
            terms = self._terms.setdefault(a, [])
            terms.append((weight * state[b].double(), state[a].double()))  # the weight on one factor only
            if sum(len(A) for _, A in terms) > 2 * min(len(state[b]), state[a].shape[1]):
                terms[:] = [compressed(stack(terms))]
        self._weight += weight

    def mean(self) -> dict[str, Factors]:
        """``Σ p_k B_k A_k`` with p_k = w_k / Σ w, by the name of the module's A."""
        sums = {name: stack(terms) if len(terms) > 1 else terms[0] for name, terms in self._terms.items()}
        return {name: (B / self._weight, A) for name, (B, A) in sums.items()}

"""How well some vectors cover a domain (FedDCA, Wang et al. 2024, arXiv 2409.20135, eq. 5)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from murmura.retrieval.search import tensor


def coverage(
    domain: npt.NDArray[np.float32], covering: npt.NDArray[np.float32], *, block: int = 4096, device: str | None = None
) -> float:
    """The mean over a domain's records of the largest cosine to any covering one; 0 if either set is empty.

    Eq. 5 prints 1/|D^c|, the number of covering records, with which the figure depends on how many there are and is no
    share of anything. Values in [0, 1] as the paper's table 3 has them come of the mean over the domain, 1/|D^d|.

    Args:
        domain: Unit vectors of all records of the domain, private ones included, [n, d].
        covering: Unit vectors of what the sites hold of that domain, private and fetched, [m, d].
        block: Rows of each side in one product; memory is about ``block``² numbers, and ``block`` vectors of each.
        device: Where to multiply, as torch names it; None takes a GPU where there is one.
    """
    if not len(domain) or not len(covering):
        return 0.0
    return float(closest(domain, covering, block=block, device=device).mean(dtype=np.float64))


def closest(
    domain: npt.NDArray[np.float32], covering: npt.NDArray[np.float32], *, block: int = 4096, device: str | None = None
) -> npt.NDArray[np.float32]:
    """The largest dot product of each row of ``domain`` [n, d] with any of ``covering`` [m, d], float32 [n].

    Other arguments as of ``coverage``. Nothing is closest of nothing: −∞ where ``covering`` is empty.
    """
    best = np.full(len(domain), -np.inf, dtype=np.float32)
    for first in range(0, len(domain), block):
        rows = tensor(domain[first : first + block], device)
        for start in range(0, len(covering), block):
            largest = (rows @ tensor(covering[start : start + block], device).T).amax(dim=1).cpu().numpy()
            np.maximum(best[first : first + block], largest, out=best[first : first + block])
    return best

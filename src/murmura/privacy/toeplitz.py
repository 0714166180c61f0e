"""Banded square-root factorisation of prefix sums: its matrix, and how far one unit can move what it releases.

All prefix sums of x are A·x, with A the lower triangle of ones. Where C·x is released under fresh Gaussian noise z, the
sums follow as A·C⁻¹(C·x + z) = A(x + C⁻¹z). A itself has the square root whose first column is 1, 1/2, 3/8, … (the
series of (1 − x)^(−1/2): Fichtenberger, Henzinger and Upadhyay 2023). Here C is that one with the first ``bands``
diagonals alone (Choquette-Choo et al. 2023, "(Amplified) Banded Matrix Factorization"): two steps that are at least
``bands`` apart then have no row of C in common.
"""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=64)
def coefficients(bands: int) -> tuple[float, ...]:
    """The first column of C down to its last band: f₀ = 1, f_k = f_{k−1}·(2k − 1)/(2k)."""
    found = [1.0]
    for k in range(1, bands):
        found.append(found[-1] * (2 * k - 1) / (2 * k))
    return tuple(found)


def squared_sensitivity(steps: int, bands: int, separation: int) -> float:
    """Most of ‖C·u‖², in squared sensitivities of one step, for a unit whose steps are at least ``separation`` apart,
    with contributions u of norm 1 at most.

    Its columns of C have no row in common, so their squared lengths add up, whichever way its contributions point. The
    earlier a unit begins and the sooner it comes back, the more columns there are, and the less of them is cut off at
    the end: the worst is to take part at steps 1, 1 + separation, 1 + 2·separation and so on.

    Args:
        separation: at least ``bands``.
    """
    squares = [f * f for f in coefficients(bands)]
    return sum(sum(squares[: steps - start]) for start in range(0, steps, separation))

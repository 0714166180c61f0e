"""Statistics that a test may rely on."""

import numpy as np
from scipy import stats

ONCE_IN_A_BILLION = 1e-9


def variance_is(values, expected):
    """Chi-square bounds, missed by chance once in 10⁹ runs."""
    count = len(values)
    low, high = stats.chi2.ppf([ONCE_IN_A_BILLION / 2, 1 - ONCE_IN_A_BILLION / 2], count) / count
    return low < np.mean(np.square(values, dtype=np.float64)) / expected < high

"""Min-K%++ (Zhang et al. 2024, arXiv 2404.02936): is a record a mode of what the model would write?"""

from __future__ import annotations

import numpy as np

from murmura.generation.scoring import CloseScores

SHARE = 0.2
"""k: the share of tokens that count, those that look least like it."""
_LEAST = 1e-6  # of σ, which is 0 where the model is sure of a token


def min_k(scores: CloseScores, share: float = SHARE) -> float:
    """Min-K%++ of a record with at least one token; the higher, the more it looks like one that was trained on.

    With μ and σ the mean and standard deviation of log p(z) over tokens z that the model itself draws at a place, a
    token's score is (log p(x) − μ)/σ; the record's is the mean of the lowest k % of them, of one at least.
    """
    each = (-scores.nll.astype(np.float64) - scores.mean) / np.maximum(scores.std, _LEAST)
    lowest = max(1, int(len(each) * share))
    return float(np.sort(each)[:lowest].mean())

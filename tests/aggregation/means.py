"""Means of states that are all at hand, to hold against what comes out one reply at a time."""

from murmura.aggregation.mean import WeightedMean


def weighted_mean(pairs):
    """The weighted mean of (state, weight) pairs, float32; the pairs are read once, one at a time."""
    mean = WeightedMean()
    for state, weight in pairs:
        mean.add(state, weight)
    return mean.result()

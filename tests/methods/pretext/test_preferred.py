"""Which text of a prompt is preferred to which."""

import numpy as np
import pytest

from murmura.methods.pretext.preferred import preferred


@pytest.mark.parametrize("rank", [2, 3, 5])
def test_the_best_is_preferred_to_the_one_of_the_rank(rank):
    """Against an order that is written out, on noise and so without ties."""
    votes = np.random.default_rng(0).normal(size=40)
    groups = [range(first, first + 8) for first in range(0, 40, 8)]
    expected = []
    for group in groups:
        ranked = sorted(votes[list(group)], reverse=True)
        expected.append((votes.tolist().index(ranked[0]), votes.tolist().index(ranked[rank - 1])))
    assert preferred(votes, groups, rank) == expected


def test_a_prompt_with_too_few_texts_makes_no_pair():
    votes = np.array([3.0, 1.0, 2.0, 9.0, 8.0])
    assert preferred(votes, [range(3), range(3, 5)], 3) == [(0, 1)]
    assert preferred(votes, [[], [4]], 2) == []


def test_votes_that_say_nothing_make_no_pair():
    assert preferred(np.zeros(6), [range(3), range(3, 6)], 2) == []
    assert preferred(np.array([0.0, 1.0, 1.0, 1.0]), [range(4)], 3) == []
    assert preferred(np.array([0.0, 1.0, 1.0, 0.0]), [range(4)], 3) == [(1, 0)]

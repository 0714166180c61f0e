"""Which candidates survive."""

from collections import Counter

import numpy as np
import pytest

from murmura.methods.pretext.selection import select
from murmura.streams import Stream


def test_survivors_are_drawn_in_proportion_to_what_the_threshold_leaves():
    votes = np.array([10.0, 40.0, 5.0, 25.0, -30.0] + [0.0] * 4995)
    found = select(votes, 10.0, "sample", 1, Stream(0))
    assert len(found.drawn) == 5000 and found.above == 2
    counts = Counter(found.drawn)
    assert counts.keys() == {1, 3}  # soft: 30 and 15 are left, and what is at the threshold has nothing
    assert counts[1] / 5000 == pytest.approx(2 / 3, abs=0.03)
    assert found == select(votes, 10.0, "sample", 1, Stream(0)) != select(votes, 10.0, "sample", 1, Stream(1))


def test_where_nothing_is_above_the_threshold_all_are_drawn_alike():
    for how in ("sample", "rank"):
        found = select(np.full(400, 3.0), 3.0, how, 10, Stream(0))
        assert found.above == 0 and len(found.drawn) == 400
        assert 200 < len(set(found.drawn)) < 300  # with replacement: 1 − 1/e of them


def test_rank_takes_the_strongest_in_turn_and_of_equals_the_first():
    votes = np.array([1.0, 7.0, 7.0, 0.0, 9.0, 7.0, 2.0])
    assert select(votes, 0.0, "rank", 3, Stream(0)).drawn == [4, 1, 2, 4, 1, 2, 4]
    assert select(votes, 6.0, "rank", 6, Stream(0)).drawn == [4, 1, 2, 5, 4, 1, 2]  # no more than are above

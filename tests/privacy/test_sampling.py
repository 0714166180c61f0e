from __future__ import annotations

from collections import Counter
from itertools import chain, combinations

import pytest
from scipy import stats

from murmura.errors import PrivacyError
from murmura.privacy.entropy import OSEntropy, SeededEntropy
from murmura.privacy.sampling import disjoint_batches, fixed_size_batches, poisson_batches
from murmura.streams import Stream


@pytest.fixture
def entropy():
    return SeededEntropy(Stream(1) / "sample")


def test_poisson_draws_each_with_its_own_coin(entropy):
    batches = poisson_batches(4, 0.3, 20_000, entropy)
    patterns = Counter(map(tuple, batches))
    observed, expected = [], []
    for size in range(5):
        for pattern in combinations(range(4), size):
            observed.append(patterns[pattern])
            expected.append(20_000 * 0.3**size * 0.7 ** (4 - size))
    assert stats.chisquare(observed, expected).pvalue > 1e-3
    assert [] in batches


def test_at_rate_one_everybody_is_drawn(entropy):
    assert poisson_batches(5, 1.0, 2, entropy) == [[0, 1, 2, 3, 4]] * 2


def test_of_a_fixed_size_every_set_has_the_same_chance(entropy):
    sets = Counter(map(tuple, fixed_size_batches(5, 2, 10_000, entropy)))
    assert sets.keys() == set(combinations(range(5), 2))
    assert stats.chisquare(list(sets.values())).pvalue > 1e-3


def test_between_two_restarts_nobody_is_drawn_twice(entropy):
    batches = disjoint_batches(12, 3, 4, entropy)
    assert sorted(chain(*batches)) == list(range(12))
    assert [len(batch) for batch in batches] == [3] * 4
    assert disjoint_batches(12, 3, 4, entropy) != batches


def test_the_operating_system_can_draw_too():
    assert poisson_batches(40, 0.5, 2, OSEntropy()) != poisson_batches(40, 0.5, 2, OSEntropy())


def test_impossible_draws_are_refused(entropy):
    with pytest.raises(PrivacyError, match="the data set is smaller than the batch: 3 units, batch 4"):
        fixed_size_batches(3, 4, 1, entropy)
    with pytest.raises(PrivacyError, match="11 units cannot take part once each in 4 steps of 3"):
        disjoint_batches(11, 3, 4, entropy)
    with pytest.raises(PrivacyError, match="sampling rate = 2"):
        poisson_batches(3, 2.0, 1, entropy)

from collections import Counter
from itertools import chain, combinations, pairwise

import pytest
from scipy import stats

from murmura.errors import PrivacyError
from murmura.privacy.entropy import OSEntropy, SeededEntropy
from murmura.privacy.samplers import FixedSizeSampling, FullParticipation, MinSeparation, OncePerTree, PoissonSampling
from murmura.streams import Stream


@pytest.fixture
def entropy():
    return SeededEntropy(Stream(1) / "sample")


def test_poisson_draws_each_with_its_own_coin(entropy):
    batches = PoissonSampling(0.3).batches(4, 20_000, entropy)
    patterns = Counter(map(tuple, batches))
    observed, expected = [], []
    for size in range(5):
        for pattern in combinations(range(4), size):
            observed.append(patterns[pattern])
            expected.append(20_000 * 0.3**size * 0.7 ** (4 - size))
    assert stats.chisquare(observed, expected).pvalue > 1e-3
    assert [] in batches


def test_at_rate_one_everybody_is_drawn(entropy):
    for sampler in (PoissonSampling(1.0), FullParticipation(), FixedSizeSampling(5, 5)):
        assert sampler.batches(5, 2, entropy) == [[0, 1, 2, 3, 4]] * 2


def test_of_a_fixed_size_every_set_has_the_same_chance(entropy):
    sets = Counter(map(tuple, FixedSizeSampling(2, 5).batches(5, 10_000, entropy)))
    assert sets.keys() == set(combinations(range(5), 2))
    assert stats.chisquare(list(sets.values())).pvalue > 1e-3


def test_between_two_restarts_nobody_is_drawn_twice(entropy):
    batches = OncePerTree(3).batches(12, 4, entropy)
    assert sorted(chain(*batches)) == list(range(12))
    assert [len(batch) for batch in batches] == [3] * 4
    assert OncePerTree(3).batches(12, 4, entropy) != batches


def test_in_one_order_nobody_is_back_too_soon_and_all_come_round(entropy):
    turns = MinSeparation(3, 4).batches(14, 28, entropy)
    assert all(batch == sorted(set(batch)) and len(batch) == 3 for batch in turns)
    for unit in range(14):
        steps = [step for step, batch in enumerate(turns) if unit in batch]
        assert len(steps) == 6 and {later - sooner for sooner, later in pairwise(steps)} <= {4, 5}


def test_the_operating_system_can_draw_too():
    half = PoissonSampling(0.5)
    assert half.batches(40, 2, OSEntropy()) != half.batches(40, 2, OSEntropy())


def test_impossible_draws_are_refused(entropy):
    with pytest.raises(PrivacyError, match="the plan is for 5 units, and there are 4"):
        FixedSizeSampling(2, 5).batches(4, 1, entropy)
    with pytest.raises(PrivacyError, match="11 units cannot take part once each in 4 steps of 3"):
        OncePerTree(3).batches(11, 4, entropy)
    with pytest.raises(PrivacyError, match="11 units, 3 a step, cannot keep away for 4 steps"):
        MinSeparation(3, 4).batches(11, 4, entropy)

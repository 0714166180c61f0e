"""Intervals of differences, by simulation: they hold the truth as often as they say."""

import numpy as np
import pytest
from scipy.stats import t

from murmura.audit.differences import dealt, nearest, of_means
from murmura.measure.figure import interval
from murmura.streams import Stream


def alike(rng, texts, records, topics):
    """Nearness of texts to as many records of two sides, all drawn alike, though texts are about few of 50 topics."""
    centres = rng.normal(size=(50, 6))
    written = rng.choice(50, size=topics)[rng.integers(topics, size=texts)]
    about = np.concatenate([written, rng.integers(50, size=2 * records)])
    points = centres[about] + 0.3 * rng.normal(size=(len(about), 6))
    return np.exp(-np.linalg.norm(points[:texts, None] - points[texts:], axis=2)).reshape(texts, 2, records)


def test_which_records_stand_on_which_side_is_chance_too():
    """Where all are alike 0 is inside. Of 40 draws an interval that misses 5 % misses 7 or more with probability 0.003;
    a bootstrap of the texts alone missed 27 of them."""
    rng, missed = np.random.default_rng(0), 0
    for _ in range(40):
        low, high = nearest(alike(rng, 20, 12, 3).transpose(0, 2, 1), rng)
        missed += not low <= 0 <= high
    assert missed < 7


def test_what_is_repeated_of_many_records_is_seen():
    near = np.full((40, 20, 2), 0.3)
    near[np.arange(40), np.arange(40) % 20, 0] = 1.0
    low, high = nearest(near, np.random.default_rng(0))
    assert 0.3 < low < 0.45 and high > 0.95


def test_the_interval_is_that_of_every_way_to_change_sides():
    """Spelt out for eight pairs: its reach is that which no more than 5 % of all 256 ways come beyond."""
    near = np.random.default_rng(1).uniform(size=(3, 8, 2))
    low, high = nearest(near, np.random.default_rng(0))
    sizes = []
    for number in range(256):
        ways = np.array([number >> place & 1 for place in range(8)])
        own, other = (near[:, np.arange(8), side].max(axis=1).mean() for side in (ways, 1 - ways))
        sizes.append(abs(own - other))
    found = (near.max(axis=1)[:, 0] - near.max(axis=1)[:, 1]).mean()
    assert (low + high) / 2 == pytest.approx(found)
    assert (high - low) / 2 == pytest.approx(sorted(sizes)[243])  # 12 of 256 come further, and 13 are more than 5 %


@pytest.mark.parametrize(("pairs", "shown"), [(1, False), (5, False), (6, True), (12, True)])
def test_fewer_than_six_pairs_show_nothing(pairs, shown):
    """Though each text repeats one of the sites' own, and none of the others."""
    near = np.stack([np.eye(pairs), np.zeros((pairs, pairs))], axis=2)
    low, high = nearest(near, np.random.default_rng(0))
    assert (low > 0) is shown and high == 1.0


def texts(letter, number):
    return [f"{letter}{place}" for place in range(number)]


def sides(pairs):
    """The texts of either side, pair by pair."""
    known = [*texts("a", 70), *texts("b", 70), *texts("o", 80)]
    return [[[text for text in known if lot.best(text)] for lot in pair] for pair in pairs]


def test_each_model_has_as_many_others_of_its_own_in_lots_of_one_size():
    first, second = map(sides, dealt([texts("a", 70), texts("b", 3)], texts("o", 80), Stream(0)))
    assert all(len(own) == len(others) for own, others in first + second)
    assert [len(own) for own, _ in first].count(2) == 20 and len(first) == 50
    assert {text for own, _ in first for text in own} == set(texts("a", 70))
    mine, theirs = ({text for _, others in some for text in others} for some in (first, second))
    assert len(mine) == 70 and len(theirs) == 3 and not mine & theirs


def test_others_that_two_models_share_are_in_the_same_pair_of_both():
    first, second = map(sides, dealt([texts("a", 4), texts("b", 9)], texts("o", 5), Stream(0)))
    assert [len(others) for _, others in first].count(1) == 4
    assert [others for _, others in second] == [[other] for [other] in (pair[1] for pair in second)]
    assert all(not one or one == other for (_, one), (_, other) in zip(first, second, strict=True))


def close(rng, number):
    """ROUGE-L of answers of which one in five repeats its record; their mean is 0.36."""
    return np.where(rng.random(number) < 0.2, 1.0, rng.beta(2, 8, number))


@pytest.mark.parametrize("counts", [(2, 2), (3, 40), (6, 5), (30, 30)])
def test_a_difference_of_means_of_few_is_inside(counts):
    """Of 400 draws an interval that misses 5 % misses 32 or more with probability 0.005; where there are few a
    bootstrap misses 61 to 161 of them, Student's alone up to 70."""
    rng, missed = np.random.default_rng(0), 0
    for _ in range(400):
        low, high = of_means(close(rng, counts[0]).tolist(), rng.beta(2, 5, counts[1]).tolist())
        missed += not low <= 0.36 - 2 / 7 <= high
    assert missed < 32


def test_of_many_each_mean_has_students_interval():
    """As many of both, equally spread: √2 times the reach of either."""
    values = np.random.default_rng(0).beta(5, 5, 25)
    low, high = of_means(values.tolist(), (1 - values).tolist())
    reach, found = 2**0.5 * t.ppf(0.975, 24) * values.std(ddof=1) / 5, 2 * values.mean() - 1
    assert (low, high) == pytest.approx((found - reach, found + reach))


def test_values_that_are_all_alike_have_the_interval_of_a_share():
    low, high = of_means([1.0] * 6, [0.0] * 5)
    assert high == 1.0 and 1 - low == pytest.approx(np.hypot(1 - interval(1.0, 6)[0], interval(0.0, 5)[1]))
    low, high = of_means([0.0] * 40, [0.0] * 40)
    assert high == -low == pytest.approx(interval(0.0, 40)[1])


def test_of_one_value_nothing_is_known():
    assert of_means([0.5], [0.0]) == of_means([0.5], [0.1, 0.2, 0.3]) == (-1.0, 1.0)

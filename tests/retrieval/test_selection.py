from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murmura.retrieval.centres import Centres
from murmura.retrieval.selection import covering, facility_location, greedy

EMPTY = Centres(np.zeros((0, 2), np.float32), np.zeros(0, np.int64))


def site(points, sizes):
    return Centres(np.asarray(points, np.float32), np.asarray(sizes, np.int64))


def line(*sizes):
    """A site whose clusters are ever less like (1, 0), which is the first."""
    angles = np.linspace(0, np.pi, len(sizes))
    return site(np.stack([np.cos(angles), np.sin(angles)], axis=1), sizes)


THREE = [
    site([(1, 0), (0, 1), (-1, 0)], [5, 3, 2]),
    site([(0.9, 0.1), (0, 1), (-1, 0)], [6, 3, 1]),
    site([(1, 0), (0.6, 0.8), (-0.8, -0.6)], [4, 5, 2]),
]


def test_three_sites_by_hand():
    """Of site 1 the two least like (1, 0) are kept, of which (0, 1) is larger; of site 2 the one least like both."""
    assert greedy(THREE) == greedy(THREE, filter_rule="text") == [0, 1, 2]


def test_dot_products_with_the_chosen_add_up():
    """Of site 2's centres the shorter one is less like the two chosen by dot product, but not by cosine."""
    sites = [site([(1, 0)], [1]), site([(0, 1)], [1]), site([(0.9, 0.3), (0.5, 0.5)], [1, 1])]
    # s = 1.2 and 1.0, while the cosines add up to 1.26 and 1.41
    assert greedy(sites) == [0, 0, 1]


@pytest.mark.parametrize(
    ("clusters", "sites", "turn", "pseudocode", "text", "default"),
    [
        *[(10, 10, 1, 9, 9, 9), (10, 10, 9, 1, 1, 1)],
        *[(40, 10, 1, 9, 39, 39), (40, 10, 9, 1, 31, 31), (10, 3, 2, 1, 8, 8)],  # more clusters than sites
        *[(10, 100, 9, 1, 1, 1), (10, 100, 10, 5, 1, 5), (10, 100, 99, 5, 1, 5)],  # more sites than clusters
        *[(3, 10, 2, 1, 1, 1), (3, 10, 3, 1, 1, 1), (1, 10, 1, 1, 1, 1), (1, 10, 5, 1, 1, 1)],
    ],
)
def test_how_many_clusters_a_site_chooses_from(clusters, sites, turn, pseudocode, text, default):
    """A site whose clusters are the larger the more they are like what is chosen takes the most alike it may."""
    before = [site([(1, 0)], [1])] * turn
    after = [site([(1, 0)], [1])] * (sites - turn - 1)
    tested = line(*range(100, 100 - clusters, -1))
    for rule, kept in (("pseudocode", pseudocode), ("text", text), (None, default)):
        assert greedy([*before, tested, *after], filter_rule=rule)[turn] == clusters - kept


def test_the_last_of_a_few_sites_is_not_left_the_one_record_that_is_like_no_other():
    """Of eight records of bicycles and one of a kitchen the pseudo-code's rule would fetch for the kitchen."""
    bicycles = site([(1, 0), (0.8, 0.1), (0.7, 0.3)], [3, 3, 2])
    last = site([(0.9, 0.1), (0.8, 0.3), (-0.1, 1)], [4, 4, 1])
    assert greedy([bicycles, last], filter_rule="pseudocode") == [0, 2]
    assert greedy([bicycles, last]) == [0, 1]


def test_of_equals_the_first_is_taken():
    same = site([(1, 0), (1, 0), (1, 0)], [2, 3, 3])
    # The first site takes the first of the largest; of the next, the stable order by likeness keeps the first two.
    assert greedy([same, same, same]) == [1, 1, 0]


def test_sites_choose_in_the_order_that_is_given():
    assert greedy(THREE, order=[2, 1, 0]) == [2, 0, 1]


def test_a_site_without_centres_counts_as_absent():
    assert greedy([EMPTY, THREE[0], EMPTY, *THREE[1:]]) == [None, 0, None, 1, 2]
    assert greedy([EMPTY]) == facility_location([EMPTY]) == [None]
    assert greedy([]) == facility_location([]) == []


def represented(sites, chosen):
    """How well chosen centres stand for all texts, by what it is defined by: a centre is the mean of unit vectors, so
    its dot product with another one's direction is its texts' mean cosine."""
    picked = [np.float64(own.points[row]) for own, row in zip(sites, chosen, strict=True) if row is not None]
    ways = [one / (np.linalg.norm(one) or 1.0) for one in picked]
    every = [(size, point) for own in sites for point, size in zip(np.float64(own.points), own.sizes, strict=True)]
    return sum(size * max([0.0, *(float(point @ way) for way in ways)]) for size, point in every) / max(
        sum(size for size, _ in every), 1
    )


def test_the_mean_cosine_of_the_texts_is_known_from_centres_and_sizes():
    texts = np.array([(1, 0), (0, 1), (0.6, 0.8)], np.float32)
    sites = [site([texts[:2].mean(axis=0), texts[2]], [2, 1]), site([(-1, 0)], [3])]
    # By (0.6, 0.8): itself 1, the others (0.6 + 0.8) / 2 each; of the other site's cluster −0.6, which counts as 0.
    assert represented(sites, [1, None]) == pytest.approx((1 + 0.6 + 0.8) / 6)
    assert represented(sites, [1, 0]) == pytest.approx((1 + 0.6 + 0.8 + 3) / 6)
    assert represented(sites, [None, None]) == 0.0


def plain_greedy(sites):
    """Every gain computed anew in every step, by what it is defined by."""
    chosen = [None] * len(sites)
    for _ in range(sum(1 for own in sites if len(own))):
        now = represented(sites, chosen)
        found = []
        for place, own in enumerate(sites):
            for row in range(len(own)) if chosen[place] is None else ():
                gain = represented(sites, [*chosen[:place], row, *chosen[place + 1 :]]) - now
                found.append((-gain, place, row))
        _, place, row = min(found)
        chosen[place] = row
    return chosen


coordinates = st.floats(-1, 1, width=32).filter(lambda x: abs(x) > 0.01 or x == 0)
some_centres = st.lists(st.tuples(st.tuples(coordinates, coordinates), st.integers(1, 9)), min_size=0, max_size=4).map(
    lambda rows: site(np.reshape([point for point, _ in rows], (-1, 2)), [size for _, size in rows])
)


@given(sites=st.lists(some_centres, min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_facility_location_reaches_half_of_the_best(sites):
    chosen = facility_location(sites)
    value = represented(sites, chosen)
    every = product(*(range(len(own)) if len(own) else [None] for own in sites))
    assert value >= max(represented(sites, picks) for picks in every) / 2 - 1e-9
    assert [pick is None for pick in chosen] == [len(own) == 0 for own in sites]


@pytest.mark.parametrize("seed", range(5))
def test_the_lazy_choice_is_that_of_plain_greedy(seed):
    rng = np.random.default_rng(seed)
    sites = [site(rng.normal(size=(6, 5)) / 3, rng.integers(1, 30, size=6)) for _ in range(9)]
    assert facility_location(sites) == plain_greedy(sites)


def test_of_equal_gains_the_first_is_taken():
    twins = site([(1, 0), (1, 0), (1, 0)], [1, 2, 2])
    assert facility_location([twins, twins]) == [0, 0]


def test_facility_location_covers_what_the_greedy_rule_leaves_out():
    """The rule lets the first site choose without the second, and then drops whatever is like that."""
    sites = [site([(0.9, -0.1), (0, 1)], [9, 8]), site([(1, 0), (-0.1, -1)], [20, 1])]
    assert greedy(sites) == [0, 1]
    assert facility_location(sites) == [1, 0]
    assert represented(sites, [1, 0]) > represented(sites, [0, 1])


@pytest.fixture
def pool():
    """120 unit vectors."""
    vectors = np.random.default_rng(3).normal(size=(120, 4))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def reached(vectors, ranked, chosen):
    """What ``covering`` maximises, by what it is defined by."""
    union = sorted({int(row) for own in ranked for rows in own for row in rows})
    fetched = {int(row) for own, pick in zip(ranked, chosen, strict=True) if pick is not None for row in own[pick]}
    if not fetched:
        return 0.0
    return float(np.maximum(0, vectors[union] @ vectors[sorted(fetched)].T).max(axis=1).mean())


@pytest.mark.parametrize("seed", range(5))
def test_covering_reaches_half_of_the_best_and_what_plain_greedy_does(pool, seed):
    rng = np.random.default_rng(seed)
    ranked = [[rng.choice(120, 6, replace=False) for _ in range(count)] for count in (3, 4, 0, 3)]
    chosen, plain = covering(ranked, pool), [None] * 4
    for _ in range(3):
        gains = {
            (place, row): reached(pool, ranked, [*plain[:place], row, *plain[place + 1 :]])
            for place, own in enumerate(ranked)
            for row in range(len(own))
            if plain[place] is None
        }
        place, row = max(gains, key=gains.get)
        plain[place] = row
    every = product(*(range(len(own)) if own else [None] for own in ranked))
    assert chosen == plain and chosen[2] is None
    assert reached(pool, ranked, chosen) >= max(reached(pool, ranked, picks) for picks in every) / 2


def test_covering_sees_what_two_centres_have_in_common(pool):
    near = np.argsort(-(pool @ pool[0]))
    ranked = [[near[:30]], [near[:29], near[80:]], [np.arange(0), near[40:60]]]
    assert covering(ranked, pool) == [0, 1, 1]


def test_records_that_count_are_drawn_by_the_seed_where_there_are_many(pool, monkeypatch):
    import murmura.retrieval.selection as module

    seen, ranked = [], [[np.arange(70), np.arange(50, 120)]]
    own = module.closest
    monkeypatch.setattr(module, "closest", lambda wanted, rows, **at: seen.append(wanted) or own(wanted, rows, **at))
    for seed in (0, 0, 1):
        covering(ranked, pool, targets=20, seed=seed)
    first, again, other = seen[::2]
    assert first.shape == (20, 4) and np.array_equal(first, again) and not np.array_equal(first, other)
    covering(ranked, pool)
    assert np.array_equal(seen[-1], pool)


def test_centres_for_which_nothing_is_there_are_chosen_all_the_same(pool):
    nothing = np.zeros(0, np.int64)
    assert covering([[nothing, nothing], []], pool) == [0, None]
    assert covering([[nothing], [np.arange(3)]], pool) == [0, 0]
    assert covering([], pool) == []

"""How many neighbours are enough: against another library, every small case, and chance."""

import random
from itertools import chain, combinations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import hypergeom

from murmura.aggregation.config import SecureSumConfig
from murmura.federation.wire import neighbours
from murmura.federation.wire.masks import OFFER_BYTES, Roll, protocol_bytes
from murmura.federation.wire.neighbours import Graph, degree, fewest, graph


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 400), st.data())
def test_quantiles_are_those_of_the_hypergeometric_distribution(population, data):
    marked, drawn = data.draw(st.integers(0, population)), data.draw(st.integers(1, population))
    bits = data.draw(st.integers(1, 40))
    found = neighbours._most(population, marked, drawn, 1 << bits)
    law = hypergeom(population, marked, drawn)
    assert law.sf(found) <= 2.0**-bits * (1 + 1e-6)
    assert found == max(0, drawn + marked - population) or found == 0 or law.sf(found - 1) > 2.0**-bits * (1 - 1e-6)


@pytest.mark.parametrize("count", [200, 1_000, 10_000])
def test_against_a_server_that_lies_they_are_the_fewest_that_meet_the_bounds(count):
    """Recomputed with SciPy; and two neighbours fewer meet them with no threshold."""
    corrupted, dropouts, security, correctness = count // 3 - 1, count // 20, 40, 20

    def meets(k, t):
        helped = t - 2 - k // 2  # most helpers on one side with which a seed at an edge cannot be joined
        cut = count * hypergeom(count - 1, corrupted, k // 2).sf(helped)
        lost = count * hypergeom(count - 1, dropouts, k).sf(k - t)
        return helped >= 0 and cut <= 2.0**-security and lost <= 2.0**-correctness

    found = fewest(count, corrupted, dropouts, security, correctness)
    assert meets(found.neighbours, found.threshold)
    assert not any(meets(found.neighbours - 2, t) for t in range(1, found.neighbours - 1))
    assert not meets(found.neighbours, found.threshold - 1)


def test_of_random_orders_no_more_are_bad_than_the_bound_allows():
    """With a bound of an eighth, and not a bound that holds whatever the order: some are bad."""
    count, corrupted, dropouts, drawn = 60, 19, 5, random.Random(0)
    found = fewest(count, corrupted, dropouts, 3, 3)
    half, helped = found.neighbours // 2, found.threshold - 2 - found.neighbours // 2
    cut = lost = 0
    for _ in range(4000):
        order = drawn.sample(range(count), count)
        helps, gone = [place < corrupted for place in order], [place >= count - dropouts for place in order]
        cut += any(sum(helps[(at + step) % count] for step in range(1, half + 1)) > helped for at in range(count))
        around = [step for step in range(-half, half + 1) if step]
        lost += any(
            found.neighbours - sum(gone[(at + step) % count] for step in around) < found.threshold
            for at in range(count)
        )
    assert 0 < cut / 4000 <= 1 / 8 and lost / 4000 <= 1 / 8


def cut_off(count, half, threshold, helpers):
    """Members of a sum whose own sum could be had without that of all honest members, whichever the server names as
    such after it has seen the graph: nothing if there are none."""
    ring = Graph(tuple(range(count)), half, threshold)
    honest = [place for place in range(count) if place not in helpers]
    for members in chain.from_iterable(combinations(honest, size) for size in range(2, len(honest) + 1)):
        left = set(members)
        joined = {one for one in members if len(set(ring.holders(one)) & (left | helpers)) >= threshold}
        while left:
            part, new = set(), {min(left)}
            while new:
                part |= new
                new = {other for one in new for other in ring.holders(one) if other in members} - part
            left -= part
            if part <= joined and len(part) < len(members):
                return part
    return set()


@pytest.mark.parametrize("helpers", [set(), {0}, {3, 8}, {2, 3}, {1, 2, 6}])
@pytest.mark.parametrize(("count", "half"), [(11, 1), (11, 2), (12, 3)])
def test_whoever_is_said_to_have_dropped_out_nothing_but_the_sum_of_all_can_be_had(count, half, helpers):
    helped = max(sum((at + step) % count in helpers for step in range(1, half + 1)) for at in range(count))
    if half + helped + 2 <= 2 * half + 1:
        assert cut_off(count, half, half + helped + 2, helpers) == set()


def test_with_a_share_less_some_could_be_cut_off():
    assert cut_off(12, 2, 3, set()) and not cut_off(12, 2, 4, set())


def roll(count, mark=0, asked=None):
    offers = tuple(bytes([mark]) * (OFFER_BYTES - 2) + place.to_bytes(2) for place in range(count))
    return Roll(("run", 1, "vote", asked or count, "number"), tuple(map(str, range(count))), offers)


def test_neighbours_are_mutual_and_each_has_a_row_for_the_other():
    found = graph(roll(300), SecureSumConfig())
    assert not found.is_full and found.rows == degree(300, 300, SecureSumConfig()).neighbours + 1
    for place in range(300):
        holders = found.holders(place)
        assert len(set(holders)) == found.rows and place in holders
        assert all(place in found.holders(one) and holders[found.row(place, one)] == one for one in holders)


def test_the_order_follows_from_all_that_was_signed():
    found = graph(roll(300), SecureSumConfig())
    again = graph(roll(300), SecureSumConfig(range=8.0))
    other = graph(roll(300, mark=1), SecureSumConfig())
    assert found.order == again.order != other.order
    assert sorted(found.order) == list(range(300))


def test_all_are_neighbours_below_a_hundred_sites_or_where_fewer_are_not_enough():
    auto, every, some = SecureSumConfig(), SecureSumConfig(neighbours="all"), SecureSumConfig(neighbours=97)
    assert degree(99, 99, auto) is None and degree(100, 100, auto).neighbours < 99
    assert degree(1000, 1000, every) is None
    assert degree(1000, 1000, some) == degree(1000, 1000, auto)  # never fewer than are safe
    assert degree(1000, 1000, SecureSumConfig(neighbours=401)).neighbours == 402
    assert degree(98, 98, some) is None and degree(1000, 1000, SecureSumConfig(threshold=1)) is None
    found = graph(roll(50), auto)
    assert found.is_full and found.threshold == auto.least(50) and found.holders(3) == tuple(range(50))


def test_where_some_never_gave_keys_those_that_help_the_server_are_a_larger_share_of_the_rest():
    assert degree(700, 1000, SecureSumConfig()).threshold > degree(700, 700, SecureSumConfig()).threshold


def test_more_that_drop_out_take_more_neighbours():
    few, many = (degree(1000, 1000, SecureSumConfig(dropouts=share)).neighbours for share in (0.02, 0.1))
    assert few < degree(1000, 1000, SecureSumConfig()).neighbours < many


def test_bytes_are_those_of_the_messages():
    assert protocol_bytes(1000) == (224 + 115 * 1000, (160 + 64 + 82) * 1000)
    assert protocol_bytes(1000, 264) == (224 + 64 + 115 * 265, 224 * 1000 + (82 + 64) * 265)


def test_the_table_in_the_documents_is_what_is_computed():
    lines = (Path(__file__).parents[3] / "docs" / "secure_sum.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    counts = next([int(cell.replace(",", "")) for cell in row[1:]] for row in rows if row[0] == "sites")
    told = {row[0].split()[-1]: list(map(int, row[1:])) for row in rows if row[0].startswith("k, dropouts")}
    assert len(told) == 2
    for share, found in told.items():
        options = SecureSumConfig(dropouts=float(share))
        assert found == [degree(count, count, options).neighbours for count in counts]

import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmura.judge.prompts import ASPECTS, Ratings
from murmura.judge.verdicts import OUTCOMES, OVERALL, JudgedPair, both_orders, compare, counted

RATING = st.fixed_dictionaries({aspect: st.integers(1, 5) for aspect in ASPECTS})
RATINGS = st.builds(Ratings, RATING, RATING)
PAIRS = st.lists(st.builds(JudgedPair, RATINGS | st.none(), RATINGS | st.none()), max_size=12)
HALF = {"win": 1.0, "tie": 0.5, "lose": 0.0}


@pytest.mark.parametrize("one", OUTCOMES)
@pytest.mark.parametrize("other", OUTCOMES)
def test_two_orders_are_one_outcome(one, other):
    mean = (HALF[one] + HALF[other]) / 2  # the paper's rule is that of this mean
    assert both_orders(one, other) == ("win" if mean > 0.5 else "lose" if mean < 0.5 else "tie")


@given(RATINGS)
def test_overall_is_the_mean_of_the_aspects(ratings):
    first, second = (sum(own.values()) / 4 for own in (ratings.first, ratings.second))
    assert compare(ratings) == ("win" if first > second else "lose" if first < second else "tie")
    assert compare(ratings.swapped) == {"win": "lose", "lose": "win", "tie": "tie"}[compare(ratings)]


@given(PAIRS)
def test_figures_are_those_of_a_count_by_hand(pairs):
    found = counted(pairs)
    whole = [pair for pair in pairs if pair.ours_first and pair.ours_second]
    assert found["asked"] == 2 * len(pairs)
    assert found["unparsed"] == sum((pair.ours_first is None) + (pair.ours_second is None) for pair in pairs)
    for aspect in (OVERALL, *ASPECTS):
        told = [both_orders(compare(p.ours_first, aspect), compare(p.ours_second.swapped, aspect)) for p in whole]
        assert found["counts"][aspect] == {outcome: told.count(outcome) for outcome in OUTCOMES}


@given(PAIRS)
def test_turned_sides_lose_what_they_won(pairs):
    turned = [JudgedPair(p.ours_second and p.ours_second.swapped, p.ours_first and p.ours_first.swapped) for p in pairs]
    swapped = [JudgedPair(p.ours_second, p.ours_first) for p in pairs]
    one, other = counted(pairs), counted(turned)
    assert one["counts"][OVERALL] == other["counts"][OVERALL]  # the same ratings, told in another order
    theirs = counted(swapped)  # the same verdicts, seen from the other side
    assert [one["counts"][OVERALL][o] for o in OUTCOMES] == [theirs["counts"][OVERALL][o] for o in reversed(OUTCOMES)]
    assert one["turned"] == theirs["turned"] and one["first"] == theirs["first"]

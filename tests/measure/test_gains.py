"""How many sites gain."""

from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmura.measure.gains import Gains, summary
from murmura.runs.schema import PersonalModel


def models(*changes):
    rows = enumerate(changes)
    return [PersonalModel(f"s{n}", 3, 2.0, 2.0 + change, 2.0 + change, 2.0, 2.0, 2.0) for n, change in rows]


@given(st.lists(st.sampled_from([-0.5, 0.0, 0.5]), min_size=1, max_size=14))
def test_the_sign_test_is_that_of_a_fair_coin(changes):
    """Two-sided: all outcomes of n tosses that are no likelier than this one."""
    found = Gains.of(models(*changes), "before", "shared")
    gain, pay = changes.count(-0.5), changes.count(0.5)
    assert (found.sites, found.gain, len(found.pay)) == (len(changes), gain, pay)
    n = gain + pay
    assert found.p == pytest.approx(sum(comb(n, k) for k in range(n + 1) if comb(n, k) <= comb(n, gain)) / 2**n)


def test_the_interval_is_that_of_clopper_and_pearson():
    """With all of n gaining, its lower end is (α/2)^(1/n)."""
    found = Gains.of(models(*[-1.0] * 6), "before", "shared")
    assert (found.low, found.high) == (pytest.approx(0.025 ** (1 / 6)), 1.0)
    assert found.words == "6 of 6 sites gain (sign test: p = 0.031; 54.1 to 100.0 % of such sites)"


def test_who_pays_is_named():
    first, second, both = summary(models(-1.0, 1.0, -1.0))
    assert "2 of 3 sites gain" in first and first.endswith("s1 pays.")
    assert "0 of 3 sites gain" in second and "pay" not in second.partition("gain")[2]
    assert both.endswith("s1 pays.")

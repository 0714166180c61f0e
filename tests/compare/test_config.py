import pytest

from murmura.compare.config import SEARCH, CompareConfig
from murmura.errors import ConfigError


def parse(**table):
    return CompareConfig.parse(table, "my.toml [compare]")


def test_sizes_have_units():
    assert parse(limits={"max_bytes": "50MB"}).limits.max_bytes == 50_000_000
    with pytest.raises(ConfigError, match=r"max_bytes.*kB, MB, GB or TB"):
        parse(limits={"max_bytes": "5 apples"})


@pytest.mark.parametrize("most", [60, 0.3, "0.4"])
def test_a_leakage_that_is_no_auc_is_refused(most):
    with pytest.raises(ConfigError, match=r"'limits\.max_leakage' = .*: must be an AUC from 0\.5 \(guessing\) to 1"):
        parse(limits={"max_leakage": most})


def test_seeds_are_a_number_or_a_list_and_those_of_the_search_are_others():
    assert list(parse(seeds=2).chosen_seeds) == [0, 1]
    assert list(parse(seeds=[5, 3]).chosen_seeds) == [5, 3]
    assert set(parse(search_seeds=3).seeds_of_search).isdisjoint(range(SEARCH))


@pytest.mark.parametrize("seeds", [0, [], [1, 1], [SEARCH], [-1]])
def test_seeds_must_differ_and_be_no_seeds_of_a_search(seeds):
    with pytest.raises(ConfigError, match="seeds"):
        parse(seeds=seeds)


def test_no_arm_is_tuned_more_than_another():
    with pytest.raises(ConfigError, match="FedProx has 3 rates, and others have 2"):
        parse(rates=[1e-3, 2e-3], arms=[{"name": "FedProx", "rates": [1, 2, 3]}])
    for rates in ([1e-3, 1.0000001e-3], [1e-3, -1e-3]):  # the first would be kept in one folder
        for tables in ({"rates": rates}, {"rates": [1e-3, 2e-3], "arms": [{"name": "FedProx", "rates": rates}]}):
            with pytest.raises(ConfigError, match="rates above 0 that differ in their first six digits"):
                parse(**tables)
    given = {"name": "given", "rates": [1]}
    assert parse(rates=[1e-3, 2e-3], arms=[given]).arms[0].rates == [1]
    with pytest.raises(ConfigError, match="given has 'rates' and 'rate_of'"):
        parse(rates=[1e-3, 2e-3], arms=[given | {"rate_of": "FedAvg"}])


def test_a_grid_may_be_written_with_dots_or_as_tables():
    plain, nested = {"method.beta": [0, 1]}, {"method": {"beta": [0, 1]}}
    assert parse(grid=plain).grid == parse(grid=nested).grid == plain
    with pytest.raises(ConfigError, match="has no value"):
        parse(grid={"method.beta": []})

from types import SimpleNamespace

import numpy as np
import pytest

from murmura.augment.config import AugmentConfig
from murmura.augment.strategies import FromPool, RandomRows, sent, strategy, weigh
from murmura.federation.wire.messages import size
from murmura.streams import Stream
from tests.retrieval.pools import make_pool, unit

SITES = ["a", "b", "c"]
SERVER = SimpleNamespace(stream=Stream(0))


@pytest.fixture
def pool(tmp_path):
    return make_pool(tmp_path / "pool", unit(20, 4))


def drawn(pool, *, withheld=None, round=1, **options):
    chosen = RandomRows(AugmentConfig(pool="pool", strategy="random", **options), withheld)
    return {site: one.rows for site, one in chosen.choose(SERVER, None, SITES, pool, round).items()}


def test_random_rows_are_different_ones_for_each_site_and_round_and_the_same_again(pool):
    rows = drawn(pool, records=8)
    assert all(len(set(one)) == 8 for one in rows.values())
    assert len({tuple(one) for one in rows.values()}) == 3
    assert all((rows[site] == drawn(pool, records=8)[site]).all() for site in SITES)
    assert any((rows[site] != drawn(pool, records=8, round=2)[site]).any() for site in SITES)


def test_no_row_goes_to_two_sites_where_that_is_asked_for_and_the_last_ones_get_what_is_left(pool):
    rows = drawn(pool, records=8, dedup="all")
    assert [len(rows[site]) for site in SITES] == [8, 8, 4]
    assert len(np.unique(np.concatenate(list(rows.values())))) == 20


def test_nobody_is_given_what_is_withheld(pool):
    rows = drawn(pool, records=20, withheld=np.array([0, 7]))
    assert all(set(range(20)) - {0, 7} == set(one) for one in rows.values())


def test_a_budget_in_bytes_is_what_travels_and_not_more(pool):
    for budget in (1, 150, 400, 10**6):
        for rows in drawn(pool, bytes=budget).values():
            records = pool.records(rows)
            assert sum(weigh(records)) <= budget
            left = pool.records([row for row in range(20) if row not in rows])
            assert not left or sum(weigh(records)) + max(weigh(left)) > budget
    records = pool.records([0, 1, 2])
    travelling = size({"records": [sent(record) for record in records]})
    assert travelling == sum(weigh(records)) - 2 + len('{"records": []}')


def test_every_name_of_a_strategy_has_one():
    for name in AugmentConfig.model_fields["strategy"].annotation.__args__:
        made = strategy(AugmentConfig(pool=None if name == "self-instruct" else "pool", strategy=name))
        assert made.title and bool(made.private) == bool(made.asks) == (name != "random")
        assert not isinstance(made, FromPool) or bool(made.scored_by) == (name != "random")

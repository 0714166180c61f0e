"""What centres of clusters give away."""

import numpy as np
import pytest

from murmura.audit.centres import Guess, guesses, shares
from murmura.retrieval.centres import Centres, cluster
from tests.retrieval.pools import devices_asked, unit


def centres(points, sizes):
    return Centres(np.asarray(points, np.float32), np.asarray(sizes, np.int64))


def test_a_centre_of_one_record_is_that_record():
    own = {"a": unit(12, 16, seed=1), "b": unit(12, 16, seed=2)}
    sent = {(1, site): cluster(vectors, 12, seed=0) for site, vectors in own.items()}
    found = guesses(sent, own, unit(200, 16, seed=3))
    assert [one.whose for one in found] == ["own"] * 24
    assert {one.record for one in found if one.site == "a"} == set(range(12))
    assert all(one.score == pytest.approx(1, abs=1e-6) and one.size == 1 for one in found)


def test_vectors_are_compared_where_the_model_is(monkeypatch):
    own, asked = {"a": unit(3, 8), "b": unit(3, 8, seed=1)}, devices_asked(monkeypatch)
    guesses({(1, "a"): centres(own["a"], [1, 1, 1])}, own, unit(3, 8), "cpu")
    assert asked == {"cpu"}


def test_whose_the_nearest_record_is():
    east, north, up = np.eye(3, dtype=np.float32)
    own, pool = {"a": np.stack([east]), "b": np.stack([up])}, np.stack([north])
    sent = {(1, "a"): centres([0.5 * east + 0.1 * up, 0.2 * north, 3 * up, 0 * up], [2, 3, 4, 5])}
    found = guesses(sent, own, pool)
    assert [(one.whose, one.record, one.place, one.size) for one in found] == [
        ("own", 0, 0, 2),
        ("public", None, 1, 3),
        ("another site's", None, 2, 4),
        ("public", None, 3, 5),
    ]
    assert found[2].line("sent") == {
        "target": "centres, sent",
        "site": "a",
        "round": 1,
        "centre": 2,
        "size": 4,
        "nearest": "another site's",
        "cosine": 1.0,
    }


def test_a_public_copy_of_a_record_does_not_hide_that_it_was_found():
    own = {"a": unit(3, 8)}
    assert [one.whose for one in guesses({(1, "a"): centres(own["a"], [1, 1, 1])}, own, unit(3, 8))] == ["own"] * 3


def test_shares_by_size_and_of_all():
    own = {"a": unit(6, 8, seed=1), "b": np.zeros((0, 8), np.float32)}
    points = np.concatenate([own["a"][:2], -own["a"][:2]])
    found = guesses({(1, "a"): centres(points, [1, 1, 9, 2])}, own, -own["a"])
    told = shares("sent", found, {"a": 6, "b": 0}, 6)
    assert [(one.least, one.most, one.centres, one.own) for one in told.groups] == [
        (1, 1, 2, 1.0),
        (2, 3, 1, 0.0),
        (8, None, 1, 0.0),
        (0, None, 4, 0.5),
    ]
    assert (told.pool, told.records, told.chance) == (6, 6, 0.5)
    assert told.groups[-1].low < 0.5 < told.groups[-1].high


def told(sites):
    """Of each site the rounds in which it sent centres, in each of which these were found or not."""
    return [
        Guess(site, round, place, 1, "own" if hit else "public", None, 1.0)
        for site, (rounds, hits) in sites.items()
        for round in range(rounds)
        for place, hit in enumerate(hits)
    ]


def test_records_that_are_clustered_again_are_no_further_evidence():
    once, often = (
        shares("sent", told({"a": (rounds, [1, 0, 0]), "b": (rounds, [1, 1])}), {"a": 9, "b": 9}, 5).groups[-1]
        for rounds in (1, 10)
    )
    assert once == often and often.centres == 5


def test_a_site_that_sent_more_often_is_no_more_sites():
    """What one site sent ten times over is 20 of 22 guesses, of little more than two centres."""
    group = shares("sent", told({"a": (10, [1, 1]), "b": (1, [0, 0])}), {"a": 9, "b": 9}, 5).groups[-1]
    assert group.own == pytest.approx(20 / 22) and group.centres == 2  # 22² / (20 · 10 + 2)
    assert group.low < 0.35


def test_the_interval_over_ten_choices_holds_the_truth():
    """Two sites' 20 centres are found or not, in all ten choices alike. Of 200 draws an interval that misses 5 % misses
    20 or more with probability 0.003; with all 200 guesses as n it missed 101 of them."""
    rng, missed = np.random.default_rng(0), 0
    for _ in range(200):
        hits = {site: (10, rng.random(10) < 0.4) for site in "ab"}
        group = shares("sent", told(hits), {"a": 10, "b": 10}, 5).groups[-1]
        missed += not group.low <= 0.4 <= group.high
    assert missed < 20

"""What is fetched for centres that sites have sent: here sites are scripted, and vectors are chosen by hand."""

import math
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from murmura.augment.by_centres import ByCentres, _unfit
from murmura.augment.config import AugmentConfig
from murmura.augment.strategies import choosing, weigh
from murmura.federation.wire.messages import Reply
from murmura.privacy.reported import ReportedEpsilons
from murmura.retrieval.approximate import Index
from murmura.retrieval.projector import Projector
from murmura.streams import Stream
from tests.federation.world import journals
from tests.retrieval.pools import devices_asked, make_pool, unit

# By the golden example of Algorithm 1: sites 0 to 2 give their centres 0, 1 and 2.
CENTRES = {
    "a": ([(1, 0), (0, 1), (-1, 0)], [5, 3, 2]),
    "b": ([(0.9, 0.1), (0, 1), (-1, 0)], [6, 3, 1]),
    "c": ([(1, 0), (0.6, 0.8), (-0.8, -0.6)], [4, 5, 2]),
}


class Server:
    def __init__(self, seed=0):
        self.stream, self.events, self.told, self.runtime = Stream(seed), [], [], SimpleNamespace()
        self.event, self.tell, self.round = self.events.append, self.told.append, 1

    def may_answer(self, sites):
        return sites

    def current(self, sites):
        return {site: {"adapter": {}} for site in sites}


class Fleet:
    """Sites that answer with these centres, in another order than they are asked in."""

    def __init__(self, centres):
        self.centres, self.asked, self.left_out = centres, [], {}

    def fields(self, site):
        points, sizes = self.centres[site]
        return {"centres": table(points), "sizes": torch.tensor(sizes, dtype=torch.int64)}

    def ask(self, verb, sites, each=None, *, refused, heard, **shared):
        self.asked.append((verb, list(sites), each, shared))
        for site in reversed(sites):
            if site in self.centres:
                reply = Reply(site, self.fields(site))
                heard(reply)
                if why := refused(reply):
                    self.left_out[site] = why
                else:
                    yield reply


def table(points):
    return torch.tensor(points, dtype=torch.float32).reshape(len(points), -1 if len(points) else 2)


def towards(*cosines):
    """Unit vectors in the plane with these cosines to (1, 0)."""
    return np.array([(c, math.sqrt(1 - c * c)) for c in cosines], np.float32)


def choose(pool, centres, *, sites=None, withheld=None, round=1, server=None, **options):
    chosen = choosing(AugmentConfig(pool="pool", **{"clusters": 1} | options), withheld)
    fleet = Fleet(centres)
    return chosen, chosen.choose(server or Server(), fleet, sites or list(centres), pool, round), fleet


def rows(found):
    return {site: one.rows.tolist() for site, one in found.items()}


def test_rows_at_alpha_or_above_are_left_out_and_the_rest_is_counted_in_the_pools_own_rows(tmp_path):
    """The golden example: positions within what is left are not taken for rows of the pool."""
    pool = make_pool(tmp_path / "pool", towards(0.95, 0.9, 0.69, 0.2, 0.68))
    one = {"a": ([(1.0, 0.0)], [3])}
    _, found, _ = choose(pool, one, records=2, alpha=0.7)
    assert rows(found) == {"a": [2, 4]}
    assert found["a"].scores == pytest.approx([0.69, 0.68]) and found["a"].centres.tolist() == [0, 0]
    assert rows(choose(pool, one, records=2, alpha=0)[1]) == {"a": [0, 1]}
    assert rows(choose(pool, one, records=5, alpha=0.69)[1]) == {"a": [4, 3]}


def test_a_mean_that_is_shorter_than_1_lets_alpha_pass_more_unless_cosines_are_compared(tmp_path):
    pool = make_pool(tmp_path / "pool", towards(0.95, 0.9, 0.69, 0.2, 0.68))
    half = {"a": ([(0.5, 0.0)], [3])}
    chosen, found, _ = choose(pool, half, records=2)
    assert rows(found) == {"a": [0, 1]} and chosen.scored_by == "dot product"
    chosen, found, _ = choose(pool, half, records=2, similarity="cosine")
    assert rows(found) == {"a": [2, 4]} and chosen.scored_by == "cosine"


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_alpha_means_the_same_with_an_encoder_at_the_sites_of_their_own(tmp_path, monkeypatch, similarity):
    """A projector that changes nothing changes nothing of what α leaves out, nor what scores are called."""
    pool = make_pool(tmp_path / "pool", towards(0.95, 0.9, 0.69, 0.2, 0.68))
    half = {"a": ([(0.5, 0.0)], [3])}
    plain, found, _ = choose(pool, half, records=2, similarity=similarity)
    layers = torch.nn.Linear(2, 2, bias=False)
    torch.nn.init.eye_(layers.weight).data.mul_(7.0)  # however long a projection comes out
    monkeypatch.setattr(ByCentres, "_projector", lambda self, server, pool: Projector(layers, [], []))
    monkeypatch.setattr(ByCentres, "_encoder", lambda self, server: pool)
    star, projected, _ = choose(pool, half, records=2, similarity=similarity, site_encoder="small")
    assert rows(projected) == rows(found) and star.scored_by == plain.scored_by
    assert projected["a"].scores == pytest.approx(found["a"].scores)


@pytest.mark.parametrize("strategy", ["feddca", "coverage", "direct"])
def test_vectors_are_compared_where_the_model_is(tmp_path, monkeypatch, strategy):
    pool, asked = make_pool(tmp_path / "pool", towards(0.95, 0.9, 0.69, 0.2)), devices_asked(monkeypatch)
    config = AugmentConfig(pool="pool", strategy=strategy, records=1, clusters=3)
    choosing(config, device="cpu").choose(Server(), Fleet(CENTRES), list(CENTRES), pool, 1)
    assert asked == {"cpu"}


def test_feddca_fetches_for_one_centre_of_each_site_as_algorithm_1_picks_it(tmp_path):
    pool = make_pool(tmp_path / "pool", np.array([(1, 0), (0, 1), (-0.8, -0.6), (0, -1)], np.float32))
    chosen, found, fleet = choose(pool, CENTRES, records=1, alpha=0, clusters=3)
    assert rows(found) == {"a": [0], "b": [1], "c": [2]}
    assert {site: one.centres.tolist() for site, one in found.items()} == {"a": [0], "b": [1], "c": [2]}
    assert found["b"].sizes.tolist() == [6, 3, 1]
    assert fleet.asked == [("centres", ["a", "b", "c"], {}, {"hardest": False})]
    assert chosen.why(found["b"], 0) == "number 1 of those nearest to the site's centre 2 of 3, by dot product"


def test_the_order_of_the_sites_may_be_drawn_and_then_changes_what_is_picked(tmp_path):
    pool = make_pool(tmp_path / "pool", unit(40, 2))
    options = {"records": 2, "alpha": 0, "clusters": 3}
    given = rows(choose(pool, CENTRES, **options)[1])
    drawn = [rows(choose(pool, CENTRES, server=Server(seed), order="random", **options)[1]) for seed in range(8)]
    assert any(one != given for one in drawn)
    assert drawn[0] == rows(choose(pool, CENTRES, server=Server(0), order="random", **options)[1])


def test_coverage_picks_what_stands_best_for_all_sites(tmp_path):
    pool = make_pool(tmp_path / "pool", np.array([(1, 0), (0, 1), (-1, 0)], np.float32))
    centres = {"a": ([(1, 0), (0, 1)], [5, 4]), "b": ([(1, 0), (-1, 0)], [5, 4])}
    options = {"strategy": "coverage", "targets": "centres", "records": 1, "alpha": 0, "clusters": 2}
    assert rows(choose(pool, centres, **options)[1]) == {"a": [0], "b": [2]}


def test_coverage_picks_what_fetches_most_that_is_different(tmp_path):
    """The sites' largest clusters are alike, and would fetch the same rows."""
    pool = make_pool(tmp_path / "pool", towards(1.0, 0.98, 0.2, 0.1))
    centres = {"a": ([(1, 0)], [9]), "b": ([(0.99, 0.01), (0.1, 0.9)], [9, 1])}
    options = {"strategy": "coverage", "records": 2, "alpha": 0, "clusters": 2}
    _, found, _ = choose(pool, centres, **options)
    assert rows(found) == {"a": [0, 1], "b": [3, 2]} and found["b"].centres.tolist() == [1, 1]
    [_, other] = rows(choose(pool, centres, withheld=np.array([2]), **options)[1]).values()
    assert other == [3, 1]


def test_direct_retrieval_gives_each_centre_its_share_and_no_row_twice(tmp_path):
    pool = make_pool(tmp_path / "pool", np.array([(1, 0), (0.96, 0.28), (0.8, 0.6), (0.6, 0.8), (0, 1)], np.float32))
    near = {"a": ([(1.0, 0.0), (0.96, 0.28)], [1, 9])}
    options = {"strategy": "direct", "clusters": 2}
    _, found, _ = choose(pool, near, records=4, **options)
    assert rows(found) == {"a": [0, 1, 2, 3]} and found["a"].centres.tolist() == [0, 0, 1, 1]
    _, found, _ = choose(pool, near, records=3, **options)  # the larger cluster has the odd one
    assert rows(found) == {"a": [0, 2, 3]} and found["a"].centres.tolist() == [0, 1, 1]
    assert rows(choose(pool, near, records=4, dedup="none", **options)[1]) == {"a": [0, 1, 1, 0]}
    both = near | {"b": ([(1.0, 0.0), (0.0, 1.0)], [1, 1])}
    assert rows(choose(pool, both, records=2, dedup="all", **options)[1]) == {"a": [0, 1], "b": [2, 4]}


@pytest.mark.parametrize(("found", "kept"), [(6, [0, 1, 1, 2, 2]), (7, [0, 1, 1, 2, 3])])
def test_a_centre_that_found_less_gives_nothing_up_for_the_others(tmp_path, found, kept):
    """The last one finds no row that is left, or one: no site has more than it may, and shares stay alike."""
    pool = make_pool(tmp_path / "pool", towards(*(1 - k / 20 for k in range(found))))
    near = {"a": ([(1.0, 0.0)] * 4, [7, 9, 8, 1])}
    _, chosen, _ = choose(pool, near, records=5, strategy="direct", clusters=4)
    assert chosen["a"].centres.tolist() == kept


def test_who_comes_first_has_the_choice_where_no_row_goes_to_two_sites(tmp_path):
    pool = make_pool(tmp_path / "pool", towards(0.9, 0.8, 0.6, 0.5))
    same = {site: ([(1.0, 0.0)], [2]) for site in "ab"}
    assert rows(choose(pool, same, records=2, alpha=0)[1]) == {"a": [0, 1], "b": [0, 1]}
    assert rows(choose(pool, same, records=2, alpha=0, dedup="all")[1]) == {"a": [0, 1], "b": [2, 3]}
    chosen = choose(pool, same, records=2, alpha=0, dedup="all", withheld=np.array([1]))[1]
    assert rows(chosen) == {"a": [0, 2], "b": [3]}


@pytest.mark.parametrize("name", ["feddca", "coverage", "direct"])
@pytest.mark.parametrize("dedup", ["site", "all"])
def test_a_budget_in_bytes_is_spent_on_the_nearest(tmp_path, name, dedup):
    pool = make_pool(tmp_path / "pool", unit(60, 2))
    options = {} if name == "direct" else {"alpha": 0}
    _, found, _ = choose(pool, CENTRES, strategy=name, bytes=600, clusters=3, dedup=dedup, **options)
    for one in found.values():
        assert 300 < sum(weigh(pool.records(one.rows))) <= 600
        assert len(set(one.rows)) == len(one.rows)
    everything = np.concatenate([one.rows for one in found.values()])
    assert (len(set(everything)) == len(everything)) or dedup == "site"


@pytest.mark.parametrize("dedup", ["site", "all"])
def test_an_index_of_the_pool_proposes_and_the_run_tells_how_good_it_is(tmp_path, dedup):
    """Of so few vectors it is one list, which has all of them."""
    pool = make_pool(tmp_path / "pool", unit(60, 2))
    index = Index.make(pool)
    exact, near = ({"records": 9, "dedup": dedup, "search": search} for search in ("exact", "approximate"))
    server = Server()
    found = choose(pool, CENTRES, server=server, clusters=3, **near)[1]
    assert rows(found) == rows(choose(pool, CENTRES, clusters=3, **exact)[1])
    assert server.told == [f"public records were found by {index.about.in_words}"] and not server.events
    identity = [choosing(AugmentConfig(pool="pool", **one)).identity(pool) for one in (exact, near)]
    assert identity[1] == f"{identity[0]} {index.about.file.sha256}"  # a run does not go on with another index


def test_a_site_with_few_centres_or_none_is_told_of_and_one_that_does_not_answer_is_left_out(tmp_path):
    pool = make_pool(tmp_path / "pool", towards(0.9, 0.8, 0.6))
    server = Server()
    centres = {"a": ([(1.0, 0.0)], [2]), "b": ([], [])}
    for name in ("feddca", "coverage", "direct"):
        options = {} if name == "direct" else {"alpha": 0}
        _, found, _ = choose(
            pool, centres, sites=["a", "b", "gone"], server=server, strategy=name, records=2, clusters=4, **options
        )
        assert rows(found) == {"a": [0, 1], "b": []}
        [event] = server.events
        assert event.startswith("sites with fewer centres than the 4 asked for") and event.endswith("b 0, a 1")
        server.events.clear()


def test_the_hardest_are_asked_for_only_when_records_are_chosen_again(tmp_path):
    pool = make_pool(tmp_path / "pool", towards(0.9, 0.8, 0.6))
    one = {"a": ([(1.0, 0.0)], [2])}
    for round, hardest in ((1, False), (2, False), (3, True)):  # in round 2 of a site that has missed 1
        *_, fleet = choose(pool, one, records=1, alpha=0, every=2, focus="hardest", round=round)
        [(_, _, each, shared)] = fleet.asked
        assert shared == {"hardest": hardest} and bool(each) == hardest


def test_what_a_site_says_of_its_epsilon_is_kept_though_it_is_left_out(tmp_path):
    class Noisy(Fleet):
        def fields(self, site):
            epsilon = 4.0 if site == "b" else 3.0
            return super().fields(site) | {"privacy": {"epsilon": epsilon, "refused": None, "answers": 1}}

    server, pool = Server(), make_pool(tmp_path / "pool", towards(0.9, 0.8, 0.6))
    server.journal = journals()
    config = AugmentConfig(pool="pool", records=1, noise_multiplier=2.0, clusters=1)
    fleet = Noisy({"a": ([(1.0, 0.0)], [2]), "b": ([(math.nan, 0.0)], [1]), "c": ([(1.0, 0.0)], [2])})
    found = choosing(config).choose(server, fleet, ["a", "b", "c"], pool, 1)
    assert set(found) == {"a", "c"} and set(fleet.left_out) == {"b"}
    assert server.journal("reported", ReportedEpsilons).worst == {"epsilon": 4.0, "refused": None}


@pytest.mark.parametrize("fields", [{}, {"centres": None, "sizes": None}, {"centres": 1.0, "sizes": {"a": 1}}])
def test_what_is_no_table_of_centres_is_told_as_such(fields):
    assert re.match("'centres' is (missing|no tensor)", _unfit(fields, 1, 2))


def test_centres_are_of_the_encoders_numbers_where_texts_can_be_and_as_many_as_were_asked_for():
    points, sizes = torch.eye(2, 3), torch.tensor([2, 1])
    assert _unfit({"centres": points, "sizes": sizes}, 2, 3) is None
    for other, why in (
        (points.double() * 1e300, "is torch.float64"),
        (points * 3e38, "where no mean of texts can be"),
        (points * 1.01, "where no mean of texts can be"),
        (torch.eye(3), r"has shape \(3, 3\), expected \(2, 3\)"),
    ):
        assert re.search(why, _unfit({"centres": other, "sizes": sizes}, 2, 3))
    for other, why in ((sizes - 1, "a cluster of nothing"), (sizes > 1, "is torch.bool"), (None, "is missing")):
        assert re.search(why, _unfit({"centres": points, "sizes": other}, 2, 3))


@pytest.mark.parametrize(
    ("points", "sizes", "said"),
    [
        ([(1.0, 0.0, 0.0)], [1], r"has shape \(1, 3\), expected \(1, 2\)\. Use the same release and the same encoder"),
        ([(1.0, 0.0)], [1, 2], r"'sizes' has shape \(2,\), expected \(1,\)"),
        ([(math.nan, 0.0)], [1], "holds a NaN or an infinity"),
    ],
)
def test_a_site_whose_centres_cannot_be_used_is_left_out(tmp_path, points, sizes, said):
    pool = make_pool(tmp_path / "pool", towards(0.9, 0.8, 0.6))
    _, found, fleet = choose(pool, {"a": (points, sizes), "b": ([(1.0, 0.0)], [2])}, records=1)
    assert list(found) == ["b"] and re.search(said, fleet.left_out["a"])

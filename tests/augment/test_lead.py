"""When records are chosen, what is sent and kept, and what the run tells."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from murmura.augment.config import AugmentConfig
from murmura.augment.lead import Augmentation, asking
from murmura.augment.strategies import Chosen, FromPool, RandomRows, weigh
from murmura.data.records import Instruction
from murmura.errors import ConfigError, RunError
from murmura.federation.wire.messages import Reply, decode, encode
from murmura.measure.evaluation_set import EvaluationSet
from murmura.runs import jsontext
from murmura.runs.folder import RunFolder
from murmura.streams import Stream
from murmura.tasks import INSTRUCTION
from tests.retrieval.pools import make_pool, unit


class Fixed(FromPool):
    """Gives each site rows that it is told."""

    title, private, scored_by = "fixed", "how they feel", "cosine"
    rows = {"a": [0, 2, 4], "b": [1]}  # noqa: RUF012 (a test's own)

    def choose(self, server, fleet, sites, pool, round):
        return {
            site: Chosen(
                np.array(rows, np.int64), np.linspace(0.9, 0.1, len(rows)).astype(np.float32), sizes=np.array([1, 4])
            )
            for site, rows in self.rows.items()
            if site in sites
        }

    def why(self, chosen, place):
        return f"it stands at {place}"


class Fleet:
    sites = ("a", "b", "silent")

    def __init__(self, deaf=(), answering=()):
        self.deaf, self.answering, self.asked = deaf, set(answering), []

    def ask(self, verb, sites, each):
        self.asked.append((verb, each))
        yield from (Reply(site, {}) for site in sites if site not in self.deaf)
        if sites and set(sites) <= set(self.deaf):
            raise RunError("nobody answered")


@pytest.fixture
def server():
    noted, events = {}, []

    def fit(records):
        return SimpleNamespace(kept=[k for k, record in enumerate(records) if len(record.question) <= 1000])

    bench = SimpleNamespace(reading=SimpleNamespace(fit=fit))
    policy = SimpleNamespace(tells_sites=True)
    told = {"noted": noted, "events": events, "note": noted.__setitem__, "event": events.append}
    return SimpleNamespace(stream=Stream(0), store={}, runtime=bench, publication=policy, **told)


@pytest.fixture
def pool(tmp_path):
    return make_pool(tmp_path / "pool", unit(12, 4))  # of code and math by turns


@pytest.fixture
def make(tmp_path, pool):
    folder = RunFolder(tmp_path)
    return lambda **options: Augmentation(
        Fixed(AugmentConfig(pool="pool", **{"records": 3, "clusters": 2} | options)), pool, folder
    )


def told(tmp_path):
    return jsontext.loads((tmp_path / "augment.json").read_text())


def test_records_are_chosen_once_or_every_so_many_rounds(make):
    assert [round for round in range(1, 8) if make().strategy.config.is_due(round)] == [1]
    assert [round for round in range(1, 8) if make(every=3).strategy.config.is_due(round)] == [1, 4, 7]
    assert [round for round in range(1, 4) if make(every=1).strategy.config.is_due(round)] == [1, 2, 3]


def test_a_site_that_has_not_kept_the_round_is_given_its_records_again(make, server, tmp_path):
    lead = make()
    lead.lost(server, ["a"])  # of the round before training
    lead.before(server, Fleet(answering=["a", "b"]), 1)
    lead.lost(server, ["a", "silent"])
    assert "these sites have not kept their public records: a; they are asked again" in server.events[-1]
    lead.before(server, fleet := Fleet(answering=["a", "b"]), 2)
    assert fleet.asked[0][1].keys() == {"a"} and told(tmp_path)[-1]["sites"].keys() == {"a", "b"}
    lead.lost(server, ["b"])  # which has kept the round in which it took them
    lead.before(server, fleet := Fleet(answering=["a", "b"]), 3)
    assert fleet.asked == []


def test_sites_are_sent_their_records_and_the_run_tells_of_it(make, pool, server, tmp_path):
    fleet = Fleet()
    make(domain="code").before(server, fleet, 1)
    [(verb, each)] = fleet.asked
    assert verb == "take" and each.keys() == {"a", "b"}
    assert [Instruction(*fields) for fields in each["a"]["records"]] == pool.records([0, 2, 4])
    [row] = told(tmp_path)
    assert (row["round"], row["strategy"], row["private"], row["records"]) == (1, "fixed", "how they feel", 3)
    given = row["sites"]["a"]
    assert (given["rows"], given["missing"], given["by_domain"]) == (3, 0, {"code": 3})
    assert given["similarity"] == pytest.approx({"mean": 0.5, "least": 0.1, "most": 0.9})
    assert given["bytes"] == sum(weigh(pool.records([0, 2, 4]))) and (row["centres"], row["alone"]) == (4, 2)
    expected = [(site, f"it stands at {place}") for site, place in (("a", 0), ("b", 0), ("a", 1), ("a", 2))]
    assert [(one["site"], one["why"]) for one in row["examples"]] == expected
    assert {point["kind"] for point in row["points"]} == {"pool", "fetched"} and len(row["points"]) == 6 + 4
    assert sum(row["histogram"]["counts"]["code"]) == 3
    nearest = (pool.vectors[::2] @ pool.vectors[[0, 2, 4]].T).max(axis=1)  # row 1 is of the other domain
    assert row["coverage"] == pytest.approx(nearest.mean()) and server.noted == {"coverage": row["coverage"]}
    assert server.events == [
        "the pool has fewer records for these sites than the 3 asked for: b 1",
        "these sites have no public records of this choice: silent; they are asked again at the beginning of a later "
        "round, if they answer anything",
    ]


def test_a_site_without_centres_does_not_make_the_pool_too_small(make, server, monkeypatch):
    choose, none = Fixed.choose, np.zeros(0, np.int64)
    without = Chosen(none, none.astype(np.float32), none, sizes=none)
    monkeypatch.setattr(Fixed, "choose", lambda *args: choose(*args) | {"b": without})
    make().before(server, Fleet(), 1)
    assert len(server.events) == 1 and "no public records of this choice: silent;" in server.events[0]


def test_without_a_domain_nothing_is_measured_by_one(make, server, tmp_path):
    make().before(server, Fleet(), 1)
    [row] = told(tmp_path)
    assert row["coverage"] is None and row["points"] == [] and server.noted == {}


def test_a_site_that_has_not_taken_its_records_is_not_said_to_have_them(make, server, tmp_path):
    make().before(server, Fleet(deaf=["a"]), 1)
    [row] = told(tmp_path)
    assert list(row["sites"]) == ["b"] and {one["site"] for one in row["examples"]} == {"b"}
    assert (row["centres"], row["alone"]) == (4, 2)  # the server has its centres all the same


def test_what_does_not_fit_the_model_is_not_sent_and_counts_for_no_site(make, server, tmp_path):
    records = [Instruction(f"ask {k}" if k != 2 else "why " * 300, "", "so") for k in range(6)]
    pool, fleet = make_pool(tmp_path / "long", unit(6, 4), records=records), Fleet()
    Augmentation(make().strategy, pool, RunFolder(tmp_path)).before(server, fleet, 1)
    [(_, each)] = fleet.asked
    assert [fields[0] for fields in each["a"]["records"]] == ["ask 0", "ask 4"] and len(each["b"]["records"]) == 1
    given = told(tmp_path)[0]["sites"]["a"]
    assert (given["rows"], given["missing"]) == (2, 1) and given["similarity"]["most"] == pytest.approx(0.9)
    said = "1 of 4 public records that were chosen do not fit data.max_length, and no site is given them"
    assert said in server.events


def test_a_site_that_missed_its_records_has_them_when_it_answers_again(make, server, tmp_path):
    augmentation = make(domain="code", every=5)
    augmentation.before(server, Fleet(deaf=["a"]), 1)
    first = told(tmp_path)
    augmentation.before(server, unheard := Fleet(answering=["b"]), 2)
    assert not unheard.asked and told(tmp_path) == first
    augmentation.before(server, deaf := Fleet(deaf=["a", "silent"], answering=["a", "b"]), 3)  # which stops no run
    assert [(verb, list(each)) for verb, each in deaf.asked] == [("take", ["a"])]
    assert told(tmp_path)[0]["sites"].keys() == {"b"}
    augmentation.before(server, back := Fleet(answering=["a", "b"]), 4)
    [(verb, each)] = back.asked
    assert verb == "take" and list(each) == ["a"] and len(each["a"]["records"]) == 3
    [now] = told(tmp_path)
    assert list(now["sites"]) == ["a", "b"] and now["round"] == 1
    assert (now["centres"], now["alone"]) == (8, 4)  # two of a came three times, as the server knows
    assert now["coverage"] == first[0]["coverage"] == server.noted["coverage"]
    assert server.events[-1] == "public records for sites that had missed those of round 1: a"
    augmentation.before(server, again := Fleet(answering=["a", "b"]), 5)
    assert not again.asked


@pytest.fixture
def apart(server, tmp_path, pool):
    """Gives no row to two sites. What each is sent in a round, after which the run is resumed."""
    config = AugmentConfig(pool="pool", strategy="random", records=4, dedup="all", every=3)
    lead = Augmentation(RandomRows(config), pool, RunFolder(tmp_path))

    def asked(round, lost=(), **fleet):
        lead.before(server, now := Fleet(**fleet), round)
        lead.lost(server, lost)
        server.store = decode(encode(server.store))
        return {
            site: {tuple(one) for one in fields["records"]} for _, each in now.asked for site, fields in each.items()
        }

    return asked


def test_where_no_row_goes_to_two_sites_none_goes_to_a_late_one_either(apart):
    first, late = apart(1, deaf=["a"]), apart(2, answering=["a", "b", "silent"])
    assert late.keys() == {"a"} and len(late["a"]) == 4
    assert not late["a"] & (first["b"] | first["silent"])  # what a was to have is free again, since it has not come
    assert sum(map(len, apart(4).values())) == 12  # another choice begins with all of the pool


def test_where_no_row_goes_to_two_sites_a_site_that_has_lost_its_own_is_given_them_again(apart):
    first, again = apart(1, lost=["a"]), apart(2, answering=["a", "b", "silent"])
    assert again == {"a": first["a"]} and len(first["a"]) == 4  # all that the others have left of the pool


def test_rows_that_an_earlier_release_gave_to_sites_that_it_did_not_note_go_to_no_other(apart, server):
    first = apart(1, deaf=["a"])
    server.store["augment_given"] = torch.cat(list(server.store["augment_given"].values()))
    for round in (2, 3):
        late = apart(round, lost=["a"], answering=["a", "b", "silent"])
        assert len(late["a"]) == 4 and not late["a"] & (first["b"] | first["silent"])


def test_where_cohorts_are_secret_whom_the_server_has_heard_decides_nothing(make, server):
    server.publication.tells_sites = False
    augmentation = make(every=5)
    augmentation.before(server, Fleet(deaf=["a"]), 1)
    assert server.events[-1].endswith("they are asked again at the beginning of every round")
    augmentation.before(server, fleet := Fleet(deaf=["a"], answering=["b"]), 2)
    assert [list(each) for _, each in fleet.asked] == [["a"]]


def test_only_the_last_choice_has_points_to_draw(make, server, tmp_path):
    for round in (1, 2):
        make(domain="code", every=1).before(server, Fleet(), round)
    assert [bool(row["points"]) for row in told(tmp_path)] == [False, True]


def test_noisy_centres_are_not_asked_for_twice(make, server):
    augmentation = make(noise_multiplier=1.0, every=5)
    augmentation.before(server, Fleet(deaf=["a"]), 1)
    augmentation.before(server, fleet := Fleet(answering=["a", "b"]), 2)
    assert not fleet.asked
    assert "they are not asked again for it, since centres that have left would cost their ε twice" in server.events[-1]


def test_what_was_told_is_kept_with_the_checkpoint_and_told_in_every_round(make, server, tmp_path):
    make(domain="code", every=2).before(server, Fleet(), 1)
    first = told(tmp_path)
    kept = decode(encode(server.store))  # as a checkpoint gives it back
    (tmp_path / "augment.json").unlink()
    server.store, server.noted = kept, {}
    server.note = server.noted.__setitem__
    fleet = Fleet()
    make(domain="code", every=2).before(server, fleet, 2)
    assert told(tmp_path) == first and server.noted and not fleet.asked
    make(domain="code", every=2).before(server, fleet, 3)
    assert [row["round"] for row in told(tmp_path)] == [1, 3] and told(tmp_path)[0] == {**first[0], "points": []}


def test_another_pool_is_refused_when_a_run_goes_on(make, server, tmp_path, pool):
    make().require_same_pool(server)  # nothing is chosen yet
    make().before(server, Fleet(), 1)
    make().require_same_pool(server)
    other = make_pool(tmp_path / "other", unit(12, 4, seed=1))
    with pytest.raises(ConfigError, match="other: this is another pool than the run was started with"):
        Augmentation(make().strategy, other, RunFolder(tmp_path)).require_same_pool(server)


def test_where_nobody_is_given_anything_that_is_told_too(make, server, tmp_path, monkeypatch):
    monkeypatch.setattr(Fixed, "rows", {"a": []})
    make(domain="code").before(server, Fleet(), 1)
    [row] = told(tmp_path)
    assert row["sites"]["a"]["rows"] == 0 and row["sites"]["a"]["similarity"] is None and row["coverage"] == 0.0
    monkeypatch.setattr(Fixed, "rows", {})
    make(domain="code").before(server, Fleet(), 1)
    assert told(tmp_path)[1]["sites"] == {}


def test_long_records_are_shown_shortened(make, server, tmp_path):
    records = [Instruction("why " * 150, "", "so"), *(Instruction(f"ask {k}", "", "so") for k in range(5))]
    long = make_pool(tmp_path / "long", unit(6, 4), records=records)
    augmentation = make()
    Augmentation(augmentation.strategy, long, RunFolder(tmp_path)).before(server, Fleet(), 1)
    assert max(len(one["text"]) for one in told(tmp_path)[0]["examples"]) == 400


def test_what_the_run_is_measured_with_is_found_in_the_pool_whatever_its_whitespace(pool):
    records = pool.records(range(12))
    held_out = Instruction(f" {records[0].instruction}", records[0].input, "another answer")
    others, asks = [records[3], Instruction("nowhere in the pool", "", "x")], [records[5].question, "nor is this"]
    assert asking(pool, EvaluationSet(INSTRUCTION, [held_out], others, asks=asks).subjects).tolist() == [0, 3, 5]
    assert asking(pool, []).tolist() == []

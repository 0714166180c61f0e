"""The base of methods that train adapters and combine them: every part of it with a method of a dozen lines."""

from functools import cache

import pytest

from murmura.errors import ConfigError, RunError
from murmura.federation.engines.local import LocalEngine
from murmura.federation.forecast import SitePart
from murmura.federation.server.checkpoint import latest
from murmura.federation.wire.messages import LATE, Failure
from murmura.measure.config import EvaluationConfig
from tests.experiment.small import method_with
from tests.federation.engines.wired import Wired
from tests.federation.world import failing, lead, make_world
from tests.methods.every_other import SGD, Alike, EveryOther, OneByOne, method
from tests.methods.harness import furthest
from tests.training.helpers import assert_close, assert_same

LISTENING = EvaluationConfig(sample=2, uploads=1)


def run(tokenizer, folder, kind=EveryOther, world=None, **options):
    return lead(tokenizer, method(kind, **options), folder, training=SGD, **(world or {}))


# ---- its parts ---------------------------------------------------------------------------------------------------


HELD = {"kind": "fedprox", "mu": 2.0}
PARTS = [
    {"local": HELD},
    {"local": "scaffold"},
    {"server": "fedavgm"},
    {"server": "fedadam"},
    {"server": "fedyogi"},
    {"server": "fedadagrad"},
    {"local": "scaffold", "server": "fedadam"},
    {"local": HELD, "server": "fedavgm", "rule": "ffa"},
    {"server": "fedadam", "rule": "rolora"},
    {"local": HELD, "rule": "flora"},
    {"server": "fedadam", "rule": "fedsa"},
]


@pytest.fixture(scope="module")
def plain(tokenizer, tmp_path_factory):
    """A rule's run without any other part, which is made once."""
    return cache(lambda rule: run(tokenizer, tmp_path_factory.mktemp("plain"), rule=rule))


@pytest.mark.parametrize("options", PARTS, ids=lambda options: "-".join(map(str, options.values())))
def test_any_part_goes_with_any_method(tokenizer, tmp_path, plain, options):
    """Each changes the result, and travels as bytes like the method's own."""
    world = run(tokenizer, tmp_path / "with", **options)
    assert furthest(world.server.adapter, plain(options.get("rule", "mean")).server.adapter) > 1e-7
    wired = run(tokenizer, tmp_path / "wired", world={"engine": Wired}, **options)
    if options.get("rule") != "flora":  # whose factors, unlike their product, hang on rounding
        assert_close(wired.server.adapter, world.server.adapter, atol=1e-5)
    assert [row["bytes_down"] for row in wired.server.rows] == [row["bytes_down"] for row in world.server.rows]


def test_a_server_that_steps_goes_on_from_its_checkpoint(tokenizer, tmp_path):
    steady = {"training": SGD.model_copy(update={"schedule": "constant"})}
    options = {"local": "scaffold", "server": "fedyogi"}
    whole = lead(tokenizer, method(rounds=3, **options), tmp_path / "whole", **steady)
    lead(tokenizer, method(rounds=2, **options), tmp_path / "part", **steady)
    again = make_world(tokenizer, one := method(rounds=3, **options), tmp_path / "part", **steady)
    again.server.restore(latest(tmp_path / "part" / "checkpoint"))
    one.lead(again.server, again.fleet)
    assert_same(again.server.adapter, whole.server.adapter)


def test_a_method_that_reads_replies_says_so_or_it_would_be_passed_by():
    class Median(EveryOther):
        def contributions(self, server, replies):
            raise AssertionError

    with pytest.raises(ConfigError, match=r"Median.contributions would be passed by.*single_replies"):
        method(Median)
    Median.traits = OneByOne.traits
    method(Median)


def test_titles_name_every_part_once():
    assert method().title == "Every other"
    options = {"local": "fedprox", "server": "fedadam", "rule": "rolora"}
    assert method(**options).title == "Every other, FedProx, FedAdam, RoLoRA"


# ---- the sum -----------------------------------------------------------------------------------------------------


SUMS = [{"rule": name} for name in ("mean", "ffa", "rolora", "fedsa")]
SUMS += [{"local": "scaffold"}, {"server": "fedadam"}, {"server": "fedavgm", "rule": "ffa"}]


@pytest.mark.parametrize("options", SUMS, ids=lambda options: "-".join(options.values()))
@pytest.mark.parametrize("weights", ["examples", None])
def test_a_sum_gives_what_single_replies_give(tokenizer, tmp_path, monkeypatch, options, weights):
    monkeypatch.setattr(EveryOther, "weight", weights)
    single = run(tokenizer, tmp_path / "single", OneByOne, **options)
    monkeypatch.setattr("murmura.federation.server.rounds.Server.ask", None)  # no reply reaches the server
    summed = run(tokenizer, tmp_path / "sum", **options)
    assert_close(summed.server.adapter, single.server.adapter, atol=1e-6)
    assert summed.server.store.keys() == single.server.store.keys()
    assert summed.ledger.table() == single.ledger.table()
    for one, other in zip(summed.server.rows, single.server.rows, strict=True):
        assert one["train_loss"] == (other["train_loss"] and pytest.approx(other["train_loss"], rel=1e-9))


@pytest.mark.parametrize("options", [{"rule": "fedex"}, {"rule": "flora"}, {"ranks": (2, 1)}])
def test_what_follows_from_no_sum_is_put_together_reply_by_reply(tokenizer, tmp_path, monkeypatch, options):
    monkeypatch.setattr("murmura.federation.server.rounds.Server.sum", None)
    assert run(tokenizer, tmp_path, **options).server.rows[-1]["train_loss"] is not None


def test_uploads_that_are_attacked_are_told_apart(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr("murmura.federation.server.rounds.Server.sum", None)
    world = run(tokenizer, tmp_path, world={"evaluation": LISTENING})
    assert world.server.rows[-1]["upload_auc"] is not None


def test_sites_that_keep_a_factor_are_known_by_a_sum_too(tokenizer, tmp_path):
    world = run(tokenizer, tmp_path, rule="fedsa")
    assert sorted(world.server.store["started"]) == ["site-0", "site-1", "site-2"]


def test_a_missing_site_is_missing_from_the_sum(tokenizer, tmp_path):
    gone = failing(LocalEngine, lambda site, ask: site == "site-1")
    options = {"engine": gone, "sizes": (3, 2, 4)}
    summed = run(tokenizer, tmp_path / "sum", world=options)
    single = run(tokenizer, tmp_path / "single", OneByOne, world=options)
    assert_close(summed.server.adapter, single.server.adapter, atol=1e-6)
    assert summed.server.rows[1]["events"] == ["site site-1 did not answer 'train': gone"]


class Losing(LocalEngine):
    """Of one site a reply is lost: that site has trained."""

    def ask(self, ask, sites):
        for answer in super().ask(ask, sites):
            gone = answer.site == "site-1" and (ask.verb, ask.round) == ("train", 2)
            yield Failure("site-1", LATE) if gone else answer


def scaffold(kind=EveryOther, rounds=4):
    return method(kind, rounds=rounds, local="scaffold")


@pytest.mark.parametrize("kind", [EveryOther, OneByOne])
def test_a_control_variate_whose_change_was_lost_is_as_if_its_site_had_been_absent(tokenizer, tmp_path, kind):
    absent = failing(LocalEngine, lambda site, ask: (site, ask.verb, ask.round) == ("site-1", "train", 2))
    lost, without = (
        lead(tokenizer, scaffold(kind), tmp_path / name, training=SGD, engine=engine)
        for name, engine in (("lost", Losing), ("absent", absent))
    )
    # Not to the bit: who shares a pass with whom moves last digits, which a control variate divides by the rate.
    assert_close(lost.server.adapter, without.server.adapter, atol=1e-5)
    assert_close(lost.server.store["control"], without.server.store["control"], atol=1e-3)


def test_that_a_change_was_lost_is_in_the_checkpoint(tokenizer, tmp_path):
    options = {"training": SGD.model_copy(update={"schedule": "constant"}), "engine": Losing}
    whole = lead(tokenizer, scaffold(), tmp_path / "whole", **options)
    part = lead(tokenizer, scaffold(rounds=2), tmp_path / "part", **options)
    assert part.server.store["control_uncounted"] == {"site-1": 2}
    again = make_world(tokenizer, one := scaffold(), tmp_path / "part", **options)
    again.server.restore(latest(tmp_path / "part" / "checkpoint"))
    one.lead(again.server, again.fleet)
    assert_same(again.server.adapter, whole.server.adapter)
    assert "control_uncounted" not in again.server.store


def test_nobody_at_all_stops_the_run(tokenizer, tmp_path):
    gone = failing(LocalEngine, lambda site, ask: ask.verb == "train")
    with pytest.raises(RunError, match="nothing to average"):
        run(tokenizer, tmp_path, world={"engine": gone, "min_replies": 0})


def test_sites_that_count_alike_do_not_tell_their_sizes(tokenizer, tmp_path):
    world = run(tokenizer, tmp_path, Alike)
    assert {row["field"] for row in world.ledger.table()} == {"adapter", "loss"}
    assert not method(Alike).sends("examples")
    assert method().sends("examples")


def test_sites_know_by_their_options_what_uploads_are_weighed_by():
    assert method().weights("train") == {"adapter": "examples"}
    assert not method(Alike).weights("train") and not method(server="fedadam").weights("train")


# ---- what makes no sense -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "options", "why"),
    [
        ({"name": "fewfedpit"}, {"local": "scaffold"}, "written anew in each round"),
        ({"name": "dplora"}, {"local": "scaffold"}, "the guarantee is for one upload"),
        ({"name": "tfedavg"}, {"server": "fedadam"}, "T-FedAvg aggregates in a way of its own"),
        ({"name": "cmfl"}, {"local": "scaffold"}, "only what is relevant may"),
        ({"name": "cmfl"}, {"rule": "rolora"}, "compares updates of the whole adapter"),
        ({"name": "fewfedweight"}, {"local": "scaffold"}, "written anew in each round"),
        ({"name": "fewfedweight"}, {"rule": "fedex"}, "only two means are kept"),
        ({"name": "fewfedweight"}, {"ranks": (2, 1)}, "only two means are kept"),
        ({"name": "dpfedavg"}, {"local": "scaffold"}, "what it sends besides the update is not clipped"),
        ({"name": "dpftrl"}, {"local": "scaffold"}, "what it sends besides the update is not clipped"),
        ({"name": "dpfedavg"}, {"server": "fedadam"}, "its step by the noisy mean is its own"),
        ({"name": "dpftrl"}, {"server": "fedavgm", "local": "fedprox"}, "its step by the noisy mean is its own"),
        ({"name": "dpfedavg"}, {"rule": "fedex"}, "does not go with that"),
        ({"name": "dpftrl"}, {"rule": "ffa", "local": "fedprox"}, "does not go with that"),
        ({"name": "locit-sg"}, {"local": "fedprox"}, "aggregates in a way of its own"),
        ({"name": "centralised"}, {"server": "fedadam"}, "aggregates in a way of its own"),
        ({"name": "fedit"}, {"local": "scaffold", "rule": "ffa"}, "has control variates of all that is trained"),
    ],
)
def test_parts_that_make_no_sense_are_refused_with_the_reason(table, options, why):
    with pytest.raises(ConfigError, match=why):
        method_with(table, **options)


@pytest.mark.parametrize(
    "table",
    [
        {"name": "lpfl"},
        {"name": "dplora"},
        {"name": "cmfl"},
        {"name": "fewfedpit"},
        {"name": "fewfedweight"},
        {"name": "fedit"},
    ],
)
@pytest.mark.parametrize("options", [{"local": "fedprox"}, {"server": "fedyogi"}])
def test_and_others_are_taken(table, options):
    assert method_with(table, **options).title.endswith(("FedProx", "FedYogi"))


@pytest.mark.parametrize(("name", "rule"), [("dpfedavg", "mean"), ("dpfedavg", "rolora"), ("dpftrl", "mean")])
def test_sites_that_clip_their_updates_may_train_with_a_proximal_term(name, rule):
    built = method_with({"name": name}, local="fedprox", rule=rule)
    assert "FedProx" in built.title
    assert built.releases("train_clipped").keys() == {"update"}


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({}, (0, 0)),
        ({"local": "scaffold"}, (1, 2)),
        ({"server": "fedadam"}, (4, 0)),
        ({"rule": "fedsa"}, (0, 1)),
        ({"travel": "int8"}, (0, 1)),
    ],
)
def test_the_forecast_has_what_the_parts_send_and_keep(options, kept):
    found = method(**options).forecast(SitePart(range(5), 1, True, SGD, adapter=100, down=80, up=60))
    more = 100 * (options.get("local") == "scaffold")
    assert (found.records, found.steps, found.down, found.up) == (5, 5, 80 + more, 60 + more)
    assert (found.server_keeps, found.site_keeps) == (100 * kept[0], 100 * kept[1])

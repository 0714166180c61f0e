"""DP-FedAvg: whole runs on a tiny model."""

import math

import dp_accounting as dp
import numpy as np
import pytest
import torch

from murmura.aggregation.choosing import rule
from murmura.aggregation.config import AggregationConfig
from murmura.errors import PrivacyError, RunError
from murmura.federation.engines.local import LocalEngine
from murmura.federation.server.checkpoint import latest
from murmura.federation.site.cohort import Cohort
from murmura.federation.wire.messages import Ask, Reply
from murmura.measure.config import EvaluationConfig
from murmura.methods.dpfedavg.config import DPFedAvgConfig
from murmura.methods.dpfedavg.method import DPFedAvg, plan
from murmura.privacy.entropy import OSEntropy
from murmura.privacy.journal import Journal
from murmura.privacy.ledger import PrivacyLedger, Spent
from murmura.streams import Stream
from murmura.training.config import LocalTraining
from tests.federation.engines.wired import Wired
from tests.federation.world import QUIET, failing, lying, make_world
from tests.methods.dpfedavg.helpers import (
    HUGE,
    TRAINING,
    Silent,
    given,
    interrupted,
    mean_of,
    moved,
    run,
    scripted,
    seeded,
    site_updates,
    twice_lost,
)
from tests.privacy.chance import variance_is
from tests.privacy.plans import Rehearsed
from tests.training.helpers import assert_close, assert_same

SAMPLERS = {
    "full": {},
    "poisson": {"sampler": {"kind": "poisson", "sites_per_round": 2}},
    "fixed": {"sampler": {"kind": "fixed", "sites_per_round": 2}},
}
ADAPTIVE = {"adaptive": {"count_noise": 3.0}}
VARIANTS = {**SAMPLERS, "adaptive": ADAPTIVE}


def dpfedavg(entropy=seeded, aggregation=None, **options):
    defaults = {"rounds": 2, "noise_multiplier": 1.0, "accountant": "rdp", "clip_norm": 0.05}
    if options.get("noise_multiplier") == 0:
        del defaults["accountant"]
    return given(DPFedAvg(DPFedAvgConfig(**defaults | options), aggregation and rule(aggregation)), entropy)


# ---- the algorithm ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [{}, {"lora": None}], ids=["adapter", "all"])
def test_without_noise_and_norm_it_is_fedavg_with_equal_weights(tokenizer, tmp_path, weights):
    method = dpfedavg(noise_multiplier=0.0, clip_norm=HUGE, momentum=0.0)
    world = make_world(tokenizer, method, tmp_path, training=TRAINING, **weights)
    start = world.server.adapter
    method.lead(world.server, world.fleet)
    expected = start
    for round in (1, 2):
        mean = mean_of(site_updates(world, expected, round))
        expected = {name: tensor + mean[name] for name, tensor in expected.items()}
    assert_close(world.server.adapter, expected)
    assert not torch.allclose(moved(world, start), torch.zeros(()))


def test_a_site_clips_its_whole_update(tokenizer, tmp_path):
    method = dpfedavg(noise_multiplier=0.0, clip_norm=0.02, momentum=0.0, rounds=1)
    world = make_world(tokenizer, method, tmp_path, training=TRAINING)
    start = world.server.adapter
    method.lead(world.server, world.fleet)
    clipped = []
    for update in site_updates(world, start, 1):
        length = torch.cat([tensor.flatten() for tensor in update.values()]).norm()
        assert length > 0.02
        clipped.append({name: tensor * 0.02 / length for name, tensor in update.items()})
    assert_close(world.server.adapter, {n: t + mean_of(clipped)[n] for n, t in start.items()}, atol=1e-6)


def test_momentum_and_server_rate(tokenizer, tmp_path):
    """v: 1, then 0.5·1 + 0; W moves by η·v."""
    method = dpfedavg(noise_multiplier=0.0, clip_norm=HUGE, momentum=0.5, server_lr=2.0)
    world = scripted(tokenizer, tmp_path, method, lambda site, round: float(round == 1))
    start = world.server.adapter
    method.lead(world.server, world.fleet)
    torch.testing.assert_close(moved(world, start), torch.full((world.runtime.bank.size,), 2.0 + 1.0))


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_released_mean_has_the_planned_noise(tokenizer, tmp_path, sampler):
    """N(0, (σC/m)²) with m fixed, whoever was drawn; twice that deviation for a fixed sample."""
    method = dpfedavg(None, clip_norm=0.5, noise_multiplier=3.0, momentum=0.0, rounds=1, **SAMPLERS[sampler])
    world = scripted(tokenizer, tmp_path, method, lambda site, round: 0.0, lora=None)
    start = world.server.adapter
    method.lead(world.server, world.fleet)
    noise = moved(world, start).numpy()
    expected = {"full": 3.0 * 0.5 / 3, "poisson": 3.0 * 0.5 / 2, "fixed": 2 * 3.0 * 0.5 / 2}[sampler]
    assert len(noise) > 20_000 and variance_is(noise, expected**2)


def test_the_noise_of_adaptive_clipping_is_larger(tokenizer, tmp_path):
    method = dpfedavg(None, clip_norm=0.5, noise_multiplier=3.0, momentum=0.0, rounds=1, **ADAPTIVE)
    world = scripted(tokenizer, tmp_path, method, lambda site, round: 0.0, lora=None)
    start = world.server.adapter
    method.lead(world.server, world.fleet)
    z = (3.0**-2 - 6.0**-2) ** -0.5
    assert variance_is(moved(world, start).numpy(), (z * 0.5 / 3) ** 2)


def test_noise_comes_from_the_operating_system_and_is_new_in_every_run(tokenizer, tmp_path):
    assert isinstance(DPFedAvg(DPFedAvgConfig()).entropy(None, 1), OSEntropy)
    runs = [run(tokenizer, tmp_path / str(k), dpfedavg(None, rounds=1)).server.adapter for k in range(2)]
    assert not any(torch.equal(runs[0][name], runs[1][name]) for name in runs[0])


def test_a_round_that_nobody_is_drawn_for_releases_noise_alone(tokenizer, tmp_path):
    class Nobody(Silent):
        def normal(self, count):
            return torch.ones(count)

    method = dpfedavg(lambda server, round: Nobody(lot=0.99), rounds=1, momentum=0.0, **SAMPLERS["poisson"])
    world = make_world(tokenizer, method, tmp_path, training=TRAINING)
    start = world.server.adapter
    method.lead(world.server, world.fleet)
    torch.testing.assert_close(moved(world, start), torch.full((world.runtime.bank.size,), 0.05 / 2))
    assert world.server.rows[1]["bytes_up"] == 0 and world.server.rows[1]["privacy"]["epsilon"] > 0


def asked(world):
    return [sites for ask, sites in world.fleet.engine.asked if ask.verb == "train_clipped"]


@pytest.mark.parametrize("sampler", ["poisson", "fixed"])
def test_a_round_that_stopped_is_repeated_with_the_sites_it_had_drawn(tokenizer, tmp_path, sampler):
    """Were it drawn anew, only samples without the site that is gone would ever be released, which are no samples of
    all sites: the others would be in them more often than ε counts on."""
    options, seen = {"rounds": 3} | SAMPLERS[sampler], []
    for attempt in range(4):
        lots = Lots([0.9, 0.1, 0.9] if attempt == 0 else [0.1, 0.9, 0.1], [2, 1, 3] if attempt == 0 else [1, 3, 2])
        method = dpfedavg(lambda server, round, lots=lots: lots, momentum=0.0, **options)
        fails = ("b",) if attempt < 3 else ()
        world = scripted(tokenizer, tmp_path, method, lambda site, round: 0.0, fails=fails, min_replies=2)
        if attempt:
            world.server.restore(latest(tmp_path / "checkpoint"))
        if fails:
            with pytest.raises(RunError):
                method.lead(world.server, world.fleet)
        else:
            method.lead(world.server, world.fleet)
        seen += asked(world)
    first = ["b"] if sampler == "poisson" else ["a", "b"]
    assert seen[:4] == [first] * 4  # until it is released
    assert len(seen) == 6 and first not in seen[4:]


class Lots(Silent):
    """Everybody's lot is told."""

    def __init__(self, lots, order):
        self.lots, self.order = np.array(lots), np.array(order)

    def uniform(self, count):
        return self.lots

    def integers(self, below, count):
        return self.order


# ---- a norm that follows a quantile ----------------------------------------------------------------------------------


def norms_sent(world):
    return [ask["norm"] for ask, _ in world.fleet.engine.asked if ask.verb == "train_clipped"]


@pytest.mark.parametrize(("first", "quantile"), [(0.9, 0.5), (4.2, 0.5), (1.0, 1.0), (1.0, 0.0)])
def test_the_norm_follows_the_quantile(tokenizer, tmp_path, first, quantile):
    """Three sites with updates of length 1, 2 and 4, and a count without noise, by hand."""
    method = dpfedavg(
        lambda server, round: Silent(),
        rounds=26,
        noise_multiplier=1.0,
        clip_norm=first,
        momentum=0.0,
        adaptive={"count_noise": 3.0, "quantile": quantile},
    )
    lengths = {"a": 1.0, "b": 2.0, "c": 4.0}
    world = scripted(tokenizer, tmp_path, method, lambda site, round: lengths[site] / math.sqrt(size))
    size = world.runtime.bank.size
    method.lead(world.server, world.fleet)
    sent, norm = norms_sent(world), first
    for one in sent:
        assert one == pytest.approx(norm)
        unclipped = sum(length <= norm for length in lengths.values()) / 3
        norm *= math.exp(-0.2 * (unclipped - quantile))
    assert world.server.store["norm"] == pytest.approx(norm)
    if quantile == 0.5:
        assert sent[-1] == pytest.approx(2.0, rel=0.1)  # the median, from below and from above
        assert (sent[1] > sent[0]) == (first < 1)
    else:
        assert (sent[-1] > 4 * math.exp(-1e-9)) if quantile else (sent[-1] < 1)


def test_sites_tell_if_they_were_within_the_norm(tokenizer, tmp_path):
    method = dpfedavg(**ADAPTIVE)
    world = make_world(tokenizer, method, tmp_path, training=TRAINING)

    def bits(norm):
        ask = Ask("train_clipped", 1, {"adapter": world.server.adapter, "norm": norm, "lr": 0.01})
        cohort = Cohort(world.sites, world.runtime, ask, world.fleet.stream)
        return [reply["unclipped"] for reply in method.train_clipped(cohort, ask)]

    assert bits(HUGE) == [0.5] * 3 and bits(1e-6) == [-0.5] * 3


def test_each_round_s_noise_is_made_with_its_own_norm(tokenizer, tmp_path):
    method = dpfedavg(clip_norm=1e-6, **ADAPTIVE)
    world = run(tokenizer, tmp_path, method)
    told = [row["privacy"]["clip_norm"] for row in world.server.rows[1:]]
    assert told[0] == 1e-6 and told[1] != told[0]
    entries = PrivacyLedger(plan(method.config, 3), world.server.journal("privacy", Journal)).entries
    assert [entry.clip_norm for entry in entries] == told
    assert all(entry.parameters == {"count_noise": 3.0} for entry in entries)


# ---- the sum ---------------------------------------------------------------------------------------------------------

LISTENING = EvaluationConfig(sample=2, uploads=1)


@pytest.mark.parametrize("variant", ["full", "poisson", "adaptive"])
def test_nothing_but_the_sum_reaches_the_server(tokenizer, tmp_path, monkeypatch, variant):
    """To the bit what single replies give, which are asked for where uploads are attacked."""
    single = run(tokenizer, tmp_path / "single", dpfedavg(**VARIANTS[variant]), evaluation=LISTENING)
    monkeypatch.setattr("murmura.federation.server.rounds.Server.ask", None)
    summed = run(tokenizer, tmp_path / "sum", dpfedavg(**VARIANTS[variant]))
    assert_same(summed.server.adapter, single.server.adapter)
    assert summed.server.store.keys() == single.server.store.keys()
    assert summed.server.store.get("norm") == single.server.store.get("norm")
    assert [row["privacy"] for row in summed.server.rows] == [row["privacy"] for row in single.server.rows]
    assert [row["bytes_up"] for row in summed.server.rows] == [row["bytes_up"] for row in single.server.rows]


@pytest.mark.parametrize(("listening", "asks"), [(LISTENING, "sum"), (QUIET, "ask")])
def test_single_replies_are_asked_for_where_uploads_are_attacked(tokenizer, tmp_path, monkeypatch, listening, asks):
    monkeypatch.setattr(f"murmura.federation.server.rounds.Server.{asks}", None)  # the other way is not taken
    world = run(tokenizer, tmp_path, dpfedavg(), evaluation=listening)
    assert ("upload_auc" in world.server.rows[-1]) == (asks == "sum")


def test_an_empty_sample_is_noised_all_the_same(tokenizer, tmp_path):
    nobody = {"sampler": {"kind": "poisson", "sites_per_round": 1}, "rounds": 1, "momentum": 0.0}

    class Unlucky(Rehearsed):
        def uniform(self, count):
            return torch.full((count,), 1 - 1e-9).double().numpy()

    world = make_world(
        tokenizer, method := dpfedavg(lambda *at: Unlucky(Stream(1)), **nobody), tmp_path, training=TRAINING
    )
    gathered = []
    method.gather = lambda *asked: gathered.append(DPFedAvg.gather(method, *asked)) or gathered[-1]
    method.lead(world.server, world.fleet)
    [(total, balance, _)] = gathered
    assert all(not tensor.any() and tensor.dtype == torch.float64 for tensor in total.values()) and balance == 0
    assert total.keys() == world.server.adapter.keys()
    assert world.server.rows[1]["bytes_up"] == 0 and world.server.rows[1]["privacy"]["epsilon"] > 0


def test_updates_of_another_shape_are_refused(tokenizer, tmp_path):
    world = scripted(tokenizer, tmp_path, method := dpfedavg(rounds=1), lambda site, round: 1.0)
    world.fleet.engine.answer = lambda site, ask: Reply(site, {"update": {"w": torch.zeros(2)}})
    with pytest.raises(RunError, match=r"site \w+ to 'train_clipped' is left out: 'update' holds what nobody asked"):
        method.lead(world.server, world.fleet)


@pytest.mark.parametrize("listening", [LISTENING, QUIET])
@pytest.mark.parametrize("fields", [{}, {"update": {"w": torch.zeros(2)}}])
def test_an_update_of_another_shape_is_left_out_whoever_looks_at_it(tokenizer, tmp_path, listening, fields):
    engine = lying(LocalEngine, {"train_clipped": fields})
    world = run(tokenizer, tmp_path, dpfedavg(rounds=1), engine=engine, evaluation=listening)
    assert any(
        "the answer of site site-1 to 'train_clipped' is left out" in one for one in world.server.rows[1]["events"]
    )


@pytest.mark.parametrize("listening", [LISTENING, QUIET])
@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"update": lambda state: {name: 100 * tensor for name, tensor in state.items()}}, "'update' is longer than"),
        ({"update": lambda state: {name: tensor + 1e38 for name, tensor in state.items()}}, "'update' is longer than"),
        ({"unclipped": lambda bit: 1e30 * bit}, "'unclipped' is neither"),
    ],
)
def test_what_would_outweigh_all_other_sites_is_left_out(tokenizer, tmp_path, listening, told, why):
    class Lying(LocalEngine):
        def ask(self, ask, sites):
            for reply in super().ask(ask, sites):
                lies = reply.site == "site-1" and ask.verb == "train_clipped"
                bent = {name: change(reply[name]) for name, change in told.items()} if lies else {}
                yield Reply(reply.site, {**reply.fields, **bent})

    world = run(tokenizer, tmp_path, dpfedavg(rounds=1, **ADAPTIVE), engine=Lying, evaluation=listening)
    assert any(f"site site-1 to 'train_clipped' is left out: {why}" in one for one in world.server.rows[1]["events"])
    assert world.server.rows[1]["privacy"]["epsilon"] > 0


# ---- the local rule --------------------------------------------------------------------------------------------------


def test_a_proximal_term_comes_before_the_clip(tokenizer, tmp_path):
    aggregation = AggregationConfig(local={"kind": "fedprox", "mu": 5.0})
    loose = dpfedavg(noise_multiplier=0.0, clip_norm=HUGE, momentum=0.0, rounds=1, aggregation=aggregation)
    world = make_world(tokenizer, loose, tmp_path / "loose", training=TRAINING)
    start = world.server.adapter
    loose.lead(world.server, world.fleet)
    pulled, plain = (mean_of(site_updates(world, start, 1, **options)) for options in ({"prox": 5.0}, {}))
    assert max((pulled[name] - plain[name]).abs().max() for name in pulled) > 1e-4
    assert_close(world.server.adapter, {name: start[name] + pulled[name] for name in start}, atol=1e-6)
    tight = dpfedavg(clip_norm=1e-3, aggregation=aggregation)
    world = make_world(tokenizer, tight, tmp_path / "tight", training=TRAINING)
    ask = Ask("train_clipped", 1, {"adapter": start, "norm": 1e-3, "lr": 0.01})
    for reply in tight.train_clipped(Cohort(world.sites, world.runtime, ask, world.fleet.stream), ask):
        assert reply.fields.keys() == {"update"}
        size = math.sqrt(sum(float(tensor.square().sum()) for tensor in reply["update"].values()))
        assert size <= 1e-3


# ---- engines, slots, resuming ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", ["full", "poisson", "adaptive"])  # whose turn it is, the server knows
def test_both_engines_give_the_same(fine_grid, tokenizer, tmp_path, variant):
    local = run(tokenizer, tmp_path / "local", dpfedavg(**VARIANTS[variant]))
    wire = run(tokenizer, tmp_path / "wire", dpfedavg(**VARIANTS[variant]), engine=Wired)
    assert_close(wire.server.adapter, local.server.adapter)
    for ours, theirs in zip(wire.server.rows, local.server.rows, strict=True):
        assert ours["privacy"] == theirs["privacy"]
        assert (ours["bytes_up"], ours["bytes_down"]) == (theirs["bytes_up"], theirs["bytes_down"])


def test_all_parameters_on_both_engines(tokenizer, tmp_path):
    local = run(tokenizer, tmp_path / "local", dpfedavg(), lora=None)
    wire = run(tokenizer, tmp_path / "wire", dpfedavg(), lora=None, engine=Wired)
    assert "model.embed_tokens.weight" in local.server.adapter
    assert_close(wire.server.adapter, local.server.adapter)


def test_results_do_not_depend_on_the_number_of_slots(tokenizer, tmp_path):
    few = run(tokenizer, tmp_path / "few", dpfedavg(), slots=1)
    assert_close(few.server.adapter, run(tokenizer, tmp_path / "many", dpfedavg()).server.adapter)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_run_that_was_killed_goes_on_as_if_it_had_not(tokenizer, tmp_path, variant):
    options = VARIANTS[variant] | {"rounds": 3}
    whole = run(tokenizer, tmp_path / "whole", dpfedavg(**options))
    again = interrupted(tokenizer, tmp_path / "cut", lambda: dpfedavg(**options), after=2)
    assert_same(again.server.adapter, whole.server.adapter)
    assert [row["privacy"] for row in again.server.rows] == [row["privacy"] for row in whole.server.rows]
    assert again.server.store.get("norm") == whole.server.store.get("norm")


@pytest.mark.parametrize("sampler", ["poisson", "fixed"])
def test_without_noise_one_seed_gives_one_result(tokenizer, tmp_path, sampler):
    """Also to a run that was resumed; and every round has a draw of its own."""

    def silent():
        return dpfedavg(None, noise_multiplier=0.0, rounds=3, **SAMPLERS[sampler])

    first = run(tokenizer, tmp_path / "first", silent()).server
    assert_same(run(tokenizer, tmp_path / "again", silent()).server.adapter, first.adapter)
    assert_same(interrupted(tokenizer, tmp_path / "cut", silent, after=2).server.adapter, first.adapter)
    assert len({silent().entropy(first, round).bytes(8) for round in range(1, 9)}) == 8


def test_a_round_that_was_measured_and_then_lost_counts(tokenizer, tmp_path):
    """Its model has been sent to the sites when the process ends, and it is done again with other noise."""
    told = twice_lost(tokenizer, tmp_path, lambda: dpfedavg(rounds=3)).server.rows[3]["privacy"]
    assert told["epsilon"] == pytest.approx(plan(dpfedavg(rounds=3).config, 3).epsilon(3 + 2, "rdp").value)


# ---- what is told ----------------------------------------------------------------------------------------------------


def test_the_epsilon_of_each_round(tokenizer, tmp_path):
    world = run(tokenizer, tmp_path, dpfedavg(rounds=3, noise_multiplier=2.0, accountant="best"))
    assert not world.server.rows[0]["privacy"]
    for round in (1, 2, 3):
        told = world.server.rows[round]["privacy"]
        assert told["epsilon"] == pytest.approx(dp.get_epsilon_gaussian(2.0 / math.sqrt(round), 1e-5))
        assert (told["unit"], told["adjacency"], told["accountant"]) == ("site", "zero-out", "exact")
        assert told["refused"] is None and told["delta"] == 1e-5
        assert world.server.rows[round]["epsilon"] == told["epsilon"]


def test_a_target_is_kept(tokenizer, tmp_path):
    options = {"noise_multiplier": None, "epsilon": 4.0, "accountant": "best"}
    world = run(tokenizer, tmp_path, dpfedavg(**options))
    assert world.server.rows[2]["privacy"]["epsilon"] == pytest.approx(4.0, rel=1e-5)


def test_a_run_that_did_not_follow_its_plan_has_no_epsilon(tokenizer, tmp_path):
    """A ledger that says that a round had less noise than it should."""
    world = make_world(tokenizer, method := dpfedavg(rounds=2), tmp_path, training=TRAINING)
    followed = plan(method.config, 3)
    PrivacyLedger(followed, world.server.journal("privacy", Journal)).record(1, [Spent(1, followed.sampler, 0.05, 0.9)])
    method.lead(world.server, world.fleet)
    told = world.server.rows[2]["privacy"]
    assert told["epsilon"] is None and "its noise was 0.9 norms where 1 was planned" in told["refused"]


def test_a_missing_site_makes_the_sum_smaller_and_nothing_else(tokenizer, tmp_path):
    method = dpfedavg(rounds=1, noise_multiplier=0.0, clip_norm=HUGE, momentum=0.0)
    world = scripted(tokenizer, tmp_path, method, lambda site, round: 3.0, fails=("b",))
    start = world.server.adapter
    method.lead(world.server, world.fleet)
    torch.testing.assert_close(moved(world, start), torch.full((world.runtime.bank.size,), 2.0))
    engine = failing(LocalEngine, lambda site, ask: site == "site-1")
    told = run(tokenizer, tmp_path / "dp", dpfedavg(rounds=1), engine=engine).server.rows[1]["privacy"]
    assert told["refused"] is None and told["epsilon"] > 0


@pytest.mark.parametrize("adaptive", [{}, ADAPTIVE], ids=["fixed", "adaptive"])
def test_what_is_released(tokenizer, tmp_path, adaptive):
    """No loss and no count; and that the server sees updates without noise is said."""
    world = run(tokenizer, tmp_path, dpfedavg(**adaptive))
    table = {row["field"]: row for row in world.ledger.table()}
    assert table.keys() == ({"update", "unclipped"} if adaptive else {"update"})
    protections = [row["protection"] for row in table.values()]
    assert all((one["unit"], one["added_by"]) == ("site", "server") for one in protections)
    assert "it is trusted (a secure sum would" in table["update"]["note"]
    assert "z=1, δ=1e-05" in table["update"]["protection"]["mechanism"]
    assert all(row["train_loss"] is None and not row["counts"] for row in world.server.rows)


def test_single_updates_are_attacked_as_adapters(tokenizer, tmp_path, monkeypatch):
    heard = {}
    method = dpfedavg(noise_multiplier=0.0, clip_norm=HUGE, momentum=0.0, rounds=1)
    world = make_world(tokenizer, method, tmp_path, training=TRAINING, evaluation=LISTENING)
    monkeypatch.setattr(world.server._monitor, "observe_upload", heard.__setitem__)
    start = world.server.adapter
    method.lead(world.server, world.fleet)
    for site, update in zip(world.sites, site_updates(world, start, 1), strict=True):
        assert_close(heard[site.name], {name: start[name] + update[name] for name in start}, atol=1e-6)


# ---- what goes wrong -------------------------------------------------------------------------------------------------


def test_more_sites_a_round_than_there_are(tokenizer, tmp_path):
    with pytest.raises(PrivacyError, match="3 units, batch 4"):
        run(tokenizer, tmp_path, dpfedavg(sampler={"kind": "fixed", "sites_per_round": 4}))


def test_an_update_that_is_not_finite_counts_as_zero(fine_grid, tokenizer, tmp_path):
    method = dpfedavg(lambda *place: Silent(), rounds=1, momentum=0.0, clip_norm=HUGE)
    world = scripted(tokenizer, tmp_path, method, lambda site, round: math.nan if site == "b" else 3.0)
    start = world.server.adapter
    method.lead(world.server, world.fleet)
    torch.testing.assert_close(moved(world, start), torch.full((world.runtime.bank.size,), 2.0))


def test_a_site_whose_update_is_not_finite_is_told_and_the_server_is_not(tokenizer, tmp_path, monkeypatch):
    plain = run(tokenizer, tmp_path / "plain", dpfedavg(rounds=1))
    monkeypatch.setattr(DPFedAvg, "entered", lambda self, change, start: {n: t * math.nan for n, t in change.items()})
    blown = run(tokenizer, tmp_path / "blown", dpfedavg(rounds=1))
    ours, theirs = blown.server.rows[1], plain.server.rows[1]
    assert ours["privacy"]["refused"] is None and ours["events"] == theirs["events"] == []
    assert ours["bytes_up"] == theirs["bytes_up"]
    for site in blown.sites:
        note = site.kept.folder / "notes.txt"
        first, told = note.read_text().splitlines()
        assert "Do not publish" in first and "Round 1: the update was not a finite number" in told
        assert note.stat().st_mode & 0o777 == 0o600
    assert not any((site.kept.folder / "notes.txt").exists() for site in plain.sites)


def test_a_rate_that_is_far_too_high_does_not_stop_a_private_run(tokenizer, tmp_path):
    training = LocalTraining(schedule="constant", optimizer="sgd", clip=0.0, max_steps=3, batch_size=2)
    training = training.model_copy(update={"lr": 1e38})
    world = run(tokenizer, tmp_path, dpfedavg(rounds=1), training=training)
    assert world.server.rows[1]["privacy"]["refused"] is None
    assert all(tensor.isfinite().all() for tensor in world.server.adapter.values())
    assert all((site.kept.folder / "notes.txt").exists() for site in world.sites)


def test_no_answer_at_all_stops_the_run(tokenizer, tmp_path):
    method = dpfedavg(rounds=1)
    world = scripted(tokenizer, tmp_path, method, lambda site, round: 0.0, fails="abc")
    with pytest.raises(RunError, match="only 0 of 3 sites answered"):
        method.lead(world.server, world.fleet)

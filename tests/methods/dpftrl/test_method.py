"""DP-FTRL: whole runs on a tiny model."""

import numpy as np
import pytest
import torch

from murmura.errors import PrivacyError
from murmura.federation.engines.local import LocalEngine
from murmura.methods.dpftrl.config import DPFTRLConfig
from murmura.methods.dpftrl.method import DPFTRL, plan
from murmura.privacy.entropy import OSEntropy
from murmura.privacy.journal import Journal
from murmura.privacy.ledger import PrivacyLedger
from murmura.privacy.samplers import MinSeparation, OncePerTree
from tests.federation.engines.wired import Wired
from tests.federation.world import failing, make_world
from tests.methods.dpfedavg.helpers import (
    HUGE,
    TRAINING,
    Silent,
    given,
    interrupted,
    mean_of,
    moved,
    resumed,
    run,
    scripted,
    seeded,
    site_updates,
    twice_lost,
)
from tests.privacy.chance import variance_is
from tests.training.helpers import assert_close, assert_same

VARIANTS = {
    "every round": {"restart_every": 2},
    "once a tree": {"sites_per_round": 1, "restart_every": 2},
    "banded": {"sites_per_round": 1, "bands": 2},
}


def dpftrl(entropy=seeded, *, restart_every=4, honaker=True, bands=None, **options):
    """With banded noise where there are bands, else with trees."""
    tree = {"kind": "tree", "restart_every": restart_every, "honaker": honaker}
    defaults = {"rounds": 3, "noise_multiplier": 1.0, "clip_norm": 0.05}
    noise = {"kind": "banded", "bands": bands} if bands else tree
    return given(DPFTRL(DPFTRLConfig(noise=noise, **defaults | options)), entropy)


def followed(world):
    """Run a world's method; how far all weights were from the start after each round: [rounds, weights]."""
    start, path, close = world.server.adapter, [], world.server._close

    def looked_at():
        path.append(moved(world, start))
        close()

    world.server._close = looked_at
    world.fleet.verbs[0].lead(world.server, world.fleet)
    return torch.stack(path[1:]).double().numpy()


# ---- the algorithm ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [{}, {"lora": None}], ids=["adapter", "all"])
@pytest.mark.parametrize("restart_every", [8, 2])
def test_without_noise_and_norm_it_is_momentum_on_mean_updates(tokenizer, tmp_path, weights, restart_every):
    """d ← βd + mean, W ← W + ηd: what FTRL-M does between restarts; at one, d starts at 0 again."""
    options = {"noise_multiplier": 0.0, "clip_norm": HUGE, "momentum": 0.5, "server_lr": 0.5, "rounds": 3}
    method = dpftrl(restart_every=restart_every, **options)
    world = make_world(tokenizer, method, tmp_path, training=TRAINING, **weights)
    expected = world.server.adapter
    method.lead(world.server, world.fleet)
    momentum = {name: torch.zeros_like(tensor) for name, tensor in expected.items()}
    for round in (1, 2, 3):
        mean = mean_of(site_updates(world, expected, round))
        beta = 0.0 if (round - 1) % restart_every == 0 else 0.5
        momentum = {name: beta * momentum[name] + mean[name] for name in mean}
        expected = {name: tensor + 0.5 * momentum[name] for name, tensor in expected.items()}
    assert_close(world.server.adapter, expected)


def by_hand(sums, draws, restart_every, honaker, momentum, m, std):
    """FTRL-M with a tree in which every node is estimated anew, from its own draw and its children's estimates.

    Args:
        sums: x_t of each round, of one weight.
        draws: the normals in the order in which nodes are completed.
    """
    path, where, draws = [], 0.0, iter(draws)
    for t in range(len(sums)):
        if t % restart_every == 0:
            anchor, velocity, nodes, leaves = where, 0.0, {}, []
        leaves.append(sums[t])
        height, end = 0, len(leaves)
        while end % 2**height == 0:
            noisy = sum(leaves[end - 2**height :]) + std * next(draws)
            if height and honaker:
                weight = 1 / (2 - 2.0**-height)
                below = nodes[height - 1, end - 2 ** (height - 1)] + nodes[height - 1, end]
                noisy = weight * noisy + (1 - weight) * below
            nodes[height, end] = noisy
            height += 1
        prefix, start = 0.0, 0
        for height in reversed(range(end.bit_length())):
            if end >> height & 1:
                start += 2**height
                prefix += nodes[height, start]
        velocity = momentum * velocity + prefix / m
        where = anchor + velocity
        path.append(where)
    return path


class Scale(Silent):
    """The k-th draw is a number for all weights alike."""

    def __init__(self, draws):
        self.draws = iter(draws)

    def normal(self, count):
        return torch.full((count,), next(self.draws))


@pytest.mark.parametrize("honaker", [True, False])
@pytest.mark.parametrize("restart_every", [1, 3, 4, 16])
def test_noise_is_that_of_a_tree_by_hand(fine_grid, tokenizer, tmp_path, restart_every, honaker):
    options = {"restart_every": restart_every, "rounds": 11, "noise_multiplier": 2.0, "clip_norm": 3.0}
    options |= {"momentum": 0.5, "honaker": honaker} if restart_every > 1 else {}
    tensors, generator = 8, np.random.default_rng(0)
    sums, draws = generator.normal(size=11) * 0.05, generator.normal(size=40)
    source = Scale(float(draw) for draw in draws for _ in range(tensors))
    method = dpftrl(lambda server, round: source, **options)
    world = scripted(tokenizer, tmp_path, method, lambda site, round: float(sums[round - 1]))
    assert len(world.server.adapter) == tensors
    path = followed(world)
    expected = by_hand(3 * sums, draws, restart_every, honaker, options.get("momentum", 0), 3, 2.0 * 3.0)
    np.testing.assert_allclose(path, np.repeat(np.array(expected)[:, None], path.shape[1], axis=1), atol=1e-4)


@pytest.mark.parametrize("honaker", [True, False])
def test_the_released_sums_have_the_planned_noise(tokenizer, tmp_path, honaker):
    """Rounds 1, 2 and 3 of a tree: one leaf; a pair, of which Honaker leaves 2/3; a pair and a leaf."""
    options = {"noise_multiplier": 3.0, "clip_norm": 0.5, "momentum": 0.0, "honaker": honaker}
    method = dpftrl(lambda server, round: OSEntropy(), **options)
    world = scripted(tokenizer, tmp_path, method, lambda site, round: 0.0, lora=None)
    pair = 2 / 3 if honaker else 1
    path = followed(world)
    assert path.shape[1] > 20_000
    for values, left in zip(path, (1, pair, pair + 1), strict=True):
        assert variance_is(values, left * (3.0 * 0.5 / 3) ** 2)


def test_banded_noise_is_that_of_its_matrix_by_hand(fine_grid, tokenizer, tmp_path):
    """Row t is noised by w_t = z_t − Σ f_k w_{t−k}; θ follows the sum of all rows, and is never restarted."""
    tensors, generator = 8, np.random.default_rng(0)
    sums, draws = generator.normal(size=7) * 0.05, generator.normal(size=7)
    source = Scale(float(draw) for draw in draws for _ in range(tensors))
    options = {"rounds": 7, "noise_multiplier": 2.0, "clip_norm": 3.0, "momentum": 0.5}
    method = dpftrl(lambda server, round: source, **VARIANTS["banded"] | options | {"bands": 3})
    world = scripted(tokenizer, tmp_path, method, lambda site, round: float(sums[round - 1]))
    path = followed(world)
    rows, velocity, expected = [], 0.0, []
    for t in range(7):
        rows.append(2.0 * 3.0 * draws[t] - sum(f * rows[t - k] for k, f in ((1, 0.5), (2, 0.375)) if k <= t))
        velocity = 0.5 * velocity + sum(sums[: t + 1]) + sum(rows)  # one site a round
        expected.append(velocity)
    np.testing.assert_allclose(path, np.repeat(np.array(expected)[:, None], path.shape[1], axis=1), atol=1e-4)


# ---- whose turn it is ------------------------------------------------------------------------------------------------


def test_a_site_has_one_turn_in_a_tree(tokenizer, tmp_path):
    method = dpftrl(rounds=9, sites_per_round=1, restart_every=3)
    world = scripted(tokenizer, tmp_path, method, lambda site, round: 0.0)
    method.lead(world.server, world.fleet)
    asked = [sites for ask, sites in world.fleet.engine.asked if ask.verb == "train_clipped"]
    trees = [[site for sites in asked[start : start + 3] for site in sites] for start in (0, 3, 6)]
    assert all(sorted(tree) == ["a", "b", "c"] for tree in trees)
    assert len({tuple(tree) for tree in trees}) > 1  # drawn anew


def test_with_banded_noise_turns_come_round_in_one_order(tokenizer, tmp_path):
    method = dpftrl(**VARIANTS["banded"] | {"rounds": 7})
    world = scripted(tokenizer, tmp_path, method, lambda site, round: 0.0)
    method.lead(world.server, world.fleet)
    asked = [sites for ask, sites in world.fleet.engine.asked if ask.verb == "train_clipped"]
    assert sorted(site for sites in asked[:3] for site in sites) == ["a", "b", "c"]
    assert asked == [*asked[:3], *asked[:3], asked[0]]
    assert world.server.rows[-1]["privacy"]["refused"] is None
    seen = PrivacyLedger.of(world.server.journal("privacy", Journal)).entries
    assert [entry.observed.apart for entry in seen] == [3]


def test_with_banded_noise_all_sites_have_turns_however_many_there_are(tokenizer, tmp_path):
    """Five sites, two a round: each is back after two rounds or three."""
    method = dpftrl(**VARIANTS["banded"] | {"rounds": 5, "sites_per_round": 2})
    world = scripted(tokenizer, tmp_path, method, lambda site, round: 0.0, sizes=(1,) * 5)
    world.fleet.engine.sites = list("abcde")
    method.lead(world.server, world.fleet)
    asked = [sites for ask, sites in world.fleet.engine.asked if ask.verb == "train_clipped"]
    assert all(len(sites) == 2 for sites in asked)
    for site in "abcde":
        first, second = (round for round, sites in enumerate(asked) if site in sites)
        assert second - first in (2, 3)
    assert world.server.rows[-1]["privacy"]["refused"] is None


def test_a_site_that_is_asked_too_soon_has_no_epsilon(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(MinSeparation, "batches", lambda *_: [[0], [1], [0]])
    method = dpftrl(**VARIANTS["banded"])
    world = scripted(tokenizer, tmp_path, method, lambda site, round: 0.0)
    method.lead(world.server, world.fleet)
    told = [row["privacy"].get("refused") for row in world.server.rows]
    assert told[2] is None and "seen to be back after 2 steps, where 3 are the fewest" in told[3]


def test_a_site_that_is_asked_twice_in_a_tree_has_no_epsilon(tokenizer, tmp_path, monkeypatch):
    """As many sites are asked as planned, so that nothing else tells; and a tree does not remember the one before."""
    turns = iter([[[0], [1], [2]], [[2], [1], [2]]])
    monkeypatch.setattr(OncePerTree, "batches", lambda *_: next(turns))
    method = dpftrl(rounds=6, sites_per_round=1, restart_every=3)
    world = scripted(tokenizer, tmp_path, method, lambda site, round: 0.0)
    method.lead(world.server, world.fleet)
    told = [row["privacy"].get("refused") for row in world.server.rows]
    assert told[1:6] == [None] * 5
    assert "a site was seen to be back after 2 steps, in a tree that it may be in once" in told[6]


def test_a_missing_site_leaves_a_gap(tokenizer, tmp_path):
    """Divided by m all the same, and nobody takes its place."""
    options = {"rounds": 1, "noise_multiplier": 0.0, "clip_norm": HUGE}
    method = dpftrl(**options)
    world = scripted(tokenizer, tmp_path, method, lambda site, round: 3.0, fails=("b",))
    np.testing.assert_allclose(followed(world)[0], 2.0, rtol=1e-5)
    engine = failing(LocalEngine, lambda site, ask: site == "site-1")
    told = run(tokenizer, tmp_path / "dp", dpftrl(), engine=engine).server.rows[3]["privacy"]
    assert told["refused"] is None and told["epsilon"] > 0


# ---- engines and resuming --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", ["every round", "banded"])  # whose turn it is, the server knows
def test_both_engines_give_the_same(fine_grid, tokenizer, tmp_path, variant):
    local = run(tokenizer, tmp_path / "local", dpftrl(**VARIANTS[variant]))
    wire = run(tokenizer, tmp_path / "wire", dpftrl(**VARIANTS[variant]), engine=Wired)
    assert_close(wire.server.adapter, local.server.adapter)
    for ours, theirs in zip(wire.server.rows, local.server.rows, strict=True):
        assert ours["privacy"] == theirs["privacy"] and ours["bytes_up"] == theirs["bytes_up"]


@pytest.mark.parametrize("variant", [*VARIANTS, "one tree"])
def test_a_run_that_was_killed_goes_on_with_the_same_tree(tokenizer, tmp_path, variant):
    options = VARIANTS.get(variant, {}) | {"rounds": 4}
    whole = run(tokenizer, tmp_path / "whole", dpftrl(**options))
    for after in (1, 2, 3):
        again = interrupted(tokenizer, tmp_path / f"cut {after}", lambda: dpftrl(**options), after=after)
        assert_same(again.server.adapter, whole.server.adapter)
        assert [row["privacy"] for row in again.server.rows] == [row["privacy"] for row in whole.server.rows]
        assert again.server.store.keys() == whole.server.store.keys()


def test_a_round_of_a_tree_that_is_done_again_is_counted_again_and_is_no_second_turn(tokenizer, tmp_path):
    """It is in the ledger and not in the checkpoint: the same site has the same turn, with fresh noise."""
    options = {"rounds": 3, "sites_per_round": 1, "restart_every": 3}
    whole = run(tokenizer, tmp_path / "whole", dpftrl(**options)).server.rows[-1]["privacy"]
    world = make_world(tokenizer, method := dpftrl(**options), tmp_path / "cut", training=TRAINING)
    close = world.server._close

    def lost():
        if world.fleet.round == 2:
            raise KeyboardInterrupt
        close()

    world.server._close = lost
    with pytest.raises(KeyboardInterrupt):
        method.lead(world.server, world.fleet)
    again = resumed(tokenizer, tmp_path / "cut", dpftrl(**options))
    told = again.server.rows[-1]["privacy"]
    assert PrivacyLedger.of(again.server.journal("privacy", Journal)).rounds == [1, 2, 2, 3]
    assert told["refused"] is None and told["epsilon"] > whole["epsilon"]


def test_without_noise_one_seed_gives_one_result(tokenizer, tmp_path):
    """Also to a run that was resumed in the midst of a tree."""

    def silent():
        return dpftrl(None, noise_multiplier=0.0, **VARIANTS["once a tree"])

    first = run(tokenizer, tmp_path / "first", silent()).server
    assert_same(run(tokenizer, tmp_path / "again", silent()).server.adapter, first.adapter)
    assert_same(interrupted(tokenizer, tmp_path / "cut", silent, after=1).server.adapter, first.adapter)


def kept(world):
    """Tensors in the server's store, in adapters of float32."""
    adapter = world.server.adapter
    sets = [
        value for value in world.server.store.values() if isinstance(value, dict) and adapter.keys() <= value.keys()
    ]
    whole = sum(tensor.nbytes for tensor in adapter.values())
    return sum(tensors[name].nbytes for tensors in sets for name in adapter) / whole


@pytest.mark.parametrize("rounds", range(1, 10))
def test_the_server_keeps_no_more_than_it_says(tokenizer, tmp_path, rounds):
    method = dpftrl(rounds=rounds, restart_every=8)
    world = scripted(tokenizer, tmp_path, method, lambda site, round: 0.0)
    method.lead(world.server, world.fleet)
    assert 0 < kept(world) <= method.kept() <= 2 + 2 * (1 + 4)
    assert sum(name.startswith("tree.block.") for name in world.server.store) == bin((rounds - 1) % 8 + 1).count("1")


def test_with_banded_noise_it_keeps_that_of_the_last_rounds(tokenizer, tmp_path):
    method = dpftrl(**VARIANTS["banded"] | {"rounds": 5, "bands": 3})
    world = scripted(tokenizer, tmp_path, method, lambda site, round: 0.0)
    method.lead(world.server, world.fleet)
    # θ_0 and v; in float64 the exact sum, its noise, and that of two rounds.
    assert kept(world) == method.kept() == 2 + 2 * (2 + 2)


@pytest.mark.parametrize("variant", ["every round", "banded"])
def test_a_round_that_was_measured_and_then_lost_counts(tokenizer, tmp_path, variant):
    """Its model has been sent to the sites when the process ends, and it is done again with other noise."""
    options = {"rounds": 3, "noise_multiplier": 8.0, "restart_every": 4}
    options |= VARIANTS["banded"] if variant == "banded" else {}
    told = twice_lost(tokenizer, tmp_path, lambda: dpftrl(**options)).server.rows[3]["privacy"]
    promised = plan(dpftrl(**options).config, 3)
    assert told["epsilon"] == pytest.approx(promised.epsilon(3, repeated=(2, 2)).value)
    assert told["epsilon"] > promised.epsilon(3).value


# ---- what is told ----------------------------------------------------------------------------------------------------


def test_the_epsilon_of_each_round(tokenizer, tmp_path):
    method = dpftrl(rounds=5, noise_multiplier=8.0)
    world = run(tokenizer, tmp_path, method)
    for round in range(1, 6):
        told = world.server.rows[round]["privacy"]
        assert told["epsilon"] == pytest.approx(plan(method.config, 3).epsilon(round).value)
        assert (told["unit"], told["adjacency"], told["refused"]) == ("site", "zero-out", None)
        assert "restarted every 4 steps" in told["plan"]


def test_a_target_is_kept(tokenizer, tmp_path):
    world = run(tokenizer, tmp_path, dpftrl(noise_multiplier=None, epsilon=4.0))
    assert world.server.rows[3]["privacy"]["epsilon"] == pytest.approx(4.0, rel=1e-5)


def test_nothing_but_clipped_updates_is_released(tokenizer, tmp_path):
    world = run(tokenizer, tmp_path, dpftrl())
    [row] = world.ledger.table()
    assert row["field"] == "update"
    assert (row["protection"]["unit"], row["protection"]["added_by"]) == ("site", "server")
    assert all(row["train_loss"] is None for row in world.server.rows)


def test_more_turns_than_there_are_sites(tokenizer, tmp_path):
    with pytest.raises(PrivacyError, match="3 sites cannot take part at most once in 2 rounds of 2"):
        run(tokenizer, tmp_path, dpftrl(sites_per_round=2, restart_every=2))

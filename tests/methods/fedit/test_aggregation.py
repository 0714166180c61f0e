"""Aggregation rules through a whole run: what travels, what stays, what a checkpoint and a PEFT folder hold."""

from functools import cache

import pytest
import torch

from murmura.aggregation.config import AggregationConfig
from murmura.errors import ConfigError
from murmura.federation.engines.local import LocalEngine
from murmura.federation.server.checkpoint import latest
from murmura.federation.site.store import SiteStore
from murmura.federation.traits import RULES
from murmura.methods import build, parse_config
from murmura.training.adapter import rank_of, split_residual
from murmura.training.config import LocalTraining
from tests.experiment.small import method_with
from tests.federation.engines.wired import Wired
from tests.federation.world import SPEC, lead, make_world
from tests.methods.harness import furthest, same
from tests.training.helpers import EPS


def fedavg(rule, rounds=2, **options):
    config = parse_config({"name": "fedit", "rounds": rounds}, "test")
    return build(config, AggregationConfig(rule=rule, **options))


def run(tokenizer, folder, rule, *, rounds=2, ranks=(), **options):
    return lead(tokenizer, fedavg(rule, rounds, ranks=ranks), folder, **options)


@pytest.fixture(scope="module")
def by(tokenizer, tmp_path_factory):
    """A rule's run in this process, which is made once and left as it is."""
    return cache(lambda rule: run(tokenizer, tmp_path_factory.mktemp("by"), rule))


def product(bank, state, name):
    """What an adapter with its residual adds to the weight of a module, named by its A."""
    b = name.replace(".lora_A.", ".lora_B.")
    change = SPEC.scale * state[b] @ state[name]
    over, under = name.replace(".lora_", ".residual_"), b.replace(".lora_", ".residual_")
    return change + state[under] @ state[over] if over in state else change


@pytest.mark.parametrize("rule", RULES)
def test_the_wire_changes_nothing(tokenizer, tmp_path, by, rule):
    worlds = [by(rule), run(tokenizer, tmp_path, rule, engine=Wired)]
    adapters = [world.server.adapter for world in worlds]
    assert adapters[0].keys() == adapters[1].keys()
    names = [name for name in adapters[0] if ".lora_A." in name]
    for name in names:
        first, second = (product(world.runtime.bank, world.server.adapter, name) for world in worlds)
        assert torch.allclose(first, second, atol=1e-5)
    for one, other in zip(*(world.server.rows for world in worlds), strict=True):
        assert abs(one["bytes_up"] - other["bytes_up"]) < 20  # a loss may have a digit more


@pytest.mark.parametrize("rule", ["fedex", "fedsa", "rolora", "flora"])
def test_a_run_goes_on_from_its_checkpoint_as_if_it_had_never_stopped(tokenizer, tmp_path, rule):
    steady = {"training": LocalTraining(lr=0.01, batch_size=2, eps=EPS, schedule="constant")}
    whole = run(tokenizer, tmp_path / "whole", rule, rounds=3, **steady)
    run(tokenizer, tmp_path / "part", rule, rounds=2, **steady)
    checkpoint, method = latest(tmp_path / "part" / "checkpoint"), fedavg(rule, 3)
    world = make_world(tokenizer, method, tmp_path / "part", **steady)
    world.server.restore(checkpoint)
    method.lead(world.server, world.fleet)
    assert same(world.server.adapter, whole.server.adapter)
    assert [row["round"] for row in world.server.rows] == [0, 1, 2, 3]


@pytest.mark.parametrize("rule", ["fedex", "fedsa", "flora"])
def test_what_a_rule_keeps_rests_on_the_servers_or_the_sites_side(by, rule):
    world = by(rule)
    kept = latest(world.folder.checkpoint)
    assert furthest(kept.server["adapter"], world.server.adapter) == 0
    stores = [SiteStore(site.kept.folder, site.name).rewind(2) for site in world.sites]
    assert [store.keys() for store in stores] == [site.store.keys() for site in world.sites]
    assert all(stores) == (rule == "fedsa")


def test_one_factor_is_half_the_way(by):
    """Bytes of every rule, against those of the mean; each factor counted by itself."""
    bank = by("mean").runtime.bank
    shapes = {factor: 0 for factor in "AB"}
    for entry in bank.manifest:
        shapes["A" if ".lora_A." in entry.name else "B"] += 4 * (entry.stop - entry.start)
    a, b, sites = shapes["A"], shapes["B"], 3
    wanted = {  # bytes up in rounds 1 and 2, and down, all without the few of counts and losses
        "mean": ((a + b, a + b), (a + b, a + b)),
        "ffa": ((b, b), (b, b)),
        "rolora": ((b, a), (a + b, a + b)),
        "fedsa": ((a, a), (a, a)),
        "flexlora": ((a + b, a + b), (a + b, a + b)),
    }
    for rule, ways in wanted.items():
        rows = by(rule).server.rows[1:]
        for row, up, down in zip(rows, *ways, strict=True):
            assert 0 < row["bytes_up"] - sites * up < sites * 80
            assert 0 < row["bytes_down"] - sites * down < sites * 80


def test_a_frozen_factor_stays_where_it_was(by):
    world = by("ffa")
    start = world.runtime.bank.initial(world.server.stream / "adapter")
    after = world.server.adapter
    assert all(after[name].equal(start[name]) for name in after if ".lora_A." in name)
    assert all(after[name].abs().max() > 0 for name in after if ".lora_B." in name)


def test_exact_rules_give_the_mean_of_what_the_sites_trained(tokenizer, tmp_path):
    trained = {}

    class Listening(LocalEngine):
        def ask(self, ask, sites):
            for reply in super().ask(ask, sites):
                if ask.verb == "train":
                    trained[reply.site] = (reply["adapter"], reply["examples"])
                yield reply

    for rule in ("fedex", "flora"):
        world = run(tokenizer, tmp_path / rule, rule, rounds=1, engine=Listening)
        whole = sum(weight for _, weight in trained.values())
        for name in (name for name in world.server.adapter if ".lora_A." in name):
            parts = [w / whole * product(world.runtime.bank, state, name) for state, w in trained.values()]
            assert torch.allclose(product(world.runtime.bank, world.server.adapter, name), sum(parts), atol=1e-6)


def test_sites_that_keep_a_factor_are_measured_with_their_own(by):
    world = by("fedsa")
    own = [store["adapter"] for store in world.stores().values()]
    names = [name for name in own[0] if ".lora_B." in name]
    assert all(not own[0][name].equal(own[1][name]) for name in names)
    assert all(world.server.adapter[name].abs().max() == 0 for name in names)  # the server never saw a B
    assert world.server.rows[-1]["heldout_loss"] != world.server.rows[0]["heldout_loss"]
    assert world.server.rows[-1]["bytes_measuring"] > 0  # sites assess, and get the shared A for it


@pytest.mark.parametrize(
    ("rule", "engine"),
    [
        *((rule, Wired) for rule in RULES if rule != "fedsa"),
        ("mean", LocalEngine),  # the server cuts and stacks: a rule does no other thing than over the wire
        ("fedex", LocalEngine),
    ],
)
def test_sites_may_have_different_ranks(tokenizer, tmp_path, rule, engine):
    sent = {}

    class Listening(engine):
        def ask(self, ask, sites):
            for reply in super().ask(ask, sites):
                if ask.verb == "train":
                    shapes = {n: t.shape for n, t in reply["adapter"].items()}
                    sent[reply.site] = {shape[0] if ".lora_A." in n else shape[1] for n, shape in shapes.items()}
                yield reply

    world = run(tokenizer, tmp_path, rule, ranks=(2, 1), engine=Listening)
    assert sent == {"site-0": {2}, "site-1": {1}, "site-2": {2}}
    adapter, _ = split_residual(world.server.adapter)
    assert rank_of(adapter) == SPEC.rank
    assert world.server.rows[-1]["heldout_loss"] != world.server.rows[0]["heldout_loss"]


def test_what_a_rule_does_not_go_with_is_refused_in_words():
    with pytest.raises(ConfigError, match="Local only aggregates in a way of its own"):
        method_with({"name": "local"}, rule="fedex")
    assert method_with({"name": "fedit"}, server="fedadam").title == "FedAdam"
    parts = {"rule": "ffa", "local": "fedprox", "server": "fedadam"}
    assert method_with({"name": "fedit"}, **parts).title == "FedAdam, FedProx, FFA-LoRA"
    assert fedavg("fedex").title == "FedAvg, FedEx-LoRA"

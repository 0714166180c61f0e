"""DP-FedAvg of one factor a round, and with lengths measured on the product (DEeR)."""

import math

import pytest
import torch

from murmura.aggregation.choosing import rule
from murmura.aggregation.config import AggregationConfig
from murmura.errors import ConfigError
from murmura.methods import build
from murmura.methods.dpfedavg.config import DPFedAvgConfig
from murmura.methods.fedit.config import FedITConfig
from tests.experiment.small import method_with
from tests.federation.engines.wired import Wired
from tests.federation.world import lead
from tests.methods.dpfedavg.helpers import HUGE, TRAINING, given, scripted, seeded
from tests.methods.harness import furthest, same


def method(aggregation, entropy=seeded, **options):
    defaults = {"rounds": 2, "noise_multiplier": 1.0, "clip_norm": 0.05, "momentum": 0.0}
    config = DPFedAvgConfig(**defaults | options)
    return given(build(config, AggregationConfig(rule=aggregation)), entropy)


@pytest.mark.parametrize("aggregation", ["ffa", "rolora"])
@pytest.mark.parametrize("product_space", [False, True])
def test_without_noise_and_clipping_it_is_the_rule_itself(tokenizer, tmp_path, aggregation, product_space):
    options = {"training": TRAINING, "sizes": (3, 3, 3)}
    free = method(aggregation, noise_multiplier=0, clip_norm=HUGE, product_space=product_space)
    found = lead(tokenizer, free, tmp_path / "dp", **options).server.adapter
    plain = build(FedITConfig(rounds=2), AggregationConfig(rule=aggregation))
    expected = lead(tokenizer, plain, tmp_path / "plain", **options).server.adapter
    # What leaves the product as it is, a fixed factor's missing directions, is not taken along by the product space.
    assert furthest(found, expected) < 1e-6 if not product_space else products_differ(found, expected) < 1e-6


def products_differ(first, second):
    names = [name for name in first if ".lora_A." in name]
    pairs = ((name.replace("_A.", "_B."), name) for name in names)
    return max(float((first[b] @ first[a] - second[b] @ second[a]).abs().max()) for b, a in pairs)


def test_noise_on_the_product_has_the_planned_size_whatever_the_size_of_the_fixed_factor(tokenizer, tmp_path):
    """E‖ΔB·A‖² = (σC/m)²·out·r for every module, with A as it is and with A a hundred times as large."""
    for factor in (1.0, 100.0):
        made = method("ffa", rounds=1, product_space=True)
        world = scripted(tokenizer, tmp_path / str(factor), made, lambda site, round: 0.0)
        start = {n: t * factor if ".lora_A." in n else t for n, t in world.server.adapter.items()}
        world.server.adapter = start
        made.lead(world.server, world.fleet)
        after, square, freedom = world.server.adapter, 0.0, 0
        for a in (name for name in after if ".lora_A." in name):
            b = a.replace("_A.", "_B.")
            square += float(((after[b] - start[b]) @ after[a]).square().sum())
            freedom += after[b].numel()
        std = 1.0 * 0.05 / 3
        # A chi-square of so many degrees; six of its deviations.
        assert abs(square / std**2 / freedom - 1) < 6 * math.sqrt(2 / freedom)


def test_a_change_is_clipped_by_its_length_on_the_product(tokenizer, tmp_path):
    made = method("ffa", noise_multiplier=0, rounds=1, clip_norm=1e-4, product_space=True)
    world = lead(tokenizer, made, tmp_path, sizes=(4,))
    start = world.runtime.bank.initial(world.server.stream / "adapter")
    after = world.server.adapter
    names = [name for name in after if ".lora_A." in name]
    square = sum(float((after[n.replace("_A.", "_B.")] @ start[n]).square().sum()) for n in names)
    assert math.sqrt(square) == pytest.approx(1e-4, rel=1e-3)


@pytest.mark.parametrize("product_space", [False, True])
def test_the_wire_changes_nothing_and_half_of_it_is_saved(tokenizer, tmp_path, product_space):
    whole = lead(tokenizer, method("mean"), tmp_path / "whole")
    worlds = [
        lead(tokenizer, method("rolora", product_space=product_space), tmp_path / name, **options)
        for name, options in (("local", {}), ("wire", {"engine": Wired}))
    ]
    assert furthest(*(world.server.adapter for world in worlds)) < 1e-5
    sent = [sum(row["bytes_up"] for row in world.server.rows) for world in (whole, worlds[0])]
    assert 0.4 < sent[1] / sent[0] < 0.6
    assert all(
        row["epsilon"] == other["epsilon"] for row, other in zip(whole.server.rows, worlds[0].server.rows, strict=True)
    )


def test_a_factor_that_is_fixed_does_not_move(tokenizer, tmp_path):
    world = lead(tokenizer, method("ffa", momentum=0.9), tmp_path)
    start = world.runtime.bank.initial(world.server.stream / "adapter")
    fixed = {name: t for name, t in world.server.adapter.items() if ".lora_A." in name}
    assert same(fixed, {name: start[name] for name in fixed})
    assert all(torch.isfinite(t).all() for t in world.server.adapter.values())


def test_rules_it_does_not_go_with_are_refused():
    with pytest.raises(ConfigError, match="product_space"):
        method_with({"name": "dpfedavg", "product_space": True}, rule="mean")
    with pytest.raises(ConfigError, match="does not go with that"):
        method_with({"name": "dpfedavg"}, rule="fedex")
    assert rule(AggregationConfig(rule="rolora")).title in method("rolora").title

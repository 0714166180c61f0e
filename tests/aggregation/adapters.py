"""Random adapters for tests of aggregation, and what they mean as dense matrices."""

from __future__ import annotations

import torch

from murmura.aggregation.choosing import rule
from murmura.aggregation.config import AggregationConfig
from murmura.aggregation.rules import Rule
from murmura.streams import Stream
from murmura.training.adapter import fresh, split_residual
from tests.training import helpers

State = dict[str, torch.Tensor]
Contributions = list[tuple[State, float]]

NAMES = ("layers.0.q", "layers.1.up")
R = 3  # the rank of all adapters
SIZES = ((7, 5), (6, 9))  # in and out of each module


def factor(module: str, kind: str) -> str:
    return f"base_model.model.{module}.{kind}.weight"


def adapter(seed: int, rank: int = 3, *, sizes: tuple[tuple[int, int], ...] = SIZES, residual: int = 0) -> State:
    """An adapter without zeros, with a residual of that rank if it is not 0."""
    generator = torch.Generator().manual_seed(seed)
    state = {}
    for kind, width in ("lora", rank), ("residual", residual):
        for module, (inner, outer) in zip(NAMES, sizes, strict=False):
            if width:
                state[factor(module, f"{kind}_A")] = torch.randn(width, inner, generator=generator)
                state[factor(module, f"{kind}_B")] = torch.randn(outer, width, generator=generator)
    return state


def effect(state: State, scale: float) -> State:
    """What an adapter with its residual adds to each frozen weight: float64 [out, in]."""
    whole = {}
    for module in NAMES:
        if factor(module, "lora_A") in state:
            whole[module] = scale * _product(state, module, "lora")
            if factor(module, "residual_A") in state:
                whole[module] += _product(state, module, "residual")
    return whole


def _product(state: State, module: str, kind: str) -> torch.Tensor:
    return state[factor(module, f"{kind}_B")].double() @ state[factor(module, f"{kind}_A")].double()


def mean_effect(contributions: list[tuple[State, float]], scale: float) -> State:
    """``Σ p_k s B_k A_k``, dense."""
    total = sum(weight for _, weight in contributions)
    effects = [(effect(state, scale), weight / total) for state, weight in contributions]
    return {module: sum(share * dense[module] for dense, share in effects) for module in effects[0][0]}


def assert_close(ours: State, theirs: State, tolerance: float = 1e-5) -> None:
    helpers.assert_close(ours, theirs, atol=tolerance, rtol=tolerance)


def made(name: str, **options: object) -> Rule:
    return rule(AggregationConfig.model_validate({"rule": {"kind": name, **options}}))


def start(seed: int = 99) -> State:
    """A global adapter before round 1."""
    return fresh({name: tensor.shape for name, tensor in adapter(0, R).items()}, Stream(seed))


def step(ours: Rule, current: State, contributions: Contributions, scale: float = 2.0, round: int = 1) -> State:
    after = ours.step(current, iter(contributions), scale=scale, round=round, stream=Stream(round))
    assert all(tensor.dtype == torch.float32 for tensor in after.values())
    return after


def sites(seed: int, ranks_and_weights: list[tuple[int, float]]) -> Contributions:
    return [(adapter(seed + k, rank), weight) for k, (rank, weight) in enumerate(ranks_and_weights)]


def trained(ours: Rule, current: State, seed: int, count: int, round: int, ranks: tuple[int, ...] = ()) -> list[State]:
    """What sites make of the global adapter: random steps of what the rule has them train."""
    found = []
    for k in range(count):
        begun = ours.complete(ours.download(current, ranks[k] if ranks else None, round), start())
        moved, _ = split_residual(begun)
        generator = torch.Generator().manual_seed(seed + k)
        for name, tensor in moved.items():
            if f".lora_{ours.frozen(round)}." not in name:
                moved[name] = tensor + torch.randn(tensor.shape, generator=generator)
        found.append(moved)
    return found

"""Random adapters for tests of aggregation, and what they mean as dense matrices."""

from __future__ import annotations

import torch

State = dict[str, torch.Tensor]

NAMES = ("layers.0.q", "layers.1.up")
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
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        torch.testing.assert_close(
            ours[name], tensor, atol=tolerance, rtol=tolerance, msg=lambda m, n=name: f"{n}: {m}"
        )


def assert_same(ours: State, theirs: State) -> None:
    """Bit for bit."""
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert torch.equal(ours[name], tensor), name

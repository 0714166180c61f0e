"""DEeR's noise: what it does to the product, and nothing in directions that the fixed factor does not have."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from murmura.aggregation.product_space import ProductSpace
from murmura.errors import RunError
from murmura.privacy.entropy import Entropy, OSEntropy
from murmura.privacy.mechanisms.gaussian import noise_like
from tests.aggregation.adapters import NAMES, State, adapter, assert_close, factor
from tests.training.helpers import Told

kinds = st.sampled_from(["A", "B"])
seeds = st.integers(0, 10**6)


def only(state: State, kind: str) -> State:
    return {name: tensor.double() for name, tensor in state.items() if f".lora_{kind}." in name}


def other(kind: str) -> str:
    return "B" if kind == "A" else "A"


def products(trained: State, fixed: State) -> State:
    """B·A of each module, of whichever factor is which."""
    both = trained | fixed
    return {
        module: both[factor(module, "lora_B")].double() @ both[factor(module, "lora_A")].double() for module in NAMES
    }


def noised(space: ProductSpace, like: State, std: float, entropy: Entropy) -> State:
    """Equal noise in all coordinates, brought back: what becomes of it when it is added to a sum of updates there."""
    return space.leave(noise_like(like, std, entropy))


def root(gram: torch.Tensor, power: float) -> torch.Tensor:
    values, vectors = torch.linalg.eigh(gram)
    return vectors * values**power @ vectors.T


@settings(deadline=None, max_examples=40)
@given(seeds, kinds, st.floats(1e-2, 1e2), st.floats(1e-2, 1e2))
def test_noise_on_the_product_is_a_projection_of_noise_in_the_weight_s_size(
    seed: int, kind: str, std: float, size: float
) -> None:
    """Told the part of Z that counts, the noise is Z·Aᵀ(AAᵀ)⁻¹ on B, or (BᵀB)⁻¹BᵀZ on A."""
    generator = torch.Generator().manual_seed(seed)
    fixed, trained = only(adapter(seed), other(kind)), only(adapter(seed + 1), kind)
    fixed = {name: size * tensor for name, tensor in fixed.items()}
    told, expected, projected = [], {}, {}
    for module in NAMES:
        X = fixed[factor(module, f"lora_{other(kind)}")]
        M = X if kind == "B" else X.T  # rows span what the product can have
        outer = len(trained[factor(module, "lora_B")]) if kind == "B" else trained[factor(module, "lora_A")].shape[1]
        Z = torch.randn(outer, M.shape[1], generator=generator, dtype=torch.float64)
        coordinates = Z @ M.T @ root(M @ M.T, -0.5)
        noise, onto = std * Z @ M.T @ torch.linalg.inv(M @ M.T), std * Z @ torch.linalg.pinv(M) @ M
        name = factor(module, f"lora_{kind}")
        told.append((coordinates if kind == "B" else coordinates.T).flatten().float())
        expected[name], projected[module] = (noise, onto) if kind == "B" else (noise.T, onto.T)
    noise = noised(ProductSpace(fixed), trained, std, Told(*told))
    scaled = {name: tensor.double() * size / std for name, tensor in noise.items()}
    assert_close(scaled, {name: tensor * size / std for name, tensor in expected.items()}, 1e-4)
    on_product = {module: tensor / std for module, tensor in products(noise, fixed).items()}
    assert_close(on_product, {module: tensor / std for module, tensor in projected.items()}, 1e-4)


@settings(deadline=None, max_examples=40)
@given(seeds, kinds)
def test_lengths_are_those_on_the_product(seed: int, kind: str) -> None:
    fixed, update = only(adapter(seed), other(kind)), only(adapter(seed + 1), kind)
    space = ProductSpace(fixed)
    coordinates = space.enter(update)
    for module, product in products(update, fixed).items():
        assert float(coordinates[factor(module, f"lora_{kind}")].norm()) == pytest.approx(
            float(product.norm()), rel=1e-5
        )
    assert_close(space.leave(coordinates), {name: tensor.float() for name, tensor in update.items()}, 1e-3)


@pytest.mark.parametrize("kind", ["A", "B"])
@pytest.mark.parametrize("size", [0.01, 100.0])
def test_size_of_the_noise_does_not_depend_on_the_factors(kind: str, size: float) -> None:
    sizes = ((60, 50), (40, 80))
    fixed, update = only(adapter(0, 4, sizes=sizes), other(kind)), only(adapter(1, 4, sizes=sizes), kind)
    fixed = {name: size * tensor for name, tensor in fixed.items()}
    noise = noised(ProductSpace(fixed), update, 0.5, OSEntropy())
    for name, product in zip(update, products(noise, fixed).values(), strict=True):
        count = update[name].numel()  # r·out or r·in: so many directions does the projection keep
        assert float(product.square().sum()) / 0.25 == pytest.approx(count, abs=6 * math.sqrt(2 * count))


def test_directions_that_the_fixed_factor_does_not_have() -> None:
    """A site of rank 2 among those of rank 3: its third row and column are zero, and stay so."""
    fixed, update = only(adapter(0), "A"), only(adapter(1), "B")
    for tensor in fixed.values():
        tensor[2] = 0
    space = ProductSpace(fixed)
    noise, back = noised(space, update, 1.0, OSEntropy()), space.leave(space.enter(update))
    for name, tensor in update.items():
        assert not noise[name][:, 2].any()
        assert noise[name][:, :2].all()
        torch.testing.assert_close(back[name][:, :2], tensor[:, :2].float(), atol=1e-5, rtol=1e-5)
        assert not back[name][:, 2].any()


def test_a_cannot_travel_while_b_is_zero() -> None:
    fixed = {name: torch.zeros_like(tensor) for name, tensor in only(adapter(0), "B").items()}
    update = only(adapter(1), "A")
    space = ProductSpace(fixed)
    for state in noised(space, update, 1.0, OSEntropy()), space.enter(update), space.leave(update):
        assert not any(tensor.any() for tensor in state.values())


def test_nearly_singular_factors_make_no_unbounded_noise() -> None:
    fixed = only(adapter(0), "A")
    for tensor in fixed.values():
        tensor[2] = tensor[0] + 1e-9 * tensor[2]
    noise = noised(ProductSpace(fixed), only(adapter(1), "B"), 1.0, OSEntropy())
    assert all(tensor.abs().max() < 100 for tensor in noise.values())


def test_what_does_not_fit() -> None:
    fixed, update = only(adapter(0), "A"), only(adapter(1), "B")
    with pytest.raises(RunError, match="has no fixed factor beside it"):
        ProductSpace(only(adapter(0), "B")).enter(update)
    with pytest.raises(RunError, match="has another rank than the fixed factor"):
        ProductSpace(fixed).enter(only(adapter(1, 2), "B"))
    with pytest.raises(RunError, match="'head' is not a finite LoRA factor"):
        ProductSpace({"head": torch.ones(2, 2)})
    next(iter(fixed.values()))[0, 0] = math.nan
    with pytest.raises(RunError, match="is not a finite LoRA factor"):
        ProductSpace(fixed)

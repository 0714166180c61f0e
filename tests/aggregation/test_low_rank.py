"""Products of stacked factors against dense matrices, and without them."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from murmura.aggregation import low_rank
from murmura.aggregation.low_rank import Factors, WeightedProducts, compressed, fitting, modules, stack, truncate
from tests.aggregation.adapters import NAMES, adapter, factor, mean_effect

sides = st.integers(1, 8)
seeds = st.integers(0, 10**6)


def factors(seed: int, inner: int, outer: int, rank: int) -> Factors:
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(outer, rank, generator=generator, dtype=torch.float64),
        torch.randn(rank, inner, generator=generator, dtype=torch.float64),
    )


def close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=1e-10)


@settings(deadline=None, max_examples=50)
@given(seeds, sides, sides, st.integers(1, 12), st.integers(1, 12))
def test_truncation_is_the_dense_svd(seed: int, inner: int, outer: int, rank: int, wanted: int) -> None:
    B, A = factors(seed, inner, outer, rank)
    u, values, v = truncate((B, A), wanted)
    dense_u, dense_values, dense_v = torch.linalg.svd(B @ A, full_matrices=False)
    k = min(wanted, rank, inner, outer)
    assert len(values) == k
    close(values, dense_values[:k])
    for j in range(1, k + 1):  # cropping it once more is again the best there is
        best = dense_u[:, :j] * dense_values[:j] @ dense_v[:j]
        torch.testing.assert_close(u[:, :j] * values[:j] @ v[:j], best, atol=1e-6, rtol=1e-6)
    close(u.T @ u, torch.eye(k, dtype=torch.float64))
    close(v @ v.T, torch.eye(k, dtype=torch.float64))


@settings(deadline=None, max_examples=50)
@given(seeds, sides, sides, st.lists(st.integers(1, 4), min_size=1, max_size=5))
def test_stacking_and_compressing_keep_the_sum(seed: int, inner: int, outer: int, ranks: list[int]) -> None:
    terms = [factors(seed + k, inner, outer, rank) for k, rank in enumerate(ranks)]
    dense = sum((B @ A for B, A in terms), torch.zeros(outer, inner, dtype=torch.float64))
    for B, A in stack(terms), compressed(stack(terms)), fitting(stack(terms)):
        close(B @ A, dense)
    for B, A in compressed(stack(terms)), fitting(stack(terms)):
        assert B.shape[1] == len(A) <= min(inner, outer)


def test_factors_that_fit_stay_as_they_are() -> None:
    terms = factors(0, 8, 8, 3)
    assert fitting(terms) is terms


def test_a_product_has_no_more_rank_than_it_needs() -> None:
    B, A = factors(0, 8, 8, 3)
    twice = stack([(B, A), (B, 2 * A)])
    assert len(compressed(twice)[1]) == 3
    nothing, _ = compressed(stack([(B, A), (-B, A)]))
    assert nothing.shape == (8, 0)
    nothing, _ = compressed((torch.zeros_like(B), A))
    assert nothing.shape == (8, 0)


@settings(deadline=None, max_examples=30)
@given(seeds, st.lists(st.tuples(st.integers(1, 6), st.floats(1e-3, 1e3)), min_size=1, max_size=20))
def test_mean_of_products(seed: int, sites: list[tuple[int, float]]) -> None:
    contributions = [(adapter(seed + k, rank), weight) for k, (rank, weight) in enumerate(sites)]
    products = WeightedProducts()
    for state, weight in contributions:
        products.add(state, weight)
    expected = mean_effect(contributions, 1.0)
    assert {factor(module, "lora_A") for module in NAMES} == products.mean().keys()
    for module, dense in expected.items():
        B, A = products.mean()[factor(module, "lora_A")]
        close(B @ A, dense)
        assert len(A) <= 2 * min(dense.shape)  # however many sites there were


@pytest.mark.parametrize("sites", [1, 2, 40, 41, 42, 100])
def test_a_stack_is_made_when_it_has_to_be_and_comes_to_the_bits_of_one_that_grows(
    monkeypatch: pytest.MonkeyPatch, sites: int
) -> None:
    made = []

    def counted(terms: list[Factors]) -> Factors:
        made.append(len(terms))
        return stack(terms)

    monkeypatch.setattr(low_rank, "stack", counted)
    products, whole, least = WeightedProducts(), dict[str, Factors](), dict[str, int]()
    for seed in range(sites):
        state = adapter(seed, 1)
        products.add(state, 0.3)
        for a, b in modules(state):
            term = 0.3 * state[b].double(), state[a].double()
            grown = stack([whole[a], term]) if a in whole else term
            least[a] = min(len(grown[0]), grown[1].shape[1])
            whole[a] = grown if len(grown[1]) <= 2 * least[a] else compressed(grown)
    assert len(made) == sum(max(0, (sites - side) // (side + 1)) for side in least.values())
    weight = sum([0.3] * sites)
    for a, (B, A) in products.mean().items():
        assert torch.equal(B, whole[a][0] / weight) and torch.equal(A, whole[a][1])


@pytest.mark.parametrize("weight", [1e-90, 1e90])
def test_weights_of_any_size(weight: float) -> None:
    products = WeightedProducts()
    for seed in range(8):  # enough to be compressed on the way
        products.add(adapter(seed, 3), weight)
    expected = mean_effect([(adapter(seed, 3), 1.0) for seed in range(8)], 1.0)
    for a, _ in modules(adapter(0)):
        B, A = products.mean()[a]
        close(B @ A, expected[a.removeprefix("base_model.model.").removesuffix(".lora_A.weight")])

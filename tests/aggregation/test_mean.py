"""Weighted means: exact for one site, right for many, streaming, and strict about what they are given."""

from __future__ import annotations

import math
import random
import weakref
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from murmura.aggregation.mean import PER_NUMBER, StateSum, WeightedMean, too_long
from murmura.errors import RunError
from tests.aggregation.means import weighted_mean

State = dict[str, torch.Tensor]

values = st.floats(width=32, allow_nan=False, allow_infinity=False)
moderate = st.floats(-1e3, 1e3, width=32)
weights = st.floats(1e-3, 1e3)
contributions = st.lists(st.tuples(st.lists(moderate, min_size=6, max_size=6), weights), min_size=1, max_size=6)


def state(numbers: list[float]) -> State:
    return {"a": torch.tensor(numbers[:4]).view(2, 2), "b": torch.tensor(numbers[4:])}


def pairs(rows: list[tuple[list[float], float]]) -> list[tuple[State, float]]:
    return [(state(numbers), weight) for numbers, weight in rows]


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(torch.int32)


def test_hand_computed() -> None:
    mean = weighted_mean([({"x": torch.tensor([0.0, 8.0])}, 1), ({"x": torch.tensor([4.0, -4.0])}, 3)])
    assert mean["x"].tolist() == [3.0, -1.0]
    assert mean["x"].dtype == torch.float32


@settings(deadline=None)
@given(st.lists(values, min_size=1, max_size=20), st.floats(1e-100, 1e100))
def test_one_contribution_comes_back_bit_for_bit(numbers: list[float], weight: float) -> None:
    given_one = torch.tensor(numbers)
    mean = WeightedMean().add({"x": given_one}, weight).result()
    assert torch.equal(bits(mean["x"]), bits(given_one))  # -0.0 and subnormals too
    assert mean["x"].data_ptr() != given_one.data_ptr()


@settings(deadline=None)
@given(contributions)
def test_equals_exact_summation(rows: list[tuple[list[float], float]]) -> None:
    total = math.fsum(weight for _, weight in rows)
    mean = weighted_mean(pairs(rows))
    got = [*mean["a"].flatten().tolist(), *mean["b"].tolist()]
    for i, value in enumerate(got):
        exact = math.fsum(numbers[i] * weight for numbers, weight in rows) / total
        assert value == pytest.approx(exact, rel=1e-7, abs=1e-12)


@settings(deadline=None)
@given(contributions, st.integers(0, 99))
def test_order_does_not_matter(rows: list[tuple[list[float], float]], seed: int) -> None:
    shuffled = random.Random(seed).sample(rows, len(rows))
    torch.testing.assert_close(weighted_mean(pairs(shuffled)), weighted_mean(pairs(rows)), rtol=1e-6, atol=1e-9)


@settings(deadline=None)
@given(contributions, st.floats(1e-3, 1e3))
def test_only_ratios_of_weights_matter(rows: list[tuple[list[float], float]], scale: float) -> None:
    scaled = [(numbers, weight * scale) for numbers, weight in rows]
    torch.testing.assert_close(weighted_mean(pairs(scaled)), weighted_mean(pairs(rows)), rtol=1e-6, atol=1e-9)


@settings(deadline=None)
@given(contributions)
def test_lies_between_least_and_greatest(rows: list[tuple[list[float], float]]) -> None:
    mean = weighted_mean(pairs(rows))
    for name in mean:
        stacked = torch.stack([contribution[name] for contribution, _ in pairs(rows)])
        assert (stacked.amin(0) <= mean[name]).all()
        assert (mean[name] <= stacked.amax(0)).all()


@settings(deadline=None)
@given(contributions, st.floats(-4, 4), st.floats(-4, 4))
def test_is_linear(rows: list[tuple[list[float], float]], scale: float, shift: float) -> None:
    moved = [({name: scale * x.double() + shift for name, x in s.items()}, weight) for s, weight in pairs(rows)]
    expected = {name: (scale * x.double() + shift).float() for name, x in weighted_mean(pairs(rows)).items()}
    torch.testing.assert_close(weighted_mean(moved), expected, rtol=1e-5, atol=1e-3)


@settings(deadline=None)
@given(contributions)
def test_uniform_ignores_weights(rows: list[tuple[list[float], float]]) -> None:
    mean = WeightedMean(uniform=True)
    for contribution, weight in pairs(rows):
        mean.add(contribution, weight)
    alike = weighted_mean([(contribution, 1.0) for contribution, _ in pairs(rows)])
    assert all(torch.equal(mean.result()[name], alike[name]) for name in alike)


def test_accumulates_in_float64() -> None:
    """In float32 each of the small contributions would be lost beside 2**24."""
    states = [{"x": torch.tensor([2.0**24])}] + [{"x": torch.tensor([1.0])}] * 1000
    mean = WeightedMean()
    for each in states:
        mean.add(each, 1.0)
    assert mean.result()["x"].item() == torch.tensor((2**24 + 1000) / 1001).item()


def test_holds_one_contribution_at_a_time() -> None:
    alive: list[weakref.ref[torch.Tensor]] = []

    def replies() -> Iterator[tuple[State, float]]:
        for i in range(5):
            assert sum(ref() is not None for ref in alive) <= 1  # the caller's loop variable still holds the last one
            tensor = torch.full((3,), float(i))
            alive.append(weakref.ref(tensor))
            yield {"x": tensor}, 1.0
            del tensor

    assert weighted_mean(replies())["x"].tolist() == [2.0] * 3


def test_leaves_contributions_alone_and_can_go_on() -> None:
    first, second = {"x": torch.tensor([1.0])}, {"x": torch.tensor([3.0])}
    mean = WeightedMean().add(first, 1)
    assert mean.result()["x"].item() == 1.0
    assert mean.add(second, 1).result()["x"].item() == 2.0
    assert (first["x"].item(), second["x"].item()) == (1.0, 3.0)


def test_keeps_the_order_of_names_and_dense_tensors() -> None:
    mean = weighted_mean([({"z": torch.ones(2, 3).T, "a": torch.ones(1)}, 1.0)])
    assert list(mean) == ["z", "a"]
    assert mean["z"].is_contiguous()  # safetensors writes no others


def test_nothing_to_average() -> None:
    with pytest.raises(RunError, match="nothing to average"):
        weighted_mean([])


@pytest.mark.parametrize("weight", [0, -1, math.nan, math.inf, 1e-200, 1e200])
@pytest.mark.parametrize("uniform", [False, True])
def test_refuses_weights(weight: float, uniform: bool) -> None:
    mean = WeightedMean(uniform=uniform).add({"x": torch.ones(1)}, 1.0)
    with pytest.raises(RunError, match="contribution 2: the weight"):
        mean.add({"x": torch.ones(1)}, weight)


@pytest.mark.parametrize(
    ("odd", "message"),
    [
        ({"x": torch.ones(2)}, "'y' is missing"),
        ({"x": torch.ones(2), "y": torch.ones(1), "w": torch.ones(1)}, "'w' is not expected"),
        ({"x": torch.ones(1), "y": torch.ones(1)}, r"'x' has shape \(1,\), expected \(2,\)"),
        ({"x": torch.ones(2, 1), "y": torch.ones(1)}, r"'x' has shape \(2, 1\), expected \(2,\)"),
        ({"x": torch.ones(2), "y": torch.tensor([math.nan])}, "'y' holds a NaN"),
        ({"x": torch.tensor([1.0, -math.inf]), "y": torch.ones(1)}, "'x' holds a NaN or an infinity"),
    ],
)
def test_refuses_what_does_not_fit_and_stays_as_it_was(odd: State, message: str) -> None:
    good = {"x": torch.tensor([1.0, 2.0]), "y": torch.tensor([3.0])}
    mean = WeightedMean().add(good, 1.0)
    with pytest.raises(RunError, match=f"contribution 2: the tensor {message}"):
        mean.add(odd, 1.0)
    assert mean.result()["x"].tolist() == [1.0, 2.0]
    assert mean.add(good, 1.0).result()["y"].tolist() == [3.0]


def test_like_is_asked_of_the_first_contribution_too() -> None:
    with pytest.raises(RunError, match="contribution 1: the tensor 'x' is missing"):
        WeightedMean(like={"x": torch.ones(1)}).add({"y": torch.ones(1)}, 1.0)


def test_refuses_a_first_contribution_that_is_not_finite() -> None:
    with pytest.raises(RunError, match="contribution 1: the tensor 'x' holds"):
        weighted_mean([({"x": torch.tensor([math.nan])}, 1.0)])


def test_sum_is_a_sum() -> None:
    total = StateSum()
    for factor in (1.0, -3.0, 0.5):
        total.add({"x": torch.tensor([2.0])}, factor)
    assert total.tensors["x"].tolist() == [-3.0]
    assert total.tensors["x"].dtype == torch.float64
    assert total.count == 3


@pytest.mark.parametrize(
    ("value", "fits"),
    [(0.0, True), (8.0, True), (2.0**10, True), (2.0**11, False), (1e38, False), (math.nan, False), (math.inf, False)],
)
def test_an_upload_is_not_longer_than_training_makes_it(value: float, fits: bool) -> None:
    upload = {"a": torch.zeros(2, 2), "b": torch.tensor([value, 0.0])}
    sent = {"a": torch.zeros(2, 2), "b": torch.ones(2)}
    told = "'b' is longer than training makes it, unless training.lr is far too high"
    assert too_long(upload, sent) == (None if fits else told)


def test_what_is_told_in_steps_may_be_as_long_as_adams_are() -> None:
    """Where K = 1, each number of a control variate's change is one step over the rate, and what is taken off it."""
    sent = {"a": torch.zeros(1000, 1000)}
    assert too_long({"a": torch.full((1000, 1000), 6.0)}, sent, PER_NUMBER) is None
    assert too_long({"a": torch.full((1000, 1000), 6.0)}, sent)
    assert too_long({"a": torch.full((1000, 1000), 9.0)}, sent, PER_NUMBER)


def test_what_is_long_already_may_stay_so() -> None:
    """As embeddings of some whole models are."""
    sent = {"a": torch.full((1000, 1000), 1e3)}
    assert too_long({"a": 1.01 * sent["a"]}, sent) is None
    assert too_long({"a": 2 * sent["a"]}, sent)

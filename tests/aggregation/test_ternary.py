"""Ternary weights: the codes of the paper's rule, packed and unpacked without loss."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from murmura.aggregation.mean import shapes
from murmura.aggregation.ternary import SERVER_THRESHOLD, dequantise, pack, quantise, ternary, unpack
from murmura.errors import RunError

values = st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=40)


def state(*numbers: list[float]) -> dict[str, torch.Tensor]:
    return {f"t{i}": torch.tensor(row) for i, row in enumerate(numbers)}


def test_golden() -> None:
    theta = torch.tensor([1.0, -0.02, 0.5, -0.9])
    assert float(0.07 * theta.abs().mean()) == pytest.approx(0.04235)
    codes, scale = ternary(theta, 0.07)
    assert codes.tolist() == [1, 0, 1, -1]
    assert float(scale) == pytest.approx(0.8)
    packed = quantise({"x": theta})
    assert packed.codes["x"].tolist() == [0b00_10_01_10]  # the first element in the lowest bits
    assert dequantise(packed.codes, packed.scales, shapes({"x": theta}))["x"].tolist() == pytest.approx(
        [0.8, 0, 0.8, -0.8]
    )


def test_the_server_s_threshold_is_lower() -> None:
    theta = {"x": torch.tensor([1.0, 0.03])}  # mean 0.515: Δ is 0.03605 and 0.02575
    assert unpack(quantise(theta).codes["x"], torch.Size([2])).tolist() == [1, 0]
    assert unpack(quantise(theta, SERVER_THRESHOLD).codes["x"], torch.Size([2])).tolist() == [1, 1]


def test_a_tensor_of_zeros_stays_one() -> None:
    packed = quantise({"x": torch.zeros(3, 2)})
    assert packed.scales.tolist() == [0]
    assert dequantise(packed.codes, packed.scales, {"x": torch.Size([3, 2])})["x"].tolist() == [[0, 0]] * 3


def test_bytes_are_a_sixteenth() -> None:
    theta = {"a": torch.randn(64, 32), "b": torch.randn(5)}
    packed = quantise(theta)
    assert [(t.dtype, t.numel()) for t in packed.codes.values()] == [(torch.uint8, 64 * 32 // 4), (torch.uint8, 2)]
    assert packed.scales.dtype == torch.float32 and packed.scales.shape == (2,)


@settings(deadline=None)
@given(st.lists(st.sampled_from([-1.0, 0.0, 1.0]), max_size=40))
def test_packing_loses_nothing(codes: list[float]) -> None:
    tensor = torch.tensor(codes)
    assert torch.equal(unpack(pack(tensor), tensor.shape), tensor)


@settings(deadline=None)
@given(st.lists(values, min_size=1, max_size=4), st.floats(0, 2))
def test_every_element_is_minus_w_zero_or_w(rows: list[list[float]], threshold: float) -> None:
    given_state = state(*rows)
    packed = quantise(given_state, threshold)
    back = dequantise(packed.codes, packed.scales, shapes(given_state))
    for i, (name, theta) in enumerate(given_state.items()):
        w = float(packed.scales[i])
        magnitude, delta = theta.abs(), threshold * theta.abs().mean()
        kept = magnitude > delta
        assert set(back[name].abs().tolist()) <= {0.0, w}
        assert torch.equal(back[name].sign(), theta.sign() * kept) or w == 0
        assert w == pytest.approx(float(magnitude[kept].mean()) if kept.any() else 0, rel=1e-5)


@settings(deadline=None)
@given(values)
def test_quantising_twice_changes_nothing(numbers: list[float]) -> None:
    """What the server broadcasts, a site that learns nothing sends back."""
    theta = state(numbers)
    once = quantise(theta)
    back = dequantise(once.codes, once.scales, shapes(theta))
    twice = quantise(back)
    assert all(torch.equal(twice.codes[n], once.codes[n]) for n in theta) or not once.scales.any()
    assert torch.allclose(twice.scales, once.scales, rtol=1e-5)


@settings(deadline=None)
@given(values, st.permutations(range(40)))
def test_the_order_of_elements_does_not_matter(numbers: list[float], order: list[int]) -> None:
    theta = torch.tensor(numbers, dtype=torch.float64)
    moved = torch.tensor([i for i in order if i < len(numbers)])
    codes, scale = ternary(theta, 0.07)
    moved_codes, moved_scale = ternary(theta[moved], 0.07)
    near = (theta.abs() - 0.07 * theta.abs().mean()).abs() < 1e-9 * theta.abs().max()
    if not near.any():  # a sum in another order may fall on the other side of Δ
        assert torch.equal(moved_codes, codes[moved])
        assert float(moved_scale) == pytest.approx(float(scale))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda codes, scales: ({"y": codes["x"]}, scales), "does not have the tensors"),
        (lambda codes, scales: (codes, scales[:0]), "does not have the tensors"),
        (lambda codes, scales: (codes, scales * float("nan")), "scale of a ternary state is not a finite number"),
        (lambda codes, scales: (codes, scales - 5), "scale of a ternary state is not a finite number"),
        (lambda codes, scales: ({"x": codes["x"][:1]}, scales), "x: not 6 packed codes"),
        (lambda codes, scales: ({"x": codes["x"].float()}, scales), "x: not 6 packed codes, but torch.float32"),
        (lambda codes, scales: ({"x": codes["x"] | 3}, scales), "x: a code is neither -1, 0 nor 1"),
    ],
)
def test_a_damaged_message_is_refused(damage, message) -> None:
    theta = {"x": torch.randn(2, 3)}
    packed = quantise(theta)
    with pytest.raises(RunError, match=message):
        dequantise(*damage(packed.codes, packed.scales), shapes(theta))

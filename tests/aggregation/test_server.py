"""Server optimisers against numbers worked out by hand, torch's SGD, scalar loops, and interruption."""

from __future__ import annotations

import math
from math import sqrt
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from murmura.aggregation.config import AggregationConfig
from murmura.aggregation.server import OPTIMISERS, ServerOptimizer, optimizer_of
from murmura.errors import CheckpointError, ConfigError, RunError

State = dict[str, torch.Tensor]

Form = tuple[str, dict[str, Any]]

ADAPTIVE: list[Form] = [
    ("fedadagrad", {}),
    ("fedyogi", {}),
    ("fedyogi", {"second_moment": "momentum"}),
    ("fedadam", {}),
    ("fedadam", {"second_moment": "momentum"}),
]
EVERY_FORM: list[Form] = [*ADAPTIVE, ("fedavgm", {}), ("fedavgm", {"damping": False})]


def made(kind: str, **options: Any) -> ServerOptimizer:
    """The server's step that a section names."""
    optimizer = optimizer_of(AggregationConfig.parse({"server": {"kind": kind, **options}}, "aggregation"))
    assert optimizer is not None
    return optimizer


def path(optimizer: ServerOptimizer, deltas: list[float]) -> list[float]:
    """W after each round of a scalar federation of one site, from W = 0."""
    current, visited = {"w": torch.zeros(1)}, []
    for delta in deltas:
        current = optimizer.step(current, [({"w": current["w"] + delta}, 5.0)])
        visited.append(current["w"].item())
    return visited


def cumulative(*steps: float) -> list[float]:
    return [sum(steps[: i + 1]) for i in range(len(steps))]


def test_golden_fedavgm() -> None:
    """Δ₀ = 1, Δ₁ = 0 takes W from 0 to 1 to 1.9."""
    assert path(made("fedavgm"), [1.0, 0.0]) == pytest.approx([1.0, 1.9], rel=1e-7)


@pytest.mark.parametrize(
    ("name", "options", "steps"),
    [
        # m = 1, 2, 1/2
        ("fedavgm", {"damping": True}, [1, 2, 0.5]),
        # m = 1, 7/2, 3/4
        ("fedavgm", {"damping": False}, [1, 3.5, 0.75]),
        # v = 1, 3, 5/2 from Δ² = 1, 9, 1; v = 1, 7/4, 11/8 from m² = 1, 4, 1/4
        ("fedadam", {"second_moment": "delta"}, [1 / 2, 2 / (sqrt(3) + 1), 0.5 / (sqrt(2.5) + 1)]),
        ("fedadam", {"second_moment": "momentum"}, [1 / 2, 2 / (sqrt(1.75) + 1), 0.5 / (sqrt(1.375) + 1)]),
        # v = 1 (a tie changes nothing), 13/4, 3; and v = 1, 2, 31/16
        ("fedyogi", {"second_moment": "delta"}, [1 / 2, 2 / (sqrt(3.25) + 1), 0.5 / (sqrt(3) + 1)]),
        ("fedyogi", {"second_moment": "momentum"}, [1 / 2, 2 / (sqrt(2) + 1), 0.5 / (sqrt(1.9375) + 1)]),
    ],
)
def test_three_rounds_by_hand(name: str, options: dict[str, Any], steps: list[float]) -> None:
    """Δ = 1, 3, −1 with β₁ = 1/2, β₂ = 3/4, η = τ = v₀ = 1."""
    ours = {"beta1": 0.5} | ({"beta2": 0.75, "tau": 1.0, "lr": 1.0} if name != "fedavgm" else {}) | options
    assert path(made(name, **ours), [1.0, 3.0, -1.0]) == pytest.approx(cumulative(*steps), rel=1e-6)


def test_three_rounds_of_fedadagrad_by_hand() -> None:
    """τ = 3: √v runs through 5, 13, 85."""
    steps = cumulative(4 / (5 + 3), 12 / (13 + 3), -84 / (85 + 3))
    assert path(made("fedadagrad", lr=1.0, tau=3.0), [4, 12, -84]) == pytest.approx(steps, rel=1e-6)


def test_defaults() -> None:
    """A first Δ = 3e-3: m = Δ, and v₀ = τ² = 1e-6."""
    delta, eta, tau = 3e-3, 1e-3, 1e-3
    expected = {
        "fedavgm": delta,
        "fedadagrad": eta * delta / (sqrt(1e-6 + delta**2) + tau),
        "fedyogi": eta * delta / (sqrt(1e-6 + 0.01 * delta**2) + tau),
        "fedadam": eta * delta / (sqrt(0.99e-6 + 0.01 * delta**2) + tau),
    }
    for name, value in expected.items():
        assert path(made(name), [delta]) == pytest.approx([value], rel=1e-6), name


@pytest.mark.parametrize("name", OPTIMISERS)
def test_who_weighs_sites(name: str) -> None:
    """FedAvgM weighs sites, the adaptive rules do not."""
    current = {"w": torch.zeros(1)}
    after = made(name).step(current, [({"w": torch.tensor([1.0])}, 1.0), ({"w": torch.tensor([-1.0])}, 3.0)])
    assert after["w"].item() < 0 if name == "fedavgm" else after["w"].item() == 0


def some_round(generator: torch.Generator, current: State, sites: int = 3) -> list[tuple[State, float]]:
    def noisy(x: torch.Tensor) -> torch.Tensor:
        return x + 0.01 * torch.randn(x.shape, generator=generator)

    return [({name: noisy(x) for name, x in current.items()}, float(k + 1)) for k in range(sites)]


def start() -> State:
    generator = torch.Generator().manual_seed(1)
    return {"layer.A": torch.randn(2, 3, generator=generator), "layer.B": torch.zeros(4, 2)}


@settings(deadline=None)
@given(
    deltas=st.lists(st.floats(-8, 8, width=32), min_size=1, max_size=6), beta=st.floats(0, 0.95), damping=st.booleans()
)
def test_fedavgm_is_torchs_sgd_on_minus_delta(deltas: list[float], beta: float, damping: bool) -> None:
    """OpenFedLLM's damping is SGD's `dampening` = β₁."""
    w = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    sgd = torch.optim.SGD([w], lr=1.0, momentum=beta, dampening=beta if damping else 0.0)
    expected = []
    for delta in deltas:
        w.grad = torch.tensor([-delta], dtype=torch.float64)
        sgd.step()
        expected.append(w.item())
    ours = made("fedavgm", beta1=beta, damping=damping)
    # W is float32 between rounds, so Δ carries its rounding.
    assert path(ours, deltas) == pytest.approx(expected, rel=1e-4, abs=1e-4)


class Scalar:
    """The adaptive rules for one number, from the table, with Python floats."""

    def __init__(self, name: str, second_moment: str = "delta") -> None:
        self.name, self.second_moment = name, second_moment
        self.m: float | None = None
        self.v = 1e-6

    def step(self, delta: float) -> float:
        if self.name == "fedadagrad":
            self.v += delta**2
            return 1e-3 * delta / (sqrt(self.v) + 1e-3)
        self.m = delta if self.m is None else 0.9 * self.m + 0.1 * delta
        square = delta**2 if self.second_moment == "delta" else self.m**2
        if self.name == "fedadam":
            self.v = 0.99 * self.v + 0.01 * square
        elif self.v > square:
            self.v -= 0.01 * square
        elif self.v < square:
            self.v += 0.01 * square
        return 1e-3 * self.m / (sqrt(self.v) + 1e-3)


@pytest.mark.parametrize(("name", "options"), ADAPTIVE)
def test_adaptive_rules_equal_scalar_loops(name: str, options: dict[str, Any]) -> None:
    generator = torch.Generator().manual_seed(0)
    optimizer, current = made(name, **options), start()
    scalars = {key: [Scalar(name, **options) for _ in range(x.numel())] for key, x in current.items()}
    for _ in range(5):
        updates = some_round(generator, current)
        expected = {}
        for key, x in current.items():
            sites = [update[key].flatten().tolist() for update, _ in updates]
            moved = []
            for i, old in enumerate(x.flatten().tolist()):
                delta = math.fsum(site[i] - old for site in sites) / len(sites)
                moved.append(old + scalars[key][i].step(delta))
            expected[key] = torch.tensor(moved).view(x.shape)
        current = optimizer.step(current, iter(updates))
        torch.testing.assert_close(current, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(("name", "options"), EVERY_FORM)
def test_order_of_sites_and_scale_of_weights_do_not_matter(name: str, options: dict[str, Any]) -> None:
    updates = some_round(torch.Generator().manual_seed(0), start(), sites=5)
    after = made(name, **options).step(start(), updates)
    other = [(state, 7.5 * weight) for state, weight in reversed(updates)]
    torch.testing.assert_close(made(name, **options).step(start(), other), after, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(("name", "options"), EVERY_FORM)
def test_sites_that_did_not_move_leave_the_state_alone(name: str, options: dict[str, Any]) -> None:
    optimizer, current = made(name, **options), start()
    for _ in range(3):
        after = optimizer.step(current, [(current, 1.0), (current, 2.0)])
        assert all(torch.equal(after[key], current[key]) for key in current)


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(EVERY_FORM), st.integers(0, 3))
def test_resuming_gives_the_same_bits(form: Form, stop: int) -> None:
    name, options = form

    def go(optimizer: ServerOptimizer, current: State, rounds: range) -> State:
        for t in rounds:
            current = optimizer.step(current, some_round(torch.Generator().manual_seed(t), current))
        return current

    whole = go(made(name, **options), start(), range(4))
    first, second = made(name, **options), made(name, **options)
    middle = go(first, start(), range(stop))
    second.load_state_dict({key: tensor.clone() for key, tensor in first.state_dict().items()})
    resumed = go(second, middle, range(stop, 4))
    assert second.rounds == 4
    assert all(torch.equal(whole[key], resumed[key]) for key in whole)


@pytest.mark.parametrize(("name", "options"), EVERY_FORM)
def test_state_survives_a_safetensors_file(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    current = {
        "a/b": torch.arange(6.0).view(3, 2).T,
        "c": torch.ones(1),
    }  # a name with the separator in it; a strided tensor
    before, after = made(name, **options), made(name, **options)
    current = before.step(current, some_round(torch.Generator().manual_seed(0), current))
    assert all(x.is_contiguous() for x in current.values())  # safetensors writes no others
    save_file(before.state_dict(), tmp_path / "server.safetensors")
    after.load_state_dict(load_file(tmp_path / "server.safetensors"))
    updates = some_round(torch.Generator().manual_seed(1), current)
    a, b = before.step(current, updates), after.step(current, updates)
    assert all(torch.equal(a[key], b[key]) for key in current)


def test_names_in_the_checkpoint() -> None:
    optimizer = made("fedadam")
    assert set(optimizer.state_dict()) == {"rounds"}
    optimizer.step({"x": torch.zeros(1)}, [({"x": torch.ones(1)}, 1.0)])
    assert set(optimizer.state_dict()) == {"rounds", "m/x", "v/x"}
    assert optimizer.state_dict()["rounds"].item() == 1


def test_a_saved_state_is_not_changed_by_later_steps() -> None:
    optimizer = made("fedadam")
    optimizer.step(start(), some_round(torch.Generator().manual_seed(0), start()))
    saved = optimizer.state_dict()
    copies = {key: tensor.clone() for key, tensor in saved.items()}
    optimizer.step(start(), some_round(torch.Generator().manual_seed(1), start()))
    assert all(torch.equal(saved[key], copies[key]) for key in saved)


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("fedavgm", {}),
        ("fedadagrad", {"rounds": torch.tensor(1), "m/x": torch.zeros(1)}),
        ("fedavgm", {"rounds": torch.tensor(1), "v/x": torch.zeros(1)}),
        ("fedavgm", {"rounds": torch.tensor(1)}),
        ("fedadam", {"rounds": torch.tensor(1), "m/x": torch.zeros(1)}),
        ("fedadam", {"rounds": torch.tensor(1), "m/x": torch.zeros(1), "v/y": torch.zeros(1)}),
    ],
)
def test_refuses_the_state_of_another_rule(name: str, state: State) -> None:
    optimizer = made(name)
    with pytest.raises(CheckpointError, match="Resume with the server optimiser"):
        optimizer.load_state_dict(state)
    assert optimizer.rounds == 0


@pytest.mark.parametrize(("name", "options"), EVERY_FORM)
def test_a_refused_round_leaves_no_trace(name: str, options: dict[str, Any]) -> None:
    optimizer, current = made(name, **options), start()
    good = some_round(torch.Generator().manual_seed(0), current)
    current = optimizer.step(current, good)
    before = {key: tensor.clone() for key, tensor in optimizer.state_dict().items()}
    bad = {**good[1][0], "layer.B": torch.full((4, 2), math.nan)}
    for updates in ([], [good[0], (bad, 1.0)], [(good[0][0], 0.0)], [({"other": torch.ones(1)}, 1.0)]):
        with pytest.raises(RunError):
            optimizer.step(current, updates)
    after = optimizer.state_dict()
    assert all(torch.equal(before[key], after[key]) for key in before)


def test_a_first_reply_that_does_not_fit_the_server_is_refused() -> None:
    with pytest.raises(RunError, match=r"'layer.A' has shape \(2, 2\), expected \(2, 3\)"):
        made("fedavgm").step(start(), [({**start(), "layer.A": torch.ones(2, 2)}, 1.0)])


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("fedavgm", {"beta1": 1.0}),
        ("fedavgm", {"tau": 0.5}),  # nothing is taken and then ignored
        ("fedavgm", {"damping": "perhaps"}),
        ("fedadagrad", {"lr": 0.0}),
        ("fedadagrad", {"lr": math.nan}),
        ("fedadam", {"lr": math.inf}),
        ("fedadagrad", {"tau": -1e-3}),
        ("fedadam", {"tau": math.inf}),
        ("fedadam", {"beta2": -0.1}),
        ("fedyogi", {"second_moment": "moment"}),
    ],
)
def test_options_out_of_range(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        AggregationConfig.parse({"server": {"kind": name, **options}}, "aggregation")


def test_a_config_names_them() -> None:
    assert {name: type(made(name)) for name in OPTIMISERS} == OPTIMISERS
    assert optimizer_of(AggregationConfig()) is None

"""SCAFFOLD's common control variate stays the mean of the sites' own ones."""

from __future__ import annotations

import pytest
import torch

from murmura.aggregation.scaffold import control_update
from murmura.errors import RunError


def test_hand_computed() -> None:
    c = {"x": torch.tensor([1.0, -1.0])}
    deltas = [{"x": torch.tensor([4.0, 0.0])}, {"x": torch.tensor([4.0, 2.0])}]
    assert control_update(c, iter(deltas), total_sites=4)["x"].tolist() == [3.0, -0.5]
    assert c["x"].tolist() == [1.0, -1.0]


def test_stays_the_mean_of_all_sites_control_variates() -> None:
    """Which fails when the sum is divided by the number of replies."""
    generator = torch.Generator().manual_seed(0)
    own = [torch.zeros(5) for _ in range(6)]
    c = {"x": torch.zeros(5)}
    for cohort in ([0, 3], [1, 3, 5], [2], [0, 1, 2, 3, 4, 5]):
        new = {k: torch.randn(5, generator=generator) for k in cohort}
        c = control_update(c, ({"x": new[k] - own[k]} for k in cohort), total_sites=6)
        for k in cohort:
            own[k] = new[k]
        torch.testing.assert_close(c["x"], torch.stack(own).mean(0), rtol=1e-6, atol=1e-6)


def test_without_replies_nothing_changes() -> None:
    c = {"x": torch.tensor([1.0])}
    after = control_update(c, [], total_sites=3)
    assert after["x"].tolist() == [1.0]
    assert after["x"].data_ptr() != c["x"].data_ptr()


def test_refuses_what_cannot_be() -> None:
    c = {"x": torch.ones(1)}
    with pytest.raises(RunError, match=r"2 sites replied .* of 1"):
        control_update(c, [c, c], total_sites=1)
    with pytest.raises(RunError, match="'x' is missing"):
        control_update(c, [{"y": torch.ones(1)}], total_sites=1)
    with pytest.raises(RunError, match="'x' holds a NaN"):
        control_update(c, [{"x": torch.tensor([float("nan")])}], total_sites=1)

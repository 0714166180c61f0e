"""Sums of replies."""

from __future__ import annotations

import torch

from murmura.federation.wire.sums import Sum


def test_a_sum_is_of_tensors_weighed_and_of_numbers():
    found = Sum()
    for site, size in {"a": 1, "b": 3}.items():
        state = {"w": torch.full((2,), float(size))}
        fields = {"adapter": state, "examples": size, "votes": torch.tensor([1, 2])}
        found.add(site, fields, {"adapter": "examples"})
    assert found["adapter"]["w"].tolist() == [1 * 1 + 3 * 3] * 2
    assert (found["examples"], found["votes"].tolist(), found.sites) == (4, [2, 4], ["a", "b"])

"""Sums of replies."""

import pytest
import torch

from murmura.errors import RunError
from murmura.federation.wire.sums import Sum, misfit


def test_a_sum_is_of_tensors_weighed_and_of_numbers():
    found = Sum()
    for site, size in {"a": 1, "b": 3}.items():
        state = {"w": torch.full((2,), float(size))}
        fields = {"adapter": state, "examples": size, "votes": torch.tensor([1, 2])}
        found.add(site, fields, {"adapter": "examples"})
    assert found["adapter"]["w"].tolist() == [1 * 1 + 3 * 3] * 2
    assert (found["examples"], found["votes"].tolist(), found.sites) == (4, [2, 4], ["a", "b"])


def test_a_field_that_is_none_adds_nothing_and_its_mean_is_of_those_that_are_there():
    found = Sum()
    for site, loss in {"a": 2.0, "b": None, "c": 4.0}.items():
        found.add(site, {"loss": loss, "nothing": None})
    assert (found["loss"], found.mean("loss"), found.mean("nothing")) == (6.0, 3.0, None)
    assert found.fields.keys() == {"loss"}
    with pytest.raises(RunError, match="'text' cannot be added up"):
        found.add("d", {"text": "a rash"})


@pytest.mark.parametrize("counts", [None, 3, [1], {"a": -1}, {"a": {"b": 1}}, {"a": None}])
def test_a_table_of_counts_has_to_be_there(counts):
    assert (
        misfit({"counts": counts}, {"counts": {}})
        == "'counts' is not the number, or the table of numbers, that it should be"
    )
    assert misfit({}, {"counts": {}}) and misfit({"counts": {"a": 1}}, {"counts": {"a": 0}}) is None

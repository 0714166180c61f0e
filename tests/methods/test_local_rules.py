"""The server's half of SCAFFOLD; the sites' is in test_averaging.py."""

from types import SimpleNamespace

import pytest
import torch

from murmura.aggregation.config import AggregationConfig
from murmura.methods.local_rules import local_rule


@pytest.fixture
def settle():
    """Lets the server take in the sum of the changes of some sites' control variates; returns its own."""
    rule, server = local_rule(AggregationConfig(local="scaffold")), SimpleNamespace(store={})
    server.adapter = {"x": torch.ones(2)}

    def settled(changes, sites):
        sums = {"control_change": {"x": torch.stack(changes).double().sum(0)}} if changes else {}
        rule.settle(server, sums, sites)
        return rule.sends(server)["control"]["x"]

    return settled


def test_the_common_control_variate_moves_by_the_changes_over_all_sites(settle):
    first = settle([torch.tensor([4.0, 0.0]), torch.tensor([4.0, 2.0])], 4)
    assert (first.tolist(), first.dtype) == ([2.0, 0.5], torch.float32)
    assert settle([torch.tensor([-4.0, 1.0])], 4).tolist() == [1.0, 0.75]


def test_it_stays_the_mean_of_all_sites_own_ones(settle):
    """Which fails when the sum is divided by the number of replies."""
    generator = torch.Generator().manual_seed(0)
    own = [torch.zeros(2) for _ in range(6)]
    for cohort in ([0, 3], [1, 3, 5], [2], [0, 1, 2, 3, 4, 5]):
        new = {k: torch.randn(2, generator=generator) for k in cohort}
        common = settle([new[k] - own[k] for k in cohort], 6)
        for k in cohort:
            own[k] = new[k]
        torch.testing.assert_close(common, torch.stack(own).mean(0), rtol=1e-6, atol=1e-6)


def test_without_replies_nothing_changes(settle):
    assert settle([], 3).tolist() == [0.0, 0.0]
    before = settle([torch.tensor([3.0, 0.0])], 3).tolist()
    assert settle([], 3).tolist() == before == [1.0, 0.0]

from __future__ import annotations

import pytest

from murmura.errors import ConfigError
from murmura.methods import parse_config


def parsed(**given):
    return parse_config({"name": "dpftrl"} | given, "my.toml")


@pytest.mark.parametrize(
    "given",
    [
        {}, {"noise_multiplier": 0, "restart_every": 4}, {"restart_every": 4, "honaker": False, "momentum": 0.5},
        {"noise": "banded", "sites_per_round": 2, "bands": 3, "momentum": 0.5},
    ],
)  # fmt: skip
def test_what_a_run_folder_keeps_loads_again(given):
    config = parsed(**given)
    assert parse_config(config.model_dump(mode="json", exclude_none=True), "config.toml") == config


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"restart_every": 0}, "'restart_every' = 0: Input should be greater than or equal to 1"),
        ({"epsilon": -1}, "'epsilon' = -1"),
        ({"epsilon": 2, "noise_multiplier": 1}, "say the same thing twice"),
        ({"momentum": 0.5}, "'momentum' does nothing when a tree spans one round; remove it"),
        ({"restart_every": 1, "momentum": 0.5}, "'momentum' does nothing when a tree spans one round; remove it"),
        ({"honaker": False}, "'honaker' does nothing when a tree spans one round; remove it"),
        ({"noise_multiplier": 0, "restart_every": 4, "honaker": False}, "'honaker' does nothing without noise"),
        ({"noise": "banded"}, "noise = 'banded' needs 'sites_per_round'"),
        (
            {"noise": "banded", "sites_per_round": 2, "restart_every": 4},
            "'restart_every' does nothing with noise = 'ba",
        ),
        ({"noise": "banded", "sites_per_round": 2, "honaker": False}, "'honaker' does nothing with noise = 'banded'"),
        ({"sites_per_round": 2, "bands": 3}, "'bands' does nothing with noise = 'tree'"),
        ({"noise_multiplier": 0, "noise": "banded", "sites_per_round": 2}, "'noise' does nothing without noise"),
        ({"sampler": "poisson"}, "unknown key 'sampler'"),
        ({"adaptive": True}, "unknown key 'adaptive'"),
    ],
)
def test_what_makes_no_sense_is_refused(given, message):
    with pytest.raises(ConfigError) as error:
        parsed(**given)
    assert message in str(error.value)


def test_momentum_counts_where_trees_may_span_more():
    assert parsed(sites_per_round=2, momentum=0.5).momentum == 0.5

"""Options of the FedIT family."""

from __future__ import annotations

from typing import get_args

import pytest

from murmura.errors import ConfigError
from murmura.methods import build, parse_config
from murmura.methods.fedit.config import Algorithm, FedITConfig

ALGORITHMS = get_args(Algorithm)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_loads_and_loads_again_from_what_a_run_folder_keeps(algorithm):
    config = parse_config({"name": "fedit", "algorithm": algorithm}, "my.toml")
    assert parse_config(config.model_dump(mode="json", exclude_none=True), "config.toml") == config
    assert build(config).label


@pytest.mark.parametrize(
    ("option", "value", "algorithm"),
    [
        ("mu", 0.5, "fedavg"), ("server_lr", 0.1, "fedavgm"), ("tau", 0.1, "scaffold"), ("beta1", 0.5, "fedadagrad"),
        ("beta2", 0.5, "fedavgm"), ("second_moment", "momentum", "fedadagrad"), ("damping", False, "fedadam"),
        ("sites_per_round", 2, "centralised"),
    ],
)  # fmt: skip
def test_an_option_that_does_nothing_is_refused(option, value, algorithm):
    with pytest.raises(ConfigError, match=f"'{option}' does nothing with algorithm '{algorithm}'; remove it"):
        FedITConfig.parse({"algorithm": algorithm, option: value}, "my.toml")


@pytest.mark.parametrize(
    ("option", "value", "algorithms"),
    [
        ("mu", 0.5, ["fedprox"]), ("server_lr", 0.1, ["fedadam", "fedyogi", "fedadagrad"]),
        ("beta1", 0.5, ["fedavgm", "fedadam", "fedyogi"]), ("damping", False, ["fedavgm"]),
    ],
)  # fmt: skip
def test_and_is_taken_where_it_does(option, value, algorithms):
    for algorithm in algorithms:
        assert getattr(FedITConfig.parse({"algorithm": algorithm, option: value}, "x"), option) == value


def test_an_unknown_algorithm():
    with pytest.raises(ConfigError, match="'algorithm' = 'fedsgd'"):
        FedITConfig.parse({"algorithm": "fedsgd"}, "my.toml")

"""Options of adapters and of local training."""

from __future__ import annotations

import pytest

from murmura.errors import ConfigError
from murmura.training.config import LocalTraining, LoraSpec


def test_scale():
    assert LoraSpec(rank=16, alpha=32).scale == 2
    assert LoraSpec(rank=16, alpha=32, rslora=True).scale == 8


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"lr": 1e-5, "lr_min": 1e-4}, r"lr_min \(0.0001\) is above lr \(1e-05\)"),
        ({"lr": 0}, "'lr' = 0: Input should be greater than 0"),
        ({"optimizer": "lion"}, "'optimizer' = 'lion'"),
        ({"epoch": 3}, "unknown key 'epoch'. Did you mean 'epochs'?"),
        ({"tokens_per_pass": 0}, "'tokens_per_pass' = 0"),
        ({"betas": [0.9, 1]}, "'betas.1' = 1: Input should be less than 1"),
        ({"betas": [-0.1, 0.9]}, "'betas.0' = -0.1: Input should be greater than or equal to 0"),
    ],
)
def test_bad_options(table, message):
    with pytest.raises(ConfigError, match=message):
        LocalTraining.parse(table, "my.toml [training]")


def test_an_adapter_stands_somewhere():
    with pytest.raises(ConfigError, match=r"'targets' = \[\]: Tuple should have at least 1 item"):
        LoraSpec.parse({"targets": []}, "my.toml [lora]")


def test_a_message_does_not_quote_a_whole_table():
    with pytest.raises(ConfigError) as error:
        LocalTraining.parse({"lr": 1e-5, "lr_min": 1e-4, "batch_size": 3}, "x")
    assert "batch_size" not in str(error.value)

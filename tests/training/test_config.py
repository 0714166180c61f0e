"""Options of adapters and of local training."""

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
        ({"lr": 0}, "'lr' = 0: must be greater than 0"),
        ({"optimizer": "lion"}, "'optimizer' = 'lion'"),
        ({"schedule": "constant", "lr_min": 1e-5}, "'lr_min' does nothing with schedule 'constant'; remove it"),
        ({"max_steps": 2, "epochs": 5}, "'epochs' does nothing with max_steps"),
        ({"momentum": 0.9}, "'momentum' does nothing with 'adamw'"),
        ({"optimizer": "sgd", "betas": [0.5, 0.6]}, "'betas' does nothing with 'sgd'"),
        ({"optimizer": "sgd", "eps": 1e-6}, "'eps' does nothing with 'sgd'"),
        ({"epoch": 3}, "unknown key 'epoch'. Did you mean 'epochs'?"),
        ({"tokens_per_pass": 0}, "'tokens_per_pass' = 0"),
        ({"tokens_per_pass": "many"}, "'tokens_per_pass' = 'many'"),
        ({"betas": [0.9, 1]}, "'betas.1' = 1: must be less than 1"),
        ({"optimizer": "sgd", "momentum": 9}, "'momentum' = 9: must be less than 1"),
        ({"betas": [-0.1, 0.9]}, "'betas.0' = -0.1: must be greater than or equal to 0"),
    ],
)
def test_bad_options(table, message):
    with pytest.raises(ConfigError, match=message):
        LocalTraining.parse(table, "my.toml [training]")


def test_an_adapter_stands_somewhere():
    with pytest.raises(ConfigError, match=r"'targets' = \[\]: must not be empty"):
        LoraSpec.parse({"targets": []}, "my.toml [lora]")


@pytest.mark.parametrize(
    "table",
    [
        {"schedule": "constant", "lr": 5e-7},  # below the lr_min that nobody has set and nothing reads
        {"max_steps": 2},
        {"optimizer": "sgd", "momentum": 0.9},
        {"betas": [0.8, 0.9], "eps": 1e-6},
    ],
)
def test_what_is_written_out_in_full_loads_again(table):
    training = LocalTraining.parse(table, "my.toml [training]")
    assert LocalTraining.parse(training.model_dump(mode="json", exclude_none=True), "config.toml") == training


def test_a_message_does_not_quote_a_whole_table():
    with pytest.raises(ConfigError) as error:
        LocalTraining.parse({"lr": 1e-5, "lr_min": 1e-4, "batch_size": 3}, "x")
    assert "batch_size" not in str(error.value)


@pytest.mark.parametrize("layers", ["last 0", "last eight", "22-", "1-2-3", ""])
def test_layers_that_say_nothing(layers):
    with pytest.raises(ConfigError, match='"last 8"'):
        LoraSpec.parse({"layers": layers}, "my.toml [lora]")


def test_golden_rates():
    rates = [LocalTraining(lr=5e-5, lr_min=1e-6).rate(t, 30) for t in (0, 15, 29)]
    assert rates == pytest.approx([5e-5, 2.55e-5, 1.134e-6], rel=1e-3)


def test_the_rate_falls_and_never_reaches_the_least():
    rates = [LocalTraining(lr=1e-3, lr_min=1e-6).rate(t, 10) for t in range(10)]
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] > 1e-6


def test_a_constant_rate():
    assert {LocalTraining(lr=1e-3, schedule="constant").rate(t, 10) for t in range(10)} == {1e-3}

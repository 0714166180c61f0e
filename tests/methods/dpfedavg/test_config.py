import pytest

from murmura.errors import ConfigError
from murmura.methods import parse_config


def parsed(**given):
    return parse_config({"name": "dpfedavg"} | given, "my.toml")


def test_noise_is_calibrated_unless_it_is_given():
    assert (parsed().epsilon, parsed().noise_multiplier) == (8.0, None)
    assert (parsed(noise_multiplier=2).epsilon, parsed(noise_multiplier=2).noise_multiplier) == (None, 2.0)
    assert parsed().private and not parsed(noise_multiplier=0).private


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"noise_multiplier": 0},
        {"noise_multiplier": 1.5, "sampler": {"kind": "fixed", "sites_per_round": 3}},
        {"adaptive": {"quantile": 0.8, "lr": 0.1, "count_noise": 2.0}},
    ],
)
def test_what_a_run_folder_keeps_loads_again(given):
    config = parsed(**given)
    assert parse_config(config.model_dump(mode="json", exclude_none=True), "config.toml") == config


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"epsilon": 0}, "'epsilon' = 0: Input should be greater than 0"),
        ({"epsilon": -2.0}, "'epsilon' = -2.0: Input should be greater than 0"),
        ({"delta": 0}, "'delta' = 0: Input should be greater than 0"),
        ({"delta": 1.0}, "'delta' = 1.0: Input should be less than 1"),
        ({"noise_multiplier": -1}, "'noise_multiplier' = -1"),
        ({"clip_norm": 0}, "'clip_norm' = 0: Input should be greater than 0"),
        ({"momentum": 1}, "'momentum' = 1: Input should be less than 1"),
        ({"epsilon": 2, "noise_multiplier": 1}, "say the same thing twice; remove one of them"),
        ({"epsilon": None}, "give one, noise_multiplier 0 for none"),
        ({"sites_per_round": 2}, "unknown key 'sites_per_round'"),
        ({"sampler": "poisson"}, "'sampler.sites_per_round' is missing"),
        ({"quantile": 0.9}, "unknown key 'quantile'"),
        ({"adaptive": {"quantile": 1.5}}, "'adaptive.quantile' = 1.5"),
        ({"sampler": "poison"}, "'sampler' = 'poison'"),
        ({"epsilom": 2}, "unknown key 'epsilom'. Did you mean 'epsilon'?"),
    ],
)
def test_what_makes_no_sense_is_refused(given, message):
    with pytest.raises(ConfigError) as error:
        parsed(**given)
    assert message in str(error.value)

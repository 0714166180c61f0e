import pytest

from murmura.errors import ConfigError
from murmura.methods import parse_config


def parsed(**given):
    return parse_config({"name": "dpftrl"} | given, "my.toml")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"noise": {"restart_every": 0}}, "'noise.restart_every' = 0: must be greater than or equal to 1"),
        ({"noise": "banded"}, "noise = 'banded' needs 'sites_per_round'"),
        ({"noise": {"kind": "banded", "honaker": False}, "sites_per_round": 2}, "unknown key 'noise.honaker'"),
        ({"noise": {"bands": 3}, "sites_per_round": 2}, "unknown key 'noise.bands'"),
        ({"momentum": 0.5}, "'momentum' does nothing when a tree spans one round; remove it"),
        ({"noise": {"restart_every": 1}, "momentum": 0.5}, "'momentum' does nothing when a tree spans one round"),
        ({"noise": {"honaker": False}}, "'honaker' does nothing when a tree spans one round; remove it"),
        ({"noise_multiplier": 0, "noise": {"restart_every": 4, "honaker": False}}, "'honaker' does nothing without"),
        ({"noise_multiplier": 0, "noise": "banded", "sites_per_round": 2}, "'noise' does nothing without noise"),
        ({"sampler": "poisson"}, "unknown key 'sampler'"),
        ({"adaptive": True}, "unknown key 'adaptive'"),
    ],
)
def test_what_makes_no_sense_is_refused(given, message):
    with pytest.raises(ConfigError) as error:
        parsed(**given)
    assert message in str(error.value)

import pytest

from murmura.errors import ConfigError
from murmura.methods import parse_config


def parsed(**given):
    return parse_config({"name": "dpfedavg"} | given, "my.toml")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"clip_norm": 0}, "'clip_norm' = 0: must be greater than 0"),
        ({"momentum": 1}, "'momentum' = 1: must be less than 1"),
        ({"sites_per_round": 2}, "unknown key 'sites_per_round'"),
        ({"sampler": "poisson"}, "'sampler.sites_per_round' is missing"),
        ({"quantile": 0.9}, "unknown key 'quantile'"),
        ({"adaptive": {"quantile": 1.5}}, "'adaptive.quantile' = 1.5"),
        ({"sampler": "poison"}, "'sampler' = 'poison'"),
    ],
)
def test_what_makes_no_sense_is_refused(given, message):
    with pytest.raises(ConfigError) as error:
        parsed(**given)
    assert message in str(error.value)

"""Options that several methods have, and that every method writes down as it reads them."""

import pytest

from murmura.errors import ConfigError
from murmura.methods import parse_config

NOISE = ("dpfedavg", "dpftrl", "dplora", "pretext")
NEEDED = {"pretext": {"public": "public.jsonl"}}
KEPT = {
    "dpfedavg": [
        {},
        {"noise_multiplier": 0},
        {"noise_multiplier": 1.5, "sampler": {"kind": "fixed", "sites_per_round": 3}},
        {"adaptive": {"quantile": 0.8, "lr": 0.1, "count_noise": 2.0}},
    ],
    "dpftrl": [
        {},
        {"noise_multiplier": 0, "noise": {"restart_every": 4}},
        {"noise": {"restart_every": 4, "honaker": False}, "momentum": 0.5},
        {"noise": {"kind": "banded", "bands": 3}, "sites_per_round": 2, "momentum": 0.5},
    ],
    "dplora": [{}, {"preset": "paper"}, {"noise_multiplier": 0}],
    "vanilla-fl": [{}],
    "tfedavg": [{"tolerance": 0}],
    "cmfl": [{"relevance": 0.6}],
    "fedmit": [{}],
    "fewfedpit": [{"substitute": "x.jsonl"}, {"scorer": "random"}],
    "lpfl": [
        {},
        {"annotate": False},
        {"rounds": 2},
        {"hard": True, "select": "balanced", "threshold": 0.9, "temperature": 2.0},
        {"patterns": ["It was {blank}. {text}"], "verbaliser": {"1": ["bad"], "2": ["fair"], "3 ": ["good", "great"]}},
        {"labelled_share": 1, "validation_records": 50, "chunk": 1},
    ],
}


def parsed(name, **given):
    return parse_config({"name": name} | NEEDED.get(name, {}) | given, "my.toml")


@pytest.mark.parametrize("name", [["fedit"], {"kind": "fedit", "x": 3}, 3])
def test_a_method_s_name_is_a_text(name):
    with pytest.raises(ConfigError, match=r"my\.toml: method\.name must be one name in quotes"):
        parse_config({"name": name}, "my.toml")


@pytest.mark.parametrize(("name", "given"), [(name, given) for name, several in KEPT.items() for given in several])
def test_what_a_run_folder_keeps_loads_again(name, given):
    config = parsed(name, **given)
    assert parse_config(config.model_dump(mode="json", exclude_none=True), "config.toml") == config


@pytest.mark.parametrize("name", NOISE)
def test_noise_is_calibrated_unless_it_is_given(name):
    plain, given = parsed(name), parsed(name, noise_multiplier=2)
    assert plain.epsilon == (7.58 if name == "pretext" else 8.0) and plain.noise_multiplier is None
    assert (given.epsilon, given.noise_multiplier) == (None, 2.0)
    assert plain.private and given.private and not parsed(name, noise_multiplier=0).private


@pytest.mark.parametrize("name", NOISE)
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"epsilon": 0}, "'epsilon' = 0: must be greater than 0"),
        ({"epsilon": -2.0}, "'epsilon' = -2.0: must be greater than 0"),
        ({"delta": 0}, "'delta' = 0: must be greater than 0"),
        ({"delta": 1.0}, "'delta' = 1.0: must be less than 1"),
        ({"noise_multiplier": -1}, "'noise_multiplier' = -1"),
        ({"epsilon": 2, "noise_multiplier": 1}, "say the same thing twice; remove one of them"),
        ({"noise_multiplier": 0, "delta": 1e-3}, "'delta' does nothing without noise"),
        ({"epsilom": 2}, "unknown key 'epsilom'. Did you mean 'epsilon'?"),
    ],
)
def test_noise_that_makes_no_sense_is_refused(name, given, message):
    with pytest.raises(ConfigError) as error:
        parsed(name, **given)
    assert message in str(error.value)


@pytest.mark.parametrize("name", ["dpfedavg", "dpftrl", "pretext"])  # in dplora, the preset's
def test_no_noise_is_asked_for_and_not_left_out(name):
    assert (parsed(name).strength, parsed(name, noise_multiplier=2).strength) == (f"ε={parsed(name).epsilon:g}", "z=2")
    with pytest.raises(ConfigError, match="give one, noise_multiplier 0 for none"):
        parsed(name, epsilon=None)

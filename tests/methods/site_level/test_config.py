"""Options that every method with site-level privacy has."""

import pytest

from murmura.errors import ConfigError
from murmura.methods.dpfedavg.config import DPFedAvgConfig
from murmura.methods.dpftrl.config import DPFTRLConfig


@pytest.mark.parametrize("section", [DPFedAvgConfig, DPFTRLConfig])
def test_noise_is_by_epsilon_or_by_multiplier_and_not_by_both(section):
    assert (section().epsilon, section().strength) == (8.0, "ε=8")
    assert section(noise_multiplier=0.5).strength == "z=0.5"
    assert section().private and not section(noise_multiplier=0).private
    with pytest.raises(ConfigError, match="say the same thing twice"):
        section.parse({"epsilon": 1.0, "noise_multiplier": 1.0}, "my.toml")


@pytest.mark.parametrize("section", [DPFedAvgConfig, DPFTRLConfig])
def test_delta_has_no_use_without_noise(section):
    with pytest.raises(ConfigError, match="'delta' does nothing without noise"):
        section.parse({"noise_multiplier": 0, "delta": 1e-3}, "my.toml")

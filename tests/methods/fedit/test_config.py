"""Options of the FedIT family."""

import pytest

from murmura.errors import ConfigError
from murmura.experiment.config import Experiment
from tests.experiment.small import ALGORITHMS

DATA = {"data": {"train": "sites", "heldout_records": 1}}


def made(algorithm):
    return Experiment.of({**DATA, "method": {"name": "fedit"}, **ALGORITHMS[algorithm]})


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_loads_and_loads_again_from_what_a_run_folder_keeps(algorithm):
    experiment = made(algorithm)
    assert Experiment.of(experiment.model_dump(mode="json", exclude_none=True)) == experiment


@pytest.mark.parametrize(
    ("option", "value", "hint"),
    [
        ("algorithm", "fedprox", 'Write local = "fedprox" in [aggregation].'),
        ("algorithm", "local", 'Write name = "local".'),
        ("mu", 0.5, "Write mu in [aggregation.local]"),
        ("server_lr", 0.1, "Write lr in [aggregation.server]"),
        ("beta1", 0.5, "Write beta1 in [aggregation.server]"),
    ],
)
def test_options_of_earlier_versions_are_told_their_place(option, value, hint):
    with pytest.raises(ConfigError) as error:
        Experiment.of({**DATA, "method": {"name": "fedit", option: value}})
    assert hint in error.value.fix


def test_centralised_asks_all_sites():
    with pytest.raises(ConfigError, match="unknown key 'sites_per_round'"):
        Experiment.of({**DATA, "method": {"name": "centralised", "sites_per_round": 2}})

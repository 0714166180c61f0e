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


def test_centralised_asks_all_sites():
    with pytest.raises(ConfigError, match="unknown key 'sites_per_round'"):
        Experiment.of({**DATA, "method": {"name": "centralised", "sites_per_round": 2}})

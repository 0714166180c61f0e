"""Votes of sites on machines of their own are those of a simulation."""

import pytest

from murmura.experiment.run import run
from tests.experiment.deployed import Tried, founded
from tests.methods.pretext.world import left


@pytest.mark.deployed
@pytest.mark.parametrize("secure", [False, True])
def test_votes_on_many_machines_are_those_of_a_simulation(make, tmp_path, secure, no_page):
    sums = {"aggregation": {"secure": True}} if secure else {}
    voting = {"noise_multiplier": 0.0}
    alone = run(make(voting, run={"folder": str(tmp_path / "alone")}, **sums))
    federation = founded(make(voting, **sums), tmp_path / "federation")
    apart = run(federation.experiment, deployment=Tried(federation))
    assert left(apart.folder, "evolution.json") == left(alone.folder, "evolution.json")

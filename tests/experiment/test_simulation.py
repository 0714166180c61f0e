"""Worker processes give the adapters that one process gives, whatever is run."""

from types import SimpleNamespace

import pytest

from murmura.experiment import simulation
from murmura.federation.engines import processes
from murmura.runs.folder import RunFolder
from tests.experiment.small import METHODS, assert_alike

# A method for each verb. Every method and rule goes over the wire in tests of its own; SCAFFOLD and local training have
# workers in integration/test_kill_and_resume, too.
VERBS = ("fedavg", "fewfedpit", "fewfedweight", "dplora", "dpftrl", "lpfl")


@pytest.mark.slow
@pytest.mark.parametrize("name", VERBS)
def test_every_verb_trains_the_same_adapters_in_workers(both, name):
    sections = {}
    if name == "lpfl":
        sections = {
            "data": {"train": "labelled", "heldout": "public.jsonl"},
            "evaluation": {"sample": 16, "uploads": 2, "attacks": True},
        }
    assert_alike(*both(METHODS[name], **sections))


@pytest.mark.slow
def test_sites_that_keep_a_factor_train_the_same_adapters_in_workers(both):
    assert_alike(*both({}, aggregation={"rule": "fedsa"}))


def test_no_more_workers_start_than_there_are_sites(make, monkeypatch, capsys):
    class StartedError(Exception):
        """Far enough."""

    def started(simulation):
        raise StartedError(simulation.workers)

    monkeypatch.setattr(processes, "start", started)
    for asked, count, told in ((7, 2, True), (None, 1, False), (1, 1, False)):
        records = {f"site {k}": [] for k in range(count)}
        experiment = make(run={"engine": "processes", **({"workers": asked} if asked else {})})
        with pytest.raises(StartedError, match=str(count)):
            simulate(experiment, records)
        text = "run.workers is 7, and there are 2 sites: 2 workers start"
        assert (text in capsys.readouterr().err) == told


def simulate(experiment, records):
    folder = RunFolder(experiment.run.path)
    folder.private.mkdir(parents=True, exist_ok=True)
    return simulation.simulate(SimpleNamespace(experiment=experiment), SimpleNamespace(protects=None), records, folder)

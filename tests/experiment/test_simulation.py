"""Worker processes give the adapters that one process gives, whatever is run."""

from types import SimpleNamespace

import pytest

from murmura.experiment import simulation
from murmura.federation.engines import processes
from murmura.runs.folder import RunFolder
from tests.experiment.small import BASELINES, METHODS, assert_alike

# What is kept at sites, and what sites are told; what the server keeps reaches no worker. Every rule goes over the wire
# in methods/fedit/test_aggregation, and DP-LoRA's baselines in methods/dplora/test_method.
AGGREGATIONS = [{"rule": "fedsa"}, {"local": "scaffold"}]


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in METHODS if METHODS[name].get("name") not in BASELINES.values()])
def test_every_method_trains_the_same_adapters_in_workers(both, name):
    sections = {}
    if name == "lpfl":
        sections = {
            "data": {"train": "labelled", "heldout": "public.jsonl"},
            "evaluation": {"sample": 16, "uploads": 2, "attacks": True},
        }
    assert_alike(*both(METHODS[name], **sections))


@pytest.mark.slow
@pytest.mark.parametrize("aggregation", AGGREGATIONS, ids=lambda one: "".join(one.values()))
def test_every_aggregation_gives_the_same_adapters_in_workers(both, aggregation):
    assert_alike(*both({}, aggregation=aggregation))


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

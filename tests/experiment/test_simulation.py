"""Worker processes give the adapters that one process gives, whatever is run."""

from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

from murmura.experiment import simulation
from murmura.experiment.run import run
from murmura.federation.engines import processes
from murmura.runs.folder import RunFolder
from tests.experiment import small
from tests.experiment.small import VERBALISER
from tests.training.helpers import EPS

WRITING = {"keep": 1, "instruction_attempts": 1, "example_attempts": 1, "instruction_tokens": 8, "example_tokens": 8}
BASELINES = {"fedavg": "vanilla-fl", "tfedavg": "tfedavg", "cmfl": "cmfl"}
METHODS = {
    "fedavg": {},
    "local": {"name": "local"},
    "fewfedpit": {"name": "fewfedpit", **WRITING},
    "fewfedweight": {"name": "fewfedweight", "answer_tokens": 8, "error_records": 2},
    **{f"dplora {one}": {"name": name} for one, name in BASELINES.items()},
    "dplora": {"name": "dplora", "noise_multiplier": 0.0},
    "dpfedavg": {"name": "dpfedavg", "noise_multiplier": 0.0},
    "dpftrl": {"name": "dpftrl", "noise_multiplier": 0.0},
    "lpfl": {
        "name": "lpfl",
        "several_tokens": "average",
        "labelled_share": 0.5,
        "patterns": ["{text} it was {blank}"],
        "verbaliser": {label: list(words) for label, words in VERBALISER.items()},
    },
}
# Of each kind: what turns by rounds, what is kept at sites, what has a residual, what is stacked, what corrects at the
# server, what sites are told, what the server keeps.
AGGREGATIONS = [
    *({"rule": one} for one in ("rolora", "fedsa", "fedex", "flora", "fair")),
    {"local": "scaffold"},
    {"server": "fedadam"},
]


@pytest.fixture
def both(make, tmp_path, forked_workers, no_page):
    """Run an experiment in this process and in the workers; returns the adapters of each."""
    small.write_both(tmp_path)

    def adapters(engine, method, **sections):
        kept = {"engine": engine, "workers": 2, "folder": str(tmp_path / engine)} if engine != "local" else {}
        kept = {"folder": str(tmp_path / engine), **kept}
        folder = run(make(run=kept, method=method | {"rounds": 2}, **sections)).folder
        return {str(f.relative_to(folder)): load_file(f) for f in folder.rglob("adapter_model.safetensors")}

    def go(method, **sections):
        sections["training"] = {"eps": EPS}
        sections.setdefault("evaluation", {"every": 9, "sample": 1, "uploads": 0, "attacks": False})
        return adapters("local", method, **sections), adapters("processes", method, **sections)

    return go


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_every_method_trains_the_same_adapters_in_workers(both, name):
    sections = {}
    if name == "lpfl":
        sections = {
            "data": {"train": "labelled", "heldout": "public.jsonl"},
            "evaluation": {"sample": 16, "uploads": 2},
        }
    assert_same(*both(METHODS[name], **sections))


@pytest.mark.slow
@pytest.mark.parametrize("aggregation", AGGREGATIONS, ids=lambda one: "".join(one.values()))
def test_every_aggregation_gives_the_same_adapters_in_workers(both, aggregation):
    assert_same(*both({}, aggregation=aggregation))


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
    return simulation.simulate(SimpleNamespace(experiment=experiment), None, records, folder)


def assert_same(local, workers):
    assert local and local.keys() == workers.keys()
    for name in local:
        torch.testing.assert_close(workers[name], local[name], rtol=1e-4, atol=1e-6)
    assert any(tensor.abs().max() > 0 for state in local.values() for key, tensor in state.items() if "lora_B" in key)

"""Comparisons of tiny models."""

import pytest
import tomli_w

from murmura.compare.arms import load
from murmura.compare.comparison import Comparison
from tests.compare.in_process import runs_in_this_process
from tests.experiment import small

RATES = [2e-3, 1e-2]
ARMS = [{"name": "FedAvg"}, {"name": "private", "method": {"name": "dplora", "epsilon": 8.0}}]


@pytest.fixture
def table(tmp_path, llama_folder):
    small.write_data(tmp_path, {"heart": 8, "skin": 8})
    return {
        "model": {"name": str(llama_folder)},
        "lora": {"rank": 2},
        "data": {"train": "sites", "heldout": "heldout.jsonl", "max_length": 128},
        "method": {"name": "fedit", "rounds": 1},
        "evaluation": {"sample": 1, "uploads": 0, "attacks": True},
        "compare": {"seeds": 2, "rates": RATES, "arms": ARMS},
    }


@pytest.fixture
def comparison(tmp_path, table):
    def make(**compare):
        file = tmp_path / "my.toml"
        file.write_text(tomli_w.dumps(table | {"compare": table["compare"] | compare}))
        config, arms = load([file])
        return Comparison(config, arms, tmp_path / "out")

    return make


@pytest.fixture
def begun(monkeypatch):
    """The runs that were begun, which are made in this process, and whose pages are empty: making one takes up to half
    of a small run."""
    monkeypatch.setattr("murmura.experiment.run.build_report", lambda folders, out: out.touch())
    return runs_in_this_process(monkeypatch)

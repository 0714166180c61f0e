"""What ``murmura compare`` says of its options, and of what it would run."""

import pytest
import tomli_w
from typer.testing import CliRunner

from murmura.cli import MISTAKE, app
from tests.experiment import small


@pytest.fixture
def file(tmp_path, llama_folder):
    small.write_data(tmp_path, {"heart": 8, "skin": 8})
    file = tmp_path / "my.toml"
    table = {
        "model": {"name": str(llama_folder)},
        "lora": {"rank": 2},
        "data": {"train": "sites", "heldout": "heldout.jsonl", "max_length": 128},
        "method": {"name": "fedit", "rounds": 1},
    }
    file.write_text(tomli_w.dumps(table))
    return file


def compare(*words):
    return CliRunner().invoke(app, ["compare", *map(str, words)])


@pytest.mark.parametrize("text", [",", "", " , ", "one", "1e-3,two"])
@pytest.mark.parametrize(("option", "what"), [("--rates", "rates"), ("--seeds", "seeds")])
def test_a_list_of_nothing_is_refused(option, what, text):
    done = compare("my.toml", option, text)
    assert done.exit_code == MISTAKE and f"'{text}' is not a list of {what}" in done.stderr


def test_a_dry_run_counts_runs_and_seeds(file, tmp_path):
    one = compare(file, "--seeds", "1", "--dry-run", "--out", tmp_path / "out")
    assert one.exit_code == 0, one.output
    assert "FedAvg: 1 run, rate 0.0003" in one.stdout and "1 run, seed 0, kept in" in one.stdout
    more = compare(file, "--seeds", "4,6,", "--rates", "1e-3,2e-3,", "--dry-run", "--out", tmp_path / "out")
    assert "FedAvg: 4 runs, rate 0.001, 0.002" in more.stdout and "4 runs, seeds 4, 6, kept in" in more.stdout

"""What ``murmura compare`` says of its options, and of what it would run."""

import re

import pytest
import tomli_w
from typer.testing import CliRunner

from murmura.cli import MISTAKE, app
from tests.compare.conftest import begun  # noqa: F401 (a fixture)
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
    more = compare(file, "--seeds", "4,6,", "--rates", "1e-3, 2e-3, ", "--dry-run", "--out", tmp_path / "out")
    assert "FedAvg: 4 runs, rate 0.001, 0.002" in more.stdout and "4 runs, seeds 4, 6, kept in" in more.stdout


def test_a_dry_run_tells_what_is_not_known_here(file, tmp_path):
    done = compare(file, "--dry-run", "--set", "model.name=nobody/nothing", "--out", tmp_path / "out")
    assert done.exit_code == 0 and "\nNot known here: The model: " in done.stdout and "nobody/nothing" in done.stdout
    assert "Not known" not in compare(file, "--dry-run", "--out", tmp_path / "out").stdout


def test_a_dry_run_tells_that_few_records_would_be_attacked(file, tmp_path):
    done = compare(file, "--dry-run", "--out", tmp_path / "out")
    assert done.exit_code == 0 and re.search(r"\nTo be noted: Attacks compare .* fewer than 20 of either", done.stdout)
    unasked = compare(file, "--dry-run", "--set", "evaluation.attacks=false", "--out", tmp_path / "out")
    assert unasked.exit_code == 0 and "To be noted" not in unasked.stdout


@pytest.mark.usefixtures("begun")
def test_a_dry_run_tells_what_is_finished(file, tmp_path):
    out, few = tmp_path / "out", ("--seeds", "1", "--out", tmp_path / "out")
    assert compare(file, *few).exit_code == 0
    more = compare(file, "--seeds", "2", "--dry-run", "--time", "--out", out)
    assert "FedAvg: 2 runs (1 finished), rate" in more.stdout and re.search(r"about .+ left, or less\n", more.stdout)
    beside = compare(file, "--seeds", "3", "--dry-run", "--time", "--jobs", "2", "--out", out)
    assert re.search(r", \d.+ to .+ left, or less\n", beside.stdout)
    every = compare(file, *few, "--dry-run", "--time")
    assert "FedAvg: 1 run (1 finished)" in every.stdout and every.stdout.endswith(f"seed 0, kept in {out}\n")
    assert compare(file, *few, "--dry-run", "--time", "--jobs", "8").stdout == every.stdout


@pytest.mark.usefixtures("begun")
@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("--set", "method.rounds=2"), "this run has method.rounds = 1, and the comparison asks for 2"),
        (("--rates", "5e-3"), "this run has training.lr = 0.0003, and the comparison asks for 0.005. "),
        (("--rates", "5e-3,6e-3"), "this run has training.lr = 0.0003, and the comparison asks for 0.005 or 0.006. "),
    ],
)
def test_a_dry_run_counts_no_run_that_is_another(file, tmp_path, change, told):
    out = tmp_path / "out"
    assert compare(file, "--seeds", "1", "--out", out).exit_code == 0
    for dry in (("--dry-run",), ()):
        done = compare(file, "--seeds", "2", "--out", out, *change, *dry)
        assert done.exit_code == MISTAKE and told in done.stderr


@pytest.mark.parametrize("name", [".", "..", "a/../../b", "/elsewhere"])
def test_a_name_leads_nowhere_but_below_the_folder_of_runs(file, tmp_path, name):
    file.write_text(file.read_text() + f'[compare]\nname = "{name}"\n')
    done = compare(file, "--dry-run")
    assert done.exit_code == MISTAKE and f"compare.name: '{name}' names no folder in runs/" in done.stderr
    assert compare(file, "--dry-run", "--out", tmp_path / "out").exit_code == 0


def test_a_comparison_is_kept_in_no_file(file):
    for words in (("--out", file, "--dry-run"), ("--out", file)):
        done = compare(file, *words)
        assert done.exit_code == MISTAKE and "this is a file, and a comparison is kept in a folder" in done.stderr

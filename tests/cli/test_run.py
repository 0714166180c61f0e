import json
import re

import pytest
from typer.testing import CliRunner

from murmura.cli import MISTAKE, app
from murmura.cli.of_run import require_new
from tests.experiment.small import BY_DEFAULT, experiment, record, write_data, write_lines


@pytest.fixture
def file(tmp_path, llama_folder, monkeypatch):
    """An experiment file on small data, in the current folder."""
    monkeypatch.chdir(tmp_path)
    write_data(tmp_path)
    path = tmp_path / "my.toml"
    asked = experiment(tmp_path, llama_folder, {"rounds": 1}, evaluation=BY_DEFAULT)
    path.write_text(asked.dump(), encoding="utf-8")
    return path


def invoke(*words):
    return CliRunner(env={"COLUMNS": "120", "NO_COLOR": "1"}).invoke(app, [str(word) for word in words])


def refused(*words):
    """What is told about a user's mistake, in one line."""
    result = invoke(*words)
    assert result.exit_code == MISTAKE
    assert "Traceback" not in result.output
    return result.stderr.strip().splitlines()[-1]


def test_a_run_prints_its_table_and_where_the_report_is(file):
    result = invoke("run", file, "--set", "evaluation.attacks=false", "--set", "run.name=other")
    assert result.exit_code == 0, result.output
    folder = file.parent / "run"
    assert "FedAvg" in result.stdout and f"Report: {folder / 'report.html'}" in result.stdout
    assert json.loads((folder / "summary.json").read_text())["name"] == "other"


def test_what_is_missing_is_told_where_the_experiment_lies(file, tmp_path, monkeypatch):
    (tmp_path / "above" / "sitex").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "above")
    told = refused("run", "../my.toml", "--set", "data.train=sitez")
    assert told.startswith(f"{tmp_path}/sitez: there is no such folder. Did you mean 'sites'?")
    assert refused("run", file, "--set", "data.heldout=heldot.jsonl").startswith(f"{tmp_path}/heldot.jsonl: ")


def test_of_a_file_that_has_gone_since_a_run_began_it_is_told_that_it_has_gone(file, tmp_path, monkeypatch):
    file.write_text(file.read_text(encoding="utf-8").replace(f"{tmp_path}/heldout", "heldout"), encoding="utf-8")
    (tmp_path / "above").mkdir()
    monkeypatch.chdir(tmp_path / "above")
    assert invoke("run", "../my.toml").exit_code == 0
    (tmp_path / "run" / "summary.json").unlink()
    (tmp_path / "heldout.jsonl").unlink()
    told = refused("run", "../my.toml", "--resume", "--set", "method.rounds=2")
    assert told.startswith(f"{tmp_path}/heldout.jsonl: ")


def test_a_link_that_leads_to_itself_is_told_in_one_line(file, tmp_path):
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    file.write_text(file.read_text(encoding="utf-8").replace(f"{tmp_path}/sites", "loop"), encoding="utf-8")
    assert "/loop: there is no such folder" in refused("run", file)
    assert "/loop: there is no such folder" in refused("run", file, "--set", f"data.train={loop}")
    assert "the run folder cannot be written" in refused(
        "run", file, "--set", f"data.train={tmp_path / 'sites'}", "--set", f"run.folder={loop}"
    )
    assert "there is no such run folder" in refused("report", loop)
    assert "there is no such run folder" in refused("report", tmp_path / "none", "--out", loop)
    told = "a link that leads to itself. Give another --out."
    assert refused("pool", "build", tmp_path / "heldout.jsonl", "--out", loop) == f"{loop}: {told}"
    require_new(loop, file, tmp_path, overwrite=False)
    assert loop.is_symlink()


def test_a_dry_run_prints_the_plan_and_does_nothing(file):
    before = sorted(file.parent.rglob("*"))
    result = invoke("run", file, "--dry-run", "--set", "method.rounds=7")
    assert result.exit_code == 0, result.output
    assert "Nothing is trained or written." in result.stdout
    assert re.search(r"rounds +7; sites in each: 2", result.stdout)
    assert "disk" in result.stdout and "adapter tensors" in result.stdout
    assert sorted(file.parent.rglob("*")) == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--set", "method.rouns=3"], "unknown key 'rouns'. Did you mean 'rounds'?"),
        (["--set", "methd.rounds=3"], "unknown section 'methd'. Did you mean 'method'?"),
        (["--set", "method.name=fewfedpitt"], "there is no method 'fewfedpitt'. Did you mean 'fewfedpit'?"),
        (["--set", "rounds=3"], "unknown key 'rounds'. Did you mean 'method.rounds'?"),
        (["--set", "training.rouds=3"], "unknown key 'training.rouds'. Did you mean 'method.rounds'?"),
        (["--set", "method.max_length=64"], "unknown key 'max_length'. Did you mean 'data.max_length'?"),
        (
            ["--set", "method.drafts_per_kept=3"],
            "Did you mean method.drafts_per_kept of 'fewfedpit' or method.drafts_per_kept of 'fedmit'",
        ),
        (["--set", "method.name=LocIT-SG"], "Did you mean 'locit-sg'?"),
        (["--set", "method.rounds=many"], "'rounds' = 'many': must be a whole number"),
        (["--set", "method.rounds"], "'method.rounds' is not KEY=VALUE"),
        (["--set", "lora.targets=['q_prj']", "--dry-run"], "no module of the model is called q_prj"),
        (["--resume"], "there is no run to resume"),
        (["--resume", "--overwrite"], "--resume and --overwrite exclude each other"),
        (["--time"], "--time is for --dry-run. Give both"),
        (["--overwrite", "--dry-run"], "--overwrite and --dry-run exclude each other"),
    ],
)
def test_mistakes_are_told_in_one_line(file, words, message):
    assert message in refused("run", file, *words)
    assert not (file.parent / "run").exists()


def test_a_dry_run_with_time_tells_how_long_it_will_take(file):
    before = sorted(file.parent.rglob("*"))
    result = invoke("run", file, "--dry-run", "--time")
    assert result.exit_code == 0, result.output
    assert re.search(
        r"time +about \S+ s on this machine, by a few steps .* training \+ \S+ s\s+measuring", result.stdout
    )
    assert sorted(file.parent.rglob("*")) == before


def test_a_file_that_is_not_there(tmp_path):
    assert "nowhere.toml: cannot be read (No such file or directory)" in refused("run", tmp_path / "nowhere.toml")


def test_a_bad_record_is_named_or_skipped(file):
    write_lines(file.parent / "sites" / "skin.jsonl", [record("skin", 0), {"instruction": "explain"}])
    assert re.search(r"skin\.jsonl:2: record without 'output'.*--skip-bad", refused("run", file, "--dry-run"))
    result = invoke("run", file, "--dry-run", "--skip-bad")
    assert result.exit_code == 0 and "1 bad ones skipped" in result.stdout
    assert "--skip-bad" in invoke("compare", file, "--dry-run").stderr
    compared = invoke("compare", file, "--dry-run", "--skip-bad")
    assert compared.exit_code == 0 and "1 bad record is left out" in compared.stderr, compared.output


def test_help_tells_every_option():
    text = invoke("run", "--help").stdout
    for word in ("FILE", "--set", "KEY=VALUE", "--resume", "--overwrite", "--skip-bad", "--dry-run", "runs/NAME"):
        assert word in text

"""The commands that run it again are those that do."""

import shlex
import tomllib
from pathlib import Path

from murmura.experiment import Experiment
from murmura.experiment.config import parse_override
from murmura.report.content import Details, Paragraph
from murmura.report.sections.repeat import repeat
from murmura.runs import RunFolder, read
from murmura.runs.names import RESUMED
from murmura.runs.schema import Resumption
from tests.report.blocks import blocks, said
from tests.report.runs import PROMISE, metrics, rows_of, write_run

CLINIC = Path(__file__).parents[3] / "examples" / "clinic" / "fedavg.toml"


def lines(section):
    [text] = [block.text for block in blocks(section, Paragraph) if block.style == "file"]
    return text.splitlines()


def test_the_command_runs_the_same_experiment_into_another_folder(tmp_path):
    path = write_run(tmp_path / "a b")
    experiment = Experiment.load(CLINIC, set={"run.seed": 7})
    RunFolder(path).write_config(experiment.dump())
    versions, command = lines(repeat(rows_of(path)))
    assert versions == "# with Murmura 0.1, PyTorch 2.13, Python 3.12"
    murmura, run, file, option, folder = shlex.split(command)
    assert (murmura, run, option) == ("murmura", "run", "--set")
    again = Experiment.load(Path(file), set=dict([parse_override(folder)]))
    assert again.run.seed == 7 and Path(again.run.folder) == Path(f"{path}-again")
    same, told = tomllib.loads(experiment.dump()), tomllib.loads(again.dump())
    assert told | {"run": {}} == same | {"run": {}}


def test_what_the_seed_does_not_repeat_is_told(tmp_path):
    plain = said(repeat(rows_of(write_run(tmp_path / "a"))))
    private = said(repeat(rows_of(write_run(tmp_path / "b", rows=[metrics(0), metrics(2, **PROMISE)]))))
    assert "operating system" in private and "operating system" not in plain
    resumed = write_run(tmp_path / "c")
    RunFolder(resumed).write(RESUMED, [Resumption(1, {"training.lr": (1e-3, 2e-3)}, ())])
    assert "An option changed" in said(repeat(rows_of(resumed))) and "An option changed" not in plain


def test_a_run_of_real_sites_is_not_run_again_by_murmura_run(tmp_path):
    path = write_run(tmp_path / "a")
    text = (path / "config.toml").read_text()
    (path / "config.toml").write_text(text.replace("[run]\n", '[run]\nengine = "flower"\n'))
    assert "murmura serve" in said(repeat(rows_of(path))) and "murmura run" not in said(repeat(rows_of(path)))
    assert read(path).name == "a"


def test_many_commands_are_folded(tmp_path):
    folders = [write_run(tmp_path / f"s{seed}", seed=seed) for seed in range(5)]
    [fold] = blocks(repeat(rows_of(*folders)), Details)
    assert "5 runs" in fold.summary and fold.blocks[0].text.count("murmura run") == 5

"""A dry run says what the run would refuse, in the same words, and ends as it would."""

import shutil
from collections import namedtuple

import pytest
from typer.testing import CliRunner

from murmura.cli import MISTAKE, app
from murmura.errors import CheckpointError, ConfigError
from murmura.experiment.forecast.dry_run import dry_run
from murmura.experiment.run import run
from murmura.runs.folder import MARGIN

Disk = namedtuple("Disk", "total used free")


@pytest.mark.parametrize("rule", ["mean", "flora"])
@pytest.mark.parametrize("lacking", [1, 0])
def test_a_disk_that_is_too_full_by_a_byte_and_one_that_is_not(make, monkeypatch, lacking, rule, no_page):
    experiment = make(
        method={"rounds": 1, "sites_per_round": 1}, aggregation={"rule": rule}, evaluation={"attacks": False}
    )
    free = dry_run(experiment).disk + MARGIN - lacking
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Disk(10**12, 10**12 - free, free))
    refusals = dry_run(experiment).refusals
    assert not experiment.run.path.exists()
    if lacking:
        with pytest.raises(CheckpointError) as error:
            run(experiment)
        assert refusals == [str(error.value)]
    else:
        assert refusals == [] and run(experiment).folder.exists()


def test_a_tracker_whose_library_is_missing(make, monkeypatch):
    monkeypatch.setattr("murmura.tracking.tell.find_spec", lambda name: None)
    experiment = make(tracking={"to": ["mlflow"]})
    with pytest.raises(ConfigError, match="needs the library mlflow") as error:
        run(experiment)
    assert dry_run(experiment).refusals == [str(error.value)]


def test_the_command_shows_it_and_ends_as_the_run_would(make, tmp_path, monkeypatch):
    experiment = make()
    (tmp_path / "my.toml").write_text(experiment.dump(), encoding="utf-8")
    plain = CliRunner().invoke(app, ["run", str(tmp_path / "my.toml"), "--dry-run"])
    assert plain.exit_code == 0 and "would not start" not in plain.stdout
    assert "67.1 MB must be free" in plain.stdout
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Disk(10**9, 10**9 - 10**6, 10**6))
    done = CliRunner().invoke(app, ["run", str(tmp_path / "my.toml"), "--dry-run"])
    assert done.exit_code == MISTAKE
    assert "The run would not start" in done.stdout and "the disk has 1 MiB left" in " ".join(done.stdout.split())
    assert "sent up" in done.stdout

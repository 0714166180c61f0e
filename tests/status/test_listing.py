import errno
import json

import pytest
from typer.testing import CliRunner

from murmura.cli import app
from murmura.errors import CheckpointError
from murmura.runs.locks import LOCK
from murmura.runs.names import CONFIG, METRICS
from murmura.runs.previous import is_run
from murmura.status.listing import listing
from tests.report.runs import metrics, write_run


def test_runs_are_found_at_any_depth_with_state_promise_and_figure(tmp_path):
    write_run(tmp_path / "plain")
    promise = {"epsilon": 7.9, "delta": 1e-5, "unit": "record", "adjacency": "add-remove"}
    write_run(tmp_path / "study" / "runs" / "private", "DP-LoRA", rows=[metrics(0), metrics(1, privacy=promise)])
    write_run(tmp_path / "half", rows=[metrics(0), metrics(1)], finished=False)
    (tmp_path / "no-run").mkdir()
    found = {one.folder.removeprefix(f"{tmp_path}/"): one for one in listing([tmp_path])}
    assert set(found) == {"plain", "study/runs/private", "half"}
    assert (found["plain"].method, found["plain"].state, found["plain"].epsilon) == ("FedAvg", "finished", None)
    assert found["plain"].figure == "held-out loss 2.000" and found["plain"].seconds == 90
    assert found["study/runs/private"].epsilon == 7.9 and "7.900" in found["study/runs/private"].cells
    assert found["half"].state == "stopped: round 1 of 2"


def test_one_that_cannot_be_read_hides_no_other(tmp_path):
    write_run(tmp_path / "a")
    (write_run(tmp_path / "b") / METRICS).write_text("{")
    (write_run(tmp_path / "c", finished=False) / METRICS).unlink()
    (write_run(tmp_path / "d") / CONFIG).write_text("= no toml")
    (tmp_path / "d" / LOCK).touch()  # which every run leaves, and tells one whose experiment cannot be read
    found = {one.folder[-1]: one for one in listing([tmp_path])}
    assert found["a"].state == "finished" and not found["a"].problem
    assert found["b"].problem.startswith("unreadable: metrics.jsonl, line 1: not valid JSON")
    assert found["d"].problem.startswith("unreadable: config.toml: not valid TOML") and found["c"].state == "stopped"


def test_a_folder_that_may_not_be_looked_into_hides_no_run(tmp_path, monkeypatch):
    write_run(tmp_path / "a")
    (tmp_path / "locked").mkdir()

    def looked(folder):  # as root, who may look into any, would not see it
        if folder.name == "locked":
            raise PermissionError(errno.EACCES, "Permission denied", str(folder))
        return is_run(folder)

    monkeypatch.setattr("murmura.status.listing.is_run", looked)
    locked, good = listing([tmp_path])
    assert good.state == "finished" and locked.folder == str(tmp_path / "locked")
    assert locked.problem == "unreadable: Permission denied"


@pytest.mark.parametrize("row", ["[]", "{}", '{"round": "one"}', '{"round": 1, "privacy": 3}', '{"round": 1, "x": []}'])
def test_no_row_of_a_broken_run_stops_the_list(tmp_path, row):
    write_run(tmp_path / "a")
    (write_run(tmp_path / "b") / METRICS).write_text(f"{row}\n")
    good, bad = sorted(listing([tmp_path]), key=lambda one: one.folder)
    assert good.state == "finished" and not good.problem
    assert bad.state == "unreadable" and len(bad.problem) > len("unreadable: ")


def test_a_share_has_its_interval(tmp_path):
    write_run(tmp_path / "a", rows=[metrics(0), metrics(1, accuracy=0.9, accuracy_n=50)])
    assert listing([tmp_path])[0].figure == "accuracy 0.900 (0.786–0.957, n = 50)"  # Wilson, as in measure.figure


def test_the_command_lists_them_and_tells_machines(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "runs" / "a")
    found = CliRunner().invoke(app, ["runs"])
    assert found.exit_code == 0 and "runs/a" in found.output and "held-out loss 2.000" in found.output
    told = json.loads(CliRunner().invoke(app, ["runs", "--json"]).stdout)
    assert told[0]["folder"] == "runs/a" and told[0]["state"] == "finished"
    assert CliRunner().invoke(app, ["runs", "nowhere"]).exit_code == 2
    with pytest.raises(CheckpointError, match="no such folder"):
        listing([tmp_path / "nowhere"])

from __future__ import annotations

import dataclasses
import json

import pytest

from murmura import report
from murmura.errors import MurmuraError
from tests.report.runs import PLAIN, SITES, metrics, write_run


def test_reads_what_a_finished_run_wrote(tmp_path):
    run = report.read(write_run(tmp_path / "a", method="FedAvg", seed=3))
    assert (run.name, run.label, run.seed, run.model, run.planned, run.finished) == ("a", "FedAvg", 3, "tiny", 2, True)
    assert [one.number for one in run.rounds] == [0, 1, 2]
    assert run.last.values["heldout_loss"] == 2.0
    assert run.last.seconds == {"train": 12.0, "evaluate": 6.0}
    assert run.totals == {"bytes_up": 4_500_000, "bytes_down": 9_000_000, "wall": 90.0, "peak_memory": 1_650_000_000}
    assert list(run.sites) == SITES
    assert list(run.disclosure) == PLAIN
    with pytest.raises(dataclasses.FrozenInstanceError):
        run.seed = 4


def test_null_absent_and_not_a_number_are_not_measured(tmp_path):
    rows = [metrics(0), {"round": 1, "leakage": None, "heldout_loss": float("nan"), "heldout_rouge": 0.5}]
    run = report.read(write_run(tmp_path / "a", rows=rows))
    assert run.last.values == {"heldout_rouge": 0.5}


def test_an_unfinished_run_is_read_from_its_rounds(tmp_path):
    run = report.read(write_run(tmp_path / "a", rows=[metrics(0), metrics(1)], finished=False, seed=5))
    assert (run.finished, run.label, run.seed, run.planned) == (False, "fedit", 5, 2)
    assert run.totals == {"bytes_up": 1_500_000, "bytes_down": 3_000_000, "wall": 60.0, "peak_memory": 1_650_000_000}


def test_a_run_that_trained_all_parameters_is_called_so(tmp_path):
    folder = write_run(tmp_path / "a")
    text = (folder / "config.toml").read_text()
    (folder / "config.toml").write_text(text.replace("[model]\n", '[model]\ntrainable = "all"\n'))
    assert report.read(folder).label == "FedAvg, all parameters"


def test_a_summary_that_says_unfinished_is_believed(tmp_path):
    folder = write_run(tmp_path / "a")
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps(summary | {"finished": False}))
    assert not report.read(folder).finished


def test_a_torn_last_line_is_left_out_of_an_unfinished_run_only(tmp_path):
    for name, finished in (("killed", False), ("done", True)):
        folder = write_run(tmp_path / name, finished=finished)
        with (folder / "metrics.jsonl").open("a") as file:
            file.write('{"round": 3, "heldout')
    assert report.read(tmp_path / "killed").last.number == 2
    with pytest.raises(MurmuraError, match=r"metrics\.jsonl, line 4: not valid JSON"):
        report.read(tmp_path / "done")


def test_a_round_done_again_counts_as_done_the_last_time(tmp_path):
    rows = [metrics(0), metrics(1, heldout_loss=9.0), metrics(1, heldout_loss=1.5)]
    run = report.read(write_run(tmp_path / "a", rows=rows))
    assert [(one.number, one.values["heldout_loss"]) for one in run.rounds] == [(0, 2.25), (1, 1.5)]


def test_files_that_are_missing_are_unknown_not_empty(tmp_path):
    folder = write_run(tmp_path / "a")
    for name in ("sites.json", "disclosure.json", "environment.json", "config.toml"):
        (folder / name).unlink()
    run = report.read(folder)
    assert run.sites is run.disclosure is run.environment is run.config is run.model is None


def test_a_folder_that_is_missing_is_named(tmp_path):
    with pytest.raises(MurmuraError, match=r"nowhere: there is no such run folder\. Give a folder"):
        report.read(tmp_path / "nowhere")


def test_a_folder_of_runs_offers_the_runs_inside(tmp_path):
    write_run(tmp_path / "first")
    write_run(tmp_path / "second")
    with pytest.raises(MurmuraError, match=r"not a run folder .* Runs inside it: first, second\."):
        report.read(tmp_path)


@pytest.mark.parametrize("rows", [None, []])
def test_a_run_without_a_round_says_so(tmp_path, rows):
    folder = write_run(tmp_path / "a", rows=rows or [metrics(0)], finished=False)
    if rows is None:
        (folder / "metrics.jsonl").unlink()
    else:
        (folder / "metrics.jsonl").write_text("")
    with pytest.raises(MurmuraError, match="has not recorded a round yet") as error:
        report.read(folder)
    assert "--resume" in str(error.value)


def test_a_finished_run_that_lost_its_rounds_is_broken(tmp_path):
    (write_run(tmp_path / "a") / "metrics.jsonl").unlink()
    with pytest.raises(MurmuraError, match=r"metrics\.jsonl is missing"):
        report.read(tmp_path / "a")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("metrics.jsonl", '{"round": 0}\n[1]\n', r"metrics\.jsonl, line 2: not a JSON object"),
        ("metrics.jsonl", '{"heldout_loss": 1}\n', "line 1: the row has no round number"),
        ("metrics.jsonl", '{"round": 0, "leakage": "much"}\n', "line 1: 'leakage' is not a number: 'much'"),
        ("metrics.jsonl", '{"round": 0, "counts": [1]}\n', "line 1, counts: an object of figures"),
        ("metrics.jsonl", '{"round": 0, "events": "late"}\n', "'events' is not a list"),
        ("summary.json", "{", r"summary\.json, line 1: not valid JSON"),
        ("summary.json", "[]", r"summary\.json: not a JSON object"),
        ("summary.json", '{"wall": "long"}', r"summary\.json: 'wall' is not a number"),
        ("sites.json", "{}", r"sites\.json: not a JSON list"),
        ("sites.json", '[{"records": 3}]', r"sites\.json, entry 1: an object with 'site' is expected"),
        ("disclosure.json", '[{"field": "x", "bytes": "many"}]', "entry 1: 'bytes' is not a number"),
        ("config.toml", "a = ", r"config\.toml: not valid TOML"),
    ],
)
def test_a_broken_file_is_named_with_the_place_and_a_remedy(tmp_path, name, content, message):
    folder = write_run(tmp_path / "a")
    (folder / name).write_text(content)
    with pytest.raises(MurmuraError, match=message) as error:
        report.read(folder)
    assert error.value.fix


def test_a_file_in_another_encoding_is_broken(tmp_path):
    folder = write_run(tmp_path / "a")
    (folder / "config.toml").write_bytes('name = "é"'.encode("latin-1"))
    with pytest.raises(MurmuraError, match=r"config\.toml: cannot be read"):
        report.read(folder)


def test_a_folder_given_twice_is_read_once(tmp_path):
    write_run(tmp_path / "a")
    assert len(report.read_all([tmp_path / "a", tmp_path / "." / "a"])) == 1
    with pytest.raises(MurmuraError, match="no run folder is given"):
        report.read_all([])

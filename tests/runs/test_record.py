"""Run folders as values: what is read back, and what is told of a damaged one."""

import dataclasses
import json
import math

import pytest

from murmura.errors import CheckpointError, MurmuraError
from murmura.runs import RunFolder, files, read, read_all
from murmura.runs.names import CLASSIFIER, OUTCOMES, RESUMED
from murmura.runs.schema import Disclosure, Exclusions, PatternWeights, Resumption
from tests.report.runs import PLAIN, SITES, metrics, real, write_run

JUDGED = dict.fromkeys(("against", "judge", "where"), "x") | dict.fromkeys(("questions", "unparsed", "asked"), 1)
JUDGED |= {"turned": 0, "first": None, "counts": {}}


def test_reads_what_a_finished_run_wrote(tmp_path):
    run = read(write_run(tmp_path / "a", method="FedAvg", seed=3))
    assert (run.name, run.label, run.seed, run.model, run.planned, run.finished) == ("a", "FedAvg", 3, "tiny", 2, True)
    assert [one.number for one in run.rounds] == [0, 1, 2]
    assert run.last.values["heldout_loss"] == 2.0
    assert run.last.seconds == {"train": 12.0, "evaluate": 6.0}
    assert run.totals == {"bytes_up": 4_500_000, "bytes_down": 9_000_000, "wall": 90.0, "peak_memory": 1_650_000_000}
    assert list(run.sites) == SITES
    assert list(run.disclosure) == [Disclosure(**row) for row in PLAIN]
    assert run.exclusions == Exclusions(0, 0, 0, 0)
    assert (run.environment.device, run.environment.packages) == ("cpu", {"peft": "0.21"})
    with pytest.raises(dataclasses.FrozenInstanceError):
        run.seed = 4


def test_null_and_absent_are_not_measured(tmp_path):
    rows = [metrics(0), {"round": 1, "leakage": None, "heldout_rouge": 0.5}]
    assert read(write_run(tmp_path / "a", rows=rows)).last.values == {"heldout_rouge": 0.5}


def test_figures_that_are_not_finite_are_read_as_they_were(tmp_path):
    privacy = {"epsilon": math.inf, "delta": 1e-5}
    row = {"round": 1, "heldout_loss": math.inf, "train_loss": math.nan, "privacy": privacy, "events": ["NaN"]}
    found = read(write_run(tmp_path / "a", rows=[metrics(0), row])).last
    assert found.values["heldout_loss"] == math.inf and math.isnan(found.values["train_loss"])
    assert found.privacy == privacy and found.events == ("NaN",)


@pytest.mark.parametrize("kind", ["instruction", "labelled", "document"])
def test_the_kind_of_record_is_what_the_run_wrote_down_and_no_guess(tmp_path, kind):
    rows = [metrics(0), metrics(1, accuracy=0.5)]
    assert read(write_run(tmp_path / "a", rows=rows, kind=kind)).kind == kind


def test_what_was_different_after_a_resume_is_read_back(tmp_path):
    folder, told = write_run(tmp_path / "a"), [Resumption(1, {"training.clip": (None, 1.0)}, ("another clip",))]
    RunFolder(folder).write(RESUMED, told)
    assert list(read(folder).resumed) == told


def test_what_a_run_tells_of_its_classifier(tmp_path):
    folder, told = RunFolder(write_run(tmp_path / "a")), PatternWeights((0.5, 1.0))
    assert files.value(folder.path / OUTCOMES / CLASSIFIER, PatternWeights) is None
    folder.write_outcomes({"classifier.json": told})
    assert files.value(folder.path / OUTCOMES / CLASSIFIER, PatternWeights) == told


def test_an_unfinished_run_is_read_from_its_rounds(tmp_path):
    run = read(write_run(tmp_path / "a", rows=[metrics(0), metrics(1)], finished=False, seed=5))
    assert (run.finished, run.label, run.seed, run.planned) == (False, "fedit", 5, 2)
    assert run.totals == {"bytes_up": 1_500_000, "bytes_down": 3_000_000, "wall": 60.0, "peak_memory": 1_650_000_000}


def test_what_left_in_a_round_that_is_not_saved_has_left_too(tmp_path):
    folder = RunFolder(write_run(tmp_path / "a", rows=[metrics(0), metrics(1)], finished=False))
    folder.checkpoint.mkdir()
    more = [PLAIN[0] | {"messages": 99}, PLAIN[0] | {"verb": "asked", "messages": 0}]
    for secret in ({}, {"ledger": {"rows": [PLAIN[0] | {"messages": 100}]}, "told": {"rows": more}}):
        folder.write_sent({"ledger": {"rows": more}} | secret)
        assert read(folder.path).disclosure == (Disclosure(**more[0]),)
    for stale in ([PLAIN[0] | {"messages": 1}], [{"verb": "train"}], []):  # as after a failure of power
        folder.write_sent({"ledger": {"rows": stale}})
        assert list(read(folder.path).disclosure) == [Disclosure(**row) for row in PLAIN]
    (folder.checkpoint / "sent.json").write_bytes(b"")
    assert list(read(folder.path).disclosure) == [Disclosure(**row) for row in PLAIN]


def test_a_run_that_trained_all_parameters_is_called_so(tmp_path):
    folder = write_run(tmp_path / "a")
    text = (folder / "config.toml").read_text()
    (folder / "config.toml").write_text(text.replace("[model]\n", '[model]\ntrainable = "all"\n'))
    assert read(folder).label == "FedAvg, all parameters"


def test_files_that_are_missing_are_unknown_not_empty(tmp_path):
    folder = write_run(tmp_path / "a")
    for name in ("sites.json", "disclosure.json", "environment.json", "data.json"):
        (folder / name).unlink()
    run = read(folder)
    assert run.sites is run.disclosure is run.environment is run.exclusions is None


def test_a_run_without_its_experiment_is_broken(tmp_path):
    (write_run(tmp_path / "a") / "config.toml").unlink()
    with pytest.raises(MurmuraError, match=r"config\.toml is missing from the run"):
        read(tmp_path / "a")


def test_a_folder_that_is_missing_is_named(tmp_path):
    with pytest.raises(MurmuraError, match=r"nowhere: there is no such run folder\. Give a folder"):
        read(tmp_path / "nowhere")


def test_a_folder_of_runs_offers_the_runs_inside(tmp_path):
    write_run(tmp_path / "first")
    write_run(tmp_path / "second")
    with pytest.raises(MurmuraError, match=r"not a run folder .* Runs inside it: first, second\."):
        read(tmp_path)


def test_a_run_without_a_round_names_the_previous_one(tmp_path):
    folder = RunFolder(write_run(tmp_path / "a"))
    with folder.opened(resume=False, overwrite=True):
        folder.prepare(resume=False, needed=0)
    folder.write_config("[run]\n")
    with pytest.raises(CheckpointError) as error:
        read(folder.path)
    assert str(folder.previous) in error.value.fix
    assert read(folder.previous).last.number == 2


@pytest.mark.parametrize("rows", [None, []])
def test_a_run_without_a_round_says_so(tmp_path, rows):
    folder = write_run(tmp_path / "a", rows=rows or [metrics(0)], finished=False)
    if rows is None:
        (folder / "metrics.jsonl").unlink()
    else:
        (folder / "metrics.jsonl").write_text("")
    with pytest.raises(MurmuraError, match="has not recorded a round yet") as error:
        read(folder)
    assert "`murmura run ... --resume`" in str(error.value)
    real(folder)
    with pytest.raises(MurmuraError, match="`murmura serve FEDERATION --resume`"):
        read(folder)


def test_a_finished_run_that_lost_its_rounds_is_broken(tmp_path):
    (write_run(tmp_path / "a") / "metrics.jsonl").unlink()
    with pytest.raises(MurmuraError, match=r"metrics\.jsonl is missing"):
        read(tmp_path / "a")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("metrics.jsonl", '{"round": 0}\n[1]\n', r"metrics\.jsonl, line 2: not a JSON object"),
        ("metrics.jsonl", '{"heldout_loss": 1}\n', "line 1: 'round' is missing"),
        ("metrics.jsonl", '{"round": 0, "leakage": "much"}\n', "line 1: 'values.leakage': Input should be a number"),
        ("metrics.jsonl", '{"round": 0, "leakage": true}\n', "line 1: 'values.leakage': Input should be a number"),
        ("metrics.jsonl", '{"round": true}\n', "line 1: 'round': Input should be a valid integer"),
        ("metrics.jsonl", '{"round": 0, "counts": [1]}\n', "line 1: 'counts': Input should be a valid dict"),
        ("metrics.jsonl", '{"round": 0, "events": "late"}\n', "'events': Input should be a valid tuple"),
        ("summary.json", "{", r"summary\.json, line 1: not valid JSON"),
        ("summary.json", "[]", r"summary\.json: not a JSON object"),
        ("summary.json", '{"wall": "long"}', r"summary\.json: 'name' is missing"),
        ("metrics.jsonl", '{"round": 0}\n{"round": 1, "heldout_loss": NaN}\n{"round": 2}\n', "line 2: not valid JSON"),
        ("metrics.jsonl", '{"round": 0, "calibration": [[0.5, 0.5]]}\n', "line 1: 'calibration.0.2' is missing"),
        ("metrics.jsonl", '{"round": 0, "privacy": "strong"}\n', "line 1: 'privacy': Input should be a valid dict"),
        ("metrics.jsonl", '{"round": 0, "confusion": {"a": 1}}\n', "'confusion.a': Input should be a valid dict"),
        ("sites.json", "{}", r"sites\.json: not a JSON list"),
        ("sites.json", '[{"records": 3}]', r"sites\.json, entry 1: 'site' is missing"),
        ("sites.json", "[3]", r"sites\.json, entry 1: not a JSON object"),
        ("disclosure.json", json.dumps([PLAIN[0], PLAIN[0] | {"bytes": "many"}]), "entry 2: 'bytes': Input should be"),
        ("resumed.json", '[{"after": 1, "changed": {"a": [1]}, "events": []}]', r"entry 1: 'changed\.a\.1' is missing"),
        ("environment.json", "{}", "'murmura' is missing"),
        ("judged/x.json", json.dumps(JUDGED), "'private' is missing"),  # which is never taken for a harmless no
        ("endpoints.json", '[{"where": "https://judge"}]', "entry 1: 'private' is missing"),
        ("config.toml", "[data]\n", r"config\.toml: it does not say what a record is \(data\.kind\)"),
        ("config.toml", "a = ", r"config\.toml: not valid TOML"),
    ],
)
def test_a_broken_file_is_named_with_the_place_and_a_remedy(tmp_path, name, content, message):
    folder = write_run(tmp_path / "a")
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(content)
    with pytest.raises(MurmuraError, match=message) as error:
        read(folder)
    assert error.value.fix


def test_a_file_in_another_encoding_is_broken(tmp_path):
    folder = write_run(tmp_path / "a")
    (folder / "config.toml").write_bytes('name = "é"'.encode("latin-1"))
    with pytest.raises(MurmuraError, match=r"config\.toml: cannot be read"):
        read(folder)


def test_a_folder_given_twice_is_read_once(tmp_path):
    write_run(tmp_path / "a")
    assert len(read_all([tmp_path / "a", tmp_path / "." / "a"])) == 1
    with pytest.raises(MurmuraError, match="no run folder is given"):
        read_all([])

"""What a finished run's model is worth on tasks of lm-evaluation-harness."""

import json
import shutil
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

pytest.importorskip("lm_eval")

from lm_eval.evaluator import evaluate as by_harness
from lm_eval.models.huggingface import HFLM
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from murmura.cli import MISTAKE, app
from murmura.evaluate import Options, _chosen, evaluate
from murmura.experiment.run import run
from murmura.measure.harness.tasks import load
from murmura.report import write
from murmura.runs import read
from murmura.runs.names import EVALUATION
from murmura.training.adapter import load_peft
from tests.experiment import small
from tests.measure.harness.small import write_tasks

KEYS = ["lm_eval.doses.acc_norm", "lm_eval.visits.exact_match"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory, llama_folder):
    """A run that measures both tasks in its rounds."""
    folder = tmp_path_factory.mktemp("evaluated")
    small.write_data(folder)
    write_tasks(folder)
    asked = small.experiment(
        folder,
        llama_folder,
        {"rounds": 1},
        training={"lr": 5e-2, "epochs": 4},
        evaluation={"attacks": False, "sample": 1, "benchmarks": {"tasks": ["doses.yaml", "visits.yaml"]}},
    )
    return run(asked).folder


def invoke(*words):
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, ["evaluate", *map(str, words)])


def test_a_run_measures_tasks_that_the_experiment_names(finished):
    record = read(finished)
    for one in record.rounds:
        assert [key for key in one.values if key.startswith("lm_eval.") and not key.endswith("_n")] == KEYS
        assert (one.values[f"{KEYS[0]}_n"], one.values[f"{KEYS[1]}_n"]) == (5, 3)
    page = finished / "page.html"
    write([record], page)
    assert "doses (acc_norm)" in page.read_text() and "n = 5" in page.read_text()


def test_what_is_found_is_what_the_rounds_have_and_what_the_harness_finds_in_the_folder(finished, llama_folder):
    result = invoke(finished)
    assert result.exit_code == 0, result.output
    before, after = read(finished).evaluation.models
    record = read(finished)
    assert (before.model, after.model) == ("before the run", "after the run")
    for one, row in ((before, record.before.values), (after, record.last.values)):
        assert {key: row[key] for key in one.figures} == one.figures
    assert "doses (acc_norm)" in result.stdout and "after the run" in result.stdout

    tokenizer = AutoTokenizer.from_pretrained(llama_folder)
    base = AutoModelForCausalLM.from_pretrained(llama_folder)
    peft = PeftModel.from_pretrained(base, finished / "adapter").eval()
    tasks = load([str(finished.parent / name) for name in ("doses.yaml", "visits.yaml")])
    told = {"tasks": tasks.each, "groups": {}, "group_map": {}}
    theirs = by_harness(HFLM(pretrained=peft, tokenizer=tokenizer, max_length=511), told, bootstrap_iters=0)["results"]
    assert after.figures[KEYS[0]] == theirs["doses"]["acc_norm,none"]
    assert after.figures[KEYS[1]] == theirs["visits"]["exact_match,none"]


def test_options_are_told_on_the_page(finished):
    words = ("--tasks", finished.parent / "doses.yaml", "--limit", 2, "--few-shot", 0, "--form", "template")
    invoke(finished, "--overwrite")
    kept = read(finished).evaluation
    result = invoke(finished, *words)
    assert result.exit_code == MISTAKE and "give --overwrite" in result.stderr and read(finished).evaluation == kept
    result = invoke(finished, *words, "--overwrite")
    assert result.exit_code == 0, result.output
    found = read(finished).evaluation
    assert all(list(one.figures) == [KEYS[0], f"{KEYS[0]}_n"] for one in found.models)
    assert found.models[0].figures[f"{KEYS[0]}_n"] == 2
    page = finished / "page.html"
    write([read(finished)], page)
    assert "the first 2 questions of each task at most, in the run’s template, with 0 answered ones" in page.read_text()


def test_tasks_that_are_asked_alike_stand_beside_one_another(finished):
    for name, more in (("doses", ["--overwrite"]), ("visits", [])):
        assert invoke(finished, "--tasks", finished.parent / f"{name}.yaml", *more).exit_code == 0
    for one in read(finished).evaluation.models:
        assert {key for key in one.figures if not key.endswith("_n")} == set(KEYS)


def test_a_form_that_is_asked_for_is_that_of_the_experiments_own_tasks_too(tmp_path, llama_folder):
    tasks = {"benchmarks": {"tasks": ["doses.yaml"], "limit": 3}}
    for own, given, expected in (("plain", "template", "template"), ("template", None, "template")):
        evaluation = {"benchmarks": tasks["benchmarks"] | {"form": own}}
        found = _chosen(small.experiment(tmp_path, llama_folder, evaluation=evaluation), Options(form=given))
        assert (found.form, found.limit) == (expected, 3)


def test_bad_input_is_told_and_an_earlier_evaluation_stays(finished, tmp_path):
    invoke(finished)
    told = (finished / EVALUATION).read_text()
    for words, reason in (
        ((tmp_path,), "not a run folder"),
        ((finished, "--tasks", tmp_path / "none.yaml"), "there is no such file"),
    ):
        result = invoke(*words)
        assert result.exit_code == MISTAKE and reason in result.stderr
    assert (finished / EVALUATION).read_text() == told
    assert [one["model"] for one in json.loads(told)["models"]] == ["before the run", "after the run"]


def test_without_tasks_there_is_nothing_to_measure(tmp_path, llama_folder):
    small.write_data(tmp_path)
    folder = run(small.experiment(tmp_path, llama_folder, {"rounds": 1, "name": "local"})).folder
    result = invoke(folder)
    assert result.exit_code == MISTAKE and "no task is named" in result.stderr
    [path, _] = write_tasks(tmp_path)
    assert invoke(folder, "--tasks", path).exit_code == 0
    names = [one.model for one in read(folder).evaluation.models]
    assert names == ["before the run", "after the run, heart", "after the run, skin"]


def test_what_a_run_began_with_is_measured_beside_it(tmp_path, llama_folder, monkeypatch):
    """Not the base model, where the run began with the adapter of another."""
    small.write_data(tmp_path)
    shutil.copytree(
        run(small.experiment(tmp_path, llama_folder, {"rounds": 1})).folder / "adapter", tmp_path / "before"
    )
    again = {"run": {"folder": str(tmp_path / "again")}, "model": {"adapter": "before"}}
    folder, seen = run(small.experiment(tmp_path, llama_folder, {"rounds": 1}, **again)).folder, []

    def measure(runtime, models):
        seen.extend(models)
        return [{} for _ in models]

    monkeypatch.setattr(
        "murmura.evaluate.harness.load", lambda *_, **__: SimpleNamespace(require_room=lambda _: None, measure=measure)
    )
    evaluate(folder, Options(["anything"]))
    for found, place in zip(seen, (tmp_path / "before", folder / "adapter"), strict=True):
        state = load_peft(place)[0]
        assert found.keys() == state.keys() and all(found[name].equal(state[name]) for name in state)

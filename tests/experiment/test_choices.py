"""Questions with options in a run: read, fitted to the model, asked, and shown."""

import json
from pathlib import Path

import pytest
from rich.console import Console

from murmura import report
from murmura.errors import ConfigError, DataError
from murmura.experiment.forecast.dry_run import dry_run
from murmura.experiment.forecast.view import show
from murmura.experiment.run import run
from murmura.runs import read_all
from tests.experiment.small import COMMON, URGENT, experiment, write_data, write_lines

EXAMPLE = Path(__file__).parents[2] / "examples" / "clinic" / "questions.jsonl"


@pytest.fixture
def folder(tmp_path):
    write_data(tmp_path)
    write_lines(tmp_path / "urgent.jsonl", URGENT)
    return tmp_path


def test_a_run_asks_them_in_every_measured_round_and_tells_everywhere(folder, llama_folder, capsys):
    asking = experiment(folder, llama_folder, evaluation={"choices": COMMON, "attacks": False})
    result = run(asking)
    for row in result.rows:
        assert row["choice_accuracy_n"] == row["choice_accuracy_norm_n"] == 6
        assert row["choice_accuracy"] * 6 == sum(row["confusion"][label][label] for label in ("no", "yes"))
    [row] = report.table(read_all([result.folder]))
    told = row.cells["choice_accuracy"]
    assert told.mean == result.rows[-1]["choice_accuracy"] and told.interval()[-1] == "n = 6"
    assert "option accuracy 0." in capsys.readouterr().err  # the line that ends a round
    page = (result.folder / "report.html").read_text()
    assert "Option accuracy, per byte" in page and "bytes of UTF-8" in page and "given “yes”" in page
    assert "option accuracy, per byte" in report.markdown([row])


def test_sites_adapters_are_examined_each_and_their_mean_is_told(folder, llama_folder):
    alone = experiment(
        folder, llama_folder, method={"name": "local", "rounds": 1}, evaluation={"choices": COMMON, "attacks": False}
    )
    last = run(alone).rows[-1]
    assert last["choice_accuracy_n"] == 6 and 0 <= last["choice_accuracy"] <= 1
    assert sum(map(sum, (given.values() for given in last["confusion"].values()))) == pytest.approx(6)


def test_a_run_without_them_has_no_column_for_them(folder, llama_folder):
    result = run(experiment(folder, llama_folder, method={"rounds": 1}, evaluation={"attacks": False}))
    assert "choice_accuracy" not in result.rows[-1]
    assert "Option accuracy" not in (result.folder / "report.html").read_text()


def test_the_dry_run_counts_them(folder, llama_folder):
    planned = dry_run(experiment(folder, llama_folder, evaluation={"choices": COMMON | {"records": 4}}))
    assert len(planned.plan.asked.choices) == 4
    console = Console(record=True, width=200)
    show(planned, console)
    assert "4 questions with options" in console.export_text()


def test_questions_that_do_not_fit_with_every_option_are_not_asked_and_told(folder, llama_folder, capsys):
    long = {"instruction": "which", "options": ["no", "call the clinic before visit " * 40], "answer": 0}
    write_lines(folder / "asked.jsonl", [long, *map(json.loads, EXAMPLE.read_text().splitlines())])
    planned = dry_run(experiment(folder, llama_folder, evaluation={"choices": {"file": "asked.jsonl"}}))
    assert len(planned.plan.asked.choices) == 8
    told = " ".join(capsys.readouterr().err.split())
    assert "1 question does not fit 128 tokens (data.max_length) and is left out" in told and "asked.jsonl:1" in told
    write_lines(folder / "asked.jsonl", [long])
    with pytest.raises(DataError, match="no question fits 128 tokens"):
        dry_run(experiment(folder, llama_folder, evaluation={"choices": {"file": "asked.jsonl"}}))


def test_bad_questions_are_called_questions(folder, llama_folder, capsys):
    asking = {"evaluation": {"choices": COMMON}}
    write_lines(folder / "urgent.jsonl", [*URGENT, *[{"text": "a letter", "label": 2}] * 2])
    with pytest.raises(DataError, match="2 of 8 questions cannot be used"):
        dry_run(experiment(folder, llama_folder, **asking))
    dry_run(experiment(folder, llama_folder, data={"skip_bad": True}, **asking))
    assert "2 bad questions are left out" in " ".join(capsys.readouterr().err.split())
    write_lines(folder / "urgent.jsonl", [])
    with pytest.raises(DataError, match="holds no questions"):
        dry_run(experiment(folder, llama_folder, **asking))


def test_a_bad_question_stops_a_run_before_it_begins_and_harms_nothing(folder, llama_folder):
    write_lines(folder / "urgent.jsonl", [*URGENT, {"text": "a letter", "label": 2}])
    with pytest.raises(DataError, match=r"urgent\.jsonl:7: 'label' is none of the 2 options"):
        run(experiment(folder, llama_folder, evaluation={"choices": COMMON}))
    assert not (folder / "run").exists()
    result = run(experiment(folder, llama_folder, data={"skip_bad": True}, evaluation={"choices": COMMON}))
    assert result.rows[-1]["choice_accuracy_n"] == 6
    [left] = json.loads((result.folder / "exclusions.json").read_text())
    assert left["file"].endswith("urgent.jsonl") and (left["line"], left["cause"]) == (7, "bad")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"options": ["one"]}, "at least 2"),
        ({"options": ["one", "one"]}, "must all be different"),
        ({"options": ["one", " "]}, "none empty"),
        ({"options": ["a", "b"], "option_columns": ["a", "b"]}, "not both"),
        ({"option": ["a", "b"]}, "unknown key"),
    ],
)
def test_options_that_make_no_sense_are_refused(folder, llama_folder, options, why):
    with pytest.raises(ConfigError, match=why):
        experiment(folder, llama_folder, evaluation={"choices": {"file": "urgent.jsonl"} | options})


def test_classifiers_are_not_asked(folder, llama_folder):
    method = {"name": "lpfl", "patterns": ["{text} it was {blank}"], "verbaliser": {"a": ["one"], "b": ["two"]}}
    with pytest.raises(ConfigError, match=r"evaluation\.choices: it does nothing with labelled records"):
        experiment(folder, llama_folder, method, evaluation={"choices": COMMON, "sample": 16, "uploads": 2})

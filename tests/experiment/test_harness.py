"""Tasks of lm-evaluation-harness in a run: counted beforehand, measured, told, and refused."""

import pytest
from rich.console import Console

pytest.importorskip("lm_eval")

from murmura import report
from murmura.errors import ConfigError, DataError
from murmura.experiment.forecast.dry_run import dry_run
from murmura.experiment.forecast.view import show
from murmura.experiment.run import run
from murmura.runs import read
from tests.experiment.small import experiment, write_data
from tests.measure.harness.small import write_tasks

DOSES, VISITS = "lm_eval.doses.acc_norm", "lm_eval.visits.exact_match"


@pytest.fixture
def asking(tmp_path, llama_folder):
    write_data(tmp_path)
    write_tasks(tmp_path)

    def build(method=None, **benchmarks):
        options = {"tasks": ["doses.yaml", "visits.yaml"]} | benchmarks
        evaluation = {"attacks": False, "sample": 1, "benchmarks": options}
        return experiment(tmp_path, llama_folder, {"rounds": 1} | (method or {}), evaluation=evaluation)

    return build


def test_what_is_measured_is_told_everywhere(asking, capsys):
    result = run(asking(limit=4))
    assert [(row[f"{DOSES}_n"], row[f"{VISITS}_n"]) for row in result.rows] == [(4, 3)] * 2
    record = read(result.folder)
    assert record.measured.questions.count == 7
    [row] = report.table([record])
    assert row.cells[DOSES].interval()[-1] == "n = 4" and row.before(DOSES).mean is not None
    assert "doses (acc_norm) " in capsys.readouterr().err  # the line that ends a round
    assert "doses (acc_norm)" in report.markdown([row])
    assert "The task visits of lm-evaluation-harness" in (result.folder / "report.html").read_text()


def test_beside_a_run_without_them_there_is_a_dash(asking, tmp_path, llama_folder):
    first = run(asking(tasks=["doses.yaml"])).folder
    first = first.rename(tmp_path / "first")
    other = run(
        experiment(tmp_path, llama_folder, {"rounds": 1}, run={"seed": 3}, evaluation={"attacks": False})
    ).folder
    rows = report.table([read(first), read(other)])
    assert [row.cells[DOSES].n for row in rows] == [1, 0]
    line = next(line for line in report.markdown(rows).splitlines() if line.startswith("| ") and "seed 3" in line)
    assert "–" in line or "—" in line


def test_they_may_be_measured_after_the_last_round_alone(asking):
    first, last = run(asking(only_last=True)).rows
    assert DOSES not in first and last[f"{DOSES}_n"] == 5


def test_a_dry_run_counts_their_questions(asking):
    console = Console(record=True, width=200)
    show(dry_run(asking(limit=2)), console)
    text = console.export_text()
    assert "2 questions of doses" in text and "2 questions of visits" in text


def test_no_site_loads_tasks_that_a_server_names(asking):
    with pytest.raises(ConfigError, match=r"sites keep adapters of their own.*murmura evaluate RUN --tasks"):
        run(asking({"name": "local"}))


def test_nothing_is_trained_where_a_task_is_not_there(asking, tmp_path):
    (tmp_path / "doses.jsonl").unlink()
    with pytest.raises(DataError, match=r"doses: the task cannot be loaded"):
        run(asking())
    with pytest.raises(ConfigError, match="there is no such file"):
        run(asking(tasks=["dose.yaml"]))
    assert not (tmp_path / "run" / "metrics.jsonl").exists()

"""The studies prepare their data and write experiment files that load; the runs themselves take hours."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

from murmura import Experiment, report
from murmura.runs import read_all
from tests.report.runs import write_run

STUDIES = Path(__file__).parent.parent / "studies"


@pytest.fixture
def study(monkeypatch):
    monkeypatch.syspath_prepend(STUDIES)

    def load(name):
        # A benchmark may have the same name, and neither is to find the other.
        sys.modules.pop(name, None)
        module = importlib.import_module(name)
        del sys.modules[name]
        return module

    return load


@pytest.fixture
def data(tmp_path):
    """Files of the names and fields that the studies read, with invented rows."""
    medical = [
        {
            "instruction": "Answer.",
            "input": f"What helps cough {k}? It is bad.",
            "output": f"Rest, case {k}. Drink tea.",
        }
        for k in range(40)
    ]
    finance = [{"text": f"Profit rose by {k} percent .", "label": "positive"} for k in range(40)] * 2
    movie = [{"text": f"a film of {k} hours", "label": k % 2} for k in range(40)]
    rows = {
        "medical_icliniq": medical, "medical_medinstruct_test": medical, "finance_phrasebank": finance,
        "sentiment_movie_rt": movie,
    }  # fmt: skip
    for name, these in rows.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in these))
    return tmp_path


def test_a_line_ends_at_a_line_feed_alone(study, tmp_path):
    runs, rows = study("runs"), [{"text": "a film\x85 of two\u2028 hours"}, {"text": "another"}]
    runs.write_rows(tmp_path / "rows.jsonl", rows)
    assert runs.read_rows(tmp_path / "rows.jsonl") == rows


def test_a_folder_without_the_data_is_named(study, tmp_path):
    with pytest.raises(SystemExit, match=r"nowhere.rows\.jsonl: no such file; --data"):
        study("runs").read_rows(tmp_path / "nowhere" / "rows.jsonl")


def test_shortening_keeps_whole_sentences(study):
    shorten = study("runs").shorten
    assert shorten("One two. Three four five.  Six.", 5) == "One two. Three four five."
    assert shorten("One two three.", 2) == ""


@pytest.mark.parametrize("scale", ["small", "full"])
def test_fewfedpit_medical(study, data, tmp_path, scale):
    module = study("fewfedpit_medical")
    sizes = module.SCALES[scale]
    module.prepare(data, tmp_path / "out", sizes)
    for arm in module.ARMS:
        table = module.experiment(tmp_path / "out", tmp_path / "out" / arm, arm, 1, "smollm2-135m", sizes)
        assert Experiment.of(table).run.seed == 1


@pytest.mark.parametrize("scale", ["small", "full"])
@pytest.mark.parametrize("name", ["finance", "medical"])
def test_dplora(study, data, tmp_path, name, scale):
    module = study("dplora")
    sizes = module.SCALES[scale]
    module.prepare(name, data, tmp_path / "out", sizes)
    rows = study("runs").read_rows(tmp_path / "out" / f"{name}.jsonl")
    assert len({json.dumps(row) for row in rows}) == len(rows) == 40
    experiments = [
        Experiment.of(module.experiment(name, tmp_path / "out", tmp_path / arm, options, 0, "smollm2-135m", sizes))
        for arm, options in module.ARMS.items()
    ]
    assert len({e.dump() for e in experiments}) == len(module.ARMS)


def test_the_table_is_of_all_runs_that_are_there(study, tmp_path):
    there = ["finance-dplora-8-seed0", "finance-dplora-8-seed1", "finance-dplora-8-rank2-seed0", "medical-cmfl-seed0"]
    for name in there:
        (tmp_path / name).mkdir()
        (tmp_path / name / "summary.json").write_text("{}")
    (tmp_path / "finance-cmfl-seed0").mkdir()  # not finished
    names = [f"finance-{arm}" for arm in ("dplora-8", "dplora-8-rank2", "cmfl")]
    assert [folder.name for folder in study("runs").finished(tmp_path, names)] == there[:3]


def test_finished_runs_are_kept(study, tmp_path, monkeypatch):
    runs, started = study("runs"), []
    monkeypatch.setattr(runs.subprocess, "run", lambda command, check: started.append(command))
    for name in ("done", "stopped", "new"):
        (tmp_path / name).mkdir()
    (tmp_path / "done" / "summary.json").write_text("{}")
    (tmp_path / "stopped" / "config.toml").write_text("")
    (tmp_path / "stopped" / "checkpoint").mkdir()
    for name in ("done", "stopped", "new"):
        runs.work(tmp_path / name, {"run": {"name": name}})
    assert [command[:4] for command in started] == [[sys.executable, "-m", "murmura", "run"]] * 2
    assert ["--resume" in command for command in started] == [True, False]


def test_what_lpfl_gains_is_told_by_cell_and_seed(study, tmp_path):
    accuracies = {
        "labelled-5sites-0.02-seed0": 0.5, "lpfl-5sites-0.02-seed0": 0.75, "labelled-5sites-0.02-seed1": 0.5,
        "labelled-1sites-0.1-seed1": 0.75, "lpfl-1sites-0.1-seed1": 0.5,
    }  # fmt: skip
    for name, accuracy in accuracies.items():
        write_run(tmp_path / f"movie-{name}", seed=int(name[-1]), rows=[{"round": 0, "accuracy": accuracy}])
    assert study("lpfl").gains("movie", tmp_path).splitlines() == [
        "| LP-FL above labelled only | 0 | 1 |",
        "| --- | --: | --: |",
        "| 1 site, 10% labelled | – | −0.250 |",
        "| 5 sites, 2% labelled | +0.250 | – |",
    ]


@pytest.mark.parametrize("scale", ["small", "full"])
@pytest.mark.parametrize("name", ["movie", "finance"])
def test_lpfl(study, data, tmp_path, name, scale):
    module = study("lpfl")
    sizes = module.SCALES[scale]
    module.prepare(name, data, tmp_path / "out", sizes)
    tables = [
        module.experiment(name, tmp_path / "out", tmp_path / arm, arm, sites, 0.1, 0, "smollm2-135m", sizes)
        for arm in ("lpfl", "labelled", "whole")
        for sites in (1, 5)
    ]
    assert len({Experiment.of(table).dump() for table in tables}) == 6


@pytest.fixture
def two_arms(tmp_path):
    """Rows of finished runs: one arm with two seeds, another with one."""
    folders = []
    for arm, ends in (("one", {0: 1.0, 1: 2.0}), ("other", {1: 1.5})):
        for seed, end in ends.items():
            rounds = [{"round": 0, "heldout_loss": 3.0 + seed}, {"round": 1, "heldout_loss": end}]
            folders.append(write_run(tmp_path / f"{arm}-{seed}", method=arm, seed=seed, rows=rounds))
    return report.table(read_all(folders))


def test_a_figure_is_shown_round_by_round_as_the_mean_over_seeds(study, two_arms):
    assert study("runs").by_round(two_arms, "heldout_loss").splitlines() == [
        "| Held-out loss by round | 0 | 1 |",
        "| --- | --: | --: |",
        "| one | 3.500 ± 0.707 | 1.500 ± 0.707 |",
        "| other | 4.000 | 1.500 |",
    ]


def test_a_figure_is_shown_seed_by_seed_with_its_difference_from_the_first_arm(study, two_arms):
    assert study("runs").by_seed(two_arms, "heldout_loss").splitlines() == [
        "| Held-out loss by seed | 0 | 1 |",
        "| --- | --: | --: |",
        "| before training | 3.000 | 4.000 |",
        "| one | 1.000 | 2.000 |",
        "| other | – | 1.500 (−0.500) |",
    ]


def cells(table):
    return [line.strip("| ").split(" | ") for line in table.splitlines()][2:]


def test_figures_of_rounding(study):
    """Others move, by less than what the margins are for."""
    single, half = cells(study("privacy_figures").rounding(sizes=(2, 4), seeds=1))
    assert [single[0], half[0]] == ["float32", "bfloat16"]
    assert 0 <= float(single[1]) < 1e-5 < float(half[1]) < 2**-5
    assert float(single[2]) == pytest.approx(1, abs=1e-5) and float(half[2]) == pytest.approx(1, abs=2**-5)


def test_figures_of_canaries(study):
    assert cells(study("privacy_figures").canaries(counts=(8,))) == [["8", "0.78", "0.39"]]


def test_figures_of_sums(study):
    """At one ε: two turns of a site, five rounds apart; the first step of a tree of five is in three nodes."""
    found = {line[1]: [float(one) for one in line[2:]] for line in cells(study("privacy_figures").sums([(10, 2, 10)]))}
    fresh, tree = found["fresh in each round"], found["trees of 5 rounds"]
    assert fresh[2] == pytest.approx(fresh[0] * 10**0.5, rel=0.01) and fresh[1] == pytest.approx(
        fresh[0] * 5.5**0.5, 0.01
    )
    assert tree[0] == pytest.approx(fresh[0] * 3**0.5, rel=0.01)
    assert tree[2] == pytest.approx(tree[0] * (2 + 2) ** 0.5, rel=0.01)  # two nodes for five rounds
    assert found["5 bands"][1] < found["2 bands"][1] < fresh[1]
    assert found["5 bands"][1] < found["trees of 5 rounds, Honaker"][1] < tree[1]

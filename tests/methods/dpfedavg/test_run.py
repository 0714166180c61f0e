"""DP-FedAvg and DP-FTRL from an experiment file to the report."""

import re

import pytest

from murmura.errors import ConfigError
from murmura.experiment.forecast.dry_run import dry_run
from murmura.experiment.run import run
from murmura.report import markdown, table
from murmura.runs import read
from tests.experiment.small import BY_DEFAULT, experiment, write_data

METHODS = {
    "DP-FedAvg z=1": {"name": "dpfedavg", "noise_multiplier": 1.0},
    "DP-FedAvg ε=8, adaptive": {"name": "dpfedavg", "adaptive": {"count_noise": 9.0}},
    "DP-FTRL ε=8": {"name": "dpftrl", "noise": {"restart_every": 2}},
}


@pytest.fixture
def make(tmp_path, llama_folder):
    write_data(tmp_path)

    def build(method, **sections):
        measured = BY_DEFAULT | sections.pop("evaluation", {})
        return experiment(tmp_path, llama_folder, method, evaluation=measured, **sections)

    return build


@pytest.mark.parametrize("label", METHODS)
def test_the_report_tells_what_is_guaranteed(make, label):
    result = run(make(METHODS[label], evaluation={"attacks": True}))
    page = (result.folder / "report.html").read_text(encoding="utf-8")
    told = result.rows[-1]["privacy"]
    assert label in page and "What is guaranteed" in page and f"{told['epsilon']:.3g}" in page
    assert (
        "differential privacy for the whole site, noise added by the server" in page
        and "it is trusted (a secure sum would" in page
    )
    assert result.rows[-1]["upload_auc"] is not None  # single updates are attacked too
    for file in ("metrics.jsonl", "summary.json"):
        assert set(re.findall(r'"members": ?(\w+)', (result.folder / file).read_text(encoding="utf-8"))) == {"null"}
    assert "It does not cover what the report marks “outside ε” (Leakage (AUC), Leakage of single" in page
    assert "outside ε" in markdown(table([read(result.folder)]))
    assert "In this simulation several may have shared passes" in page


@pytest.mark.parametrize("label", METHODS)
def test_records_are_not_attacked_in_a_private_run_unless_that_is_asked_for(make, label):
    private = run(make(METHODS[label]))
    assert not any("auc" in key for row in private.rows for key in row)
    page = (private.folder / "report.html").read_text(encoding="utf-8")
    assert "outside ε" not in page and "no attack was carried out" in page
    assert {row.verb for row in read(private.folder).disclosure} == {"join", "train_clipped"}


def test_without_noise_nothing_is_promised_and_records_are_attacked(make):
    result = run(make({"name": "dpfedavg", "noise_multiplier": 0}))
    assert result.rows[-1]["attack_auc"] is not None
    assert "outside ε" not in (result.folder / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("asked", [None, False, True])
def test_a_dry_run_says_whether_records_are_attacked_and_that_no_epsilon_covers_it(make, asked):
    evaluation = {} if asked is None else {"attacks": asked}
    found = dry_run(make(METHODS["DP-FedAvg z=1"], evaluation=evaluation))
    told = " ".join(found.notes)
    assert ("the ε does not cover them" in told) == bool(asked)
    assert ("records are not attacked" in told) == (not asked)
    assert ("attack" in {row.verb for row in found.disclosure}) == bool(asked)


@pytest.mark.parametrize("sampler", ["poisson", "fixed"])
def test_single_uploads_of_secret_cohorts_are_not_to_be_attacked(make, sampler):
    method = METHODS["DP-FedAvg z=1"] | {"sampler": {"kind": sampler, "sites_per_round": 1}}
    found = dry_run(make(method, evaluation={"attacks": True}))
    told = {row.field for row in found.disclosure if row.verb == "attack"}
    assert "tally" in told and "upload_tally" not in told


@pytest.mark.parametrize("label", METHODS)
def test_a_plan_knows_the_method(make, label):
    found = dry_run(make(METHODS[label]))
    assert found.plan.method.title == label and len(found.rounds) == 2
    trained = [row for row in found.disclosure if row.verb == "train_clipped"]
    assert [row.field for row in trained] == ["update", "unclipped"][: 1 + ("adaptive" in label)]
    assert found.rounds[0].bytes_up == found.rounds[0].bytes_down == 2 * 4 * found.model.trainable


def test_all_parameters(make):
    result = run(make(METHODS["DP-FedAvg z=1"], model={"trainable": "all"}, evaluation={"uploads": 0}))
    assert (result.folder / "model" / "config.json").exists()
    assert result.rows[-1]["privacy"]["unit"] == "site"


def test_a_rule_of_aggregation_is_refused(make):
    with pytest.raises(ConfigError, match="does not go with that"):
        run(make(METHODS["DP-FTRL ε=8"], aggregation={"rule": "ffa"}))

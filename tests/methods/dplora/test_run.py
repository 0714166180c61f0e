"""DP-LoRA and its baselines from an experiment file to the report."""

import json
import shutil

import pytest

from murmura.errors import BudgetError, ConfigError, Interrupted, PrivacyError
from murmura.experiment.forecast.dry_run import dry_run
from murmura.experiment.run import run
from murmura.federation.server.sending import Sending
from murmura.privacy import budget, odometer, run_ledgers
from murmura.privacy.budget import BudgetConfig
from murmura.privacy.journal import Journal
from murmura.runs import read
from murmura.runs.folder import RunFolder
from murmura.units import bound
from tests.experiment.small import BY_DEFAULT, experiment, record, write_data, write_lines

ONE_STEP = {"max_steps": 1, "batch_size": 2, "lr": 5e-3}


@pytest.fixture
def make(tmp_path, llama_folder):
    write_data(tmp_path)

    def make(training=ONE_STEP, aggregation=None, **method):
        sections = {"aggregation": aggregation} if aggregation else {}
        options = {"name": "dplora"} | method
        measured = {"uploads": 1} | BY_DEFAULT
        return experiment(tmp_path, llama_folder, options, training=training, evaluation=measured, **sections)

    return make


@pytest.mark.parametrize(
    "method",
    [
        {"noise_multiplier": 1.0, "accountant": "rdp"},
        pytest.param({"preset": "paper", "accountant": "rdp"}, marks=pytest.mark.slow),
        {"noise_multiplier": 0.0},
    ],
    ids=["sound", "paper", "none"],
)
def test_the_report_tells_what_is_guaranteed(make, method):
    result = run(make(**method))
    page = (result.folder / "report.html").read_text(encoding="utf-8")
    told = result.rows[-1]["privacy"]
    if method.get("noise_multiplier") == 0:
        assert not told and "<h2>What is guaranteed" not in page
        return
    assert told["epsilon"] > 0 and told["refused"] is None
    assert "What is guaranteed" in page and bound(told["claimed_per_step"]) in page and bound(told["epsilon"]) in page
    assert f"ε = {bound(told['epsilon'])} by" in dry_run(make(**method)).guarantee


def test_a_delta_of_no_use_is_told_everywhere(make, capfd):
    chosen = make(noise_multiplier=1.0, accountant="rdp", delta=0.6)
    result = run(chosen)
    words = "δ = 0.6 is of no use: to publish one record of a site"
    assert words in " ".join(capfd.readouterr().err.split())
    assert words in (result.folder / "report.html").read_text(encoding="utf-8")
    assert words in result.rows[-1]["privacy"]["caveat"]
    assert any(words in note for note in dry_run(make(noise_multiplier=1.0, accountant="rdp", delta=0.6)).notes)
    assert not any("of no use" in note for note in dry_run(make(noise_multiplier=1.0, accountant="rdp")).notes)


@pytest.mark.parametrize(
    "method", [{"noise_multiplier": 1.0}, {"name": "vanilla-fl"}, {"name": "tfedavg"}], ids=["dp", "avg", "ternary"]
)
def test_a_plan_knows_the_bytes(make, method):
    chosen = make(**method)
    expected = dry_run(chosen)
    result = run(chosen)
    released = json.loads((result.folder / "disclosure.json").read_text())
    uploaded = sum(row["bytes"] for row in released if row["field"] in ("adapter", "codes"))
    assert sum(planned.bytes_up for planned in expected.rounds) == uploaded
    assert [planned.steps for planned in expected.rounds] == [2, 2]
    training = {(row["verb"], row["field"]) for row in released if row["verb"] != "attack"}
    foreseen = {(row.verb, row.field) for row in expected.disclosure if row.verb not in ("attack", "commit")}
    assert training == foreseen


@pytest.mark.usefixtures("no_page")
def test_resuming(make, monkeypatch):
    monkeypatch.setattr(RunFolder, "drop_checkpoints", lambda folder: None)  # killed at the very end
    run(make(rounds=2, noise_multiplier=1.0, accountant="rdp"))
    with pytest.raises(PrivacyError, match="begun under another privacy plan"):
        run(make(rounds=3, noise_multiplier=1.0, accountant="rdp"), resume=True)
    with pytest.raises(ConfigError, match=r"method\.delta"):
        run(make(rounds=2, noise_multiplier=1.0, accountant="rdp", delta=1e-6), resume=True)


@pytest.mark.parametrize(
    ("private", "secure"),
    [({"noise_multiplier": 2.0}, False), ({"epsilon": 8.0, "accountant": "rdp"}, True)],
    ids=["given", "target"],
)
def test_a_site_that_goes_on_from_an_old_copy_leaves_no_epsilon(make, tmp_path, monkeypatch, private, secure):
    """Its ledger and its anchor agree: they have both lost the answer that came after."""
    write_data(tmp_path, {"heart": 6, "skin": 3, "lung": 4})  # of two, a secure sum would hide nothing
    asked = make(rounds=3, aggregation={"secure": True} if secure else None, **private)
    site, sending = RunFolder(asked.run.path).private_of("skin"), Sending.fields

    def watched(self, *arguments, **more):
        if self._fleet.round == 2:
            shutil.copytree(site, tmp_path / "copy", dirs_exist_ok=True)
        if self._fleet.round == 3:
            raise KeyboardInterrupt
        return sending(self, *arguments, **more)

    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(Sending, "fields", watched)
        run(asked)
    shutil.rmtree(site)
    shutil.copytree(tmp_path / "copy", site)
    last = run(asked, resume=True).rows[-1]["privacy"]
    assert last["epsilon"] is None and "the privacy ledger of site skin has lost" in last["refused"]


@pytest.mark.usefixtures("no_page")
@pytest.mark.parametrize("secure", [False, True])
def test_what_a_run_spent_is_known_though_a_site_was_left_out_of_it(make, tmp_path, secure):
    """A site without a record that can be used has no folder; the roster of a secure sum is no site's."""
    write_data(tmp_path, {"heart": 6, "skin": 3, "lung": 4})
    endless = record("throat", 1) | {"output": "please call the clinic " * 60}
    write_lines(tmp_path / "sites" / "throat.jsonl", [endless])
    asked = make(rounds=1, noise_multiplier=2.0, aggregation={"secure": True} if secure else None)
    folder = run(asked).folder
    left = run_ledgers.read(folder)
    assert left.records.keys() == {"heart", "skin", "lung"} and not left.damaged
    assert odometer.together([left], "record").value == pytest.approx(read(folder).last.privacy["epsilon"])
    shutil.rmtree(RunFolder(folder).private_of("skin"))
    assert run_ledgers.read(folder).damaged.keys() == {"skin"}


def test_noise_on_what_is_uploaded_needs_all_of_it_uploaded(make):
    """Under fedsa B stays at the site without noise, and would shape the next upload."""
    with pytest.raises(ConfigError, match="leaves the factor that sites keep without any"):
        run(make(noise_on="weights", noise_multiplier=1.0, aggregation={"rule": "fedsa"}))


@pytest.mark.usefixtures("no_page")
def test_a_rule_is_for_averaging_algorithms_alone(make):
    with pytest.raises(ConfigError, match="T-FedAvg aggregates in a way of its own"):
        run(make(name="tfedavg", aggregation={"rule": "ffa"}))
    found = run(make(accountant="rdp", noise_multiplier=1.0, aggregation={"rule": "ffa"}))
    assert found.rows[-1]["privacy"]["epsilon"] > 0


# ---- the owner's budget ----------------------------------------------------------------------------------------------


def with_budget(chosen, tmp_path, epsilon, folder="run"):
    """The experiment with accounts outside of its folder, and without attacks, which no ε covers."""
    return chosen.model_copy(
        update={
            "budget": BudgetConfig(folder=str(tmp_path / "accounts"), epsilon=epsilon),
            "evaluation": chosen.evaluation.model_copy(update={"attacks": False}),
            "run": chosen.run.model_copy(update={"folder": str(tmp_path / folder)}),
        }
    )


@pytest.mark.usefixtures("no_page")
@pytest.mark.slow
def test_sites_stop_answering_where_their_budget_ends_in_whatever_run(make, tmp_path, monkeypatch):
    """A second run is begun with a budget that the first has used up, by a server that does not ask beforehand."""
    monkeypatch.setattr("murmura.experiment.run.require_answers", lambda *_: None)
    chosen = make(noise_multiplier=4.0, rounds=2)
    told = run(with_budget(chosen, tmp_path, 1e9)).rows[-1]["privacy"]
    accounts = sorted(path.parent for path in (tmp_path / "accounts").glob("*/account.journal"))
    assert accounts and all(len(Journal(one / "account.journal").lines) == 2 for one in accounts)
    digests = [Journal(one / "account.journal").lines[0]["records"] for one in accounts]
    spent = [budget.read(tmp_path / "accounts").epsilon(one, told["delta"]).value for one in digests]
    assert max(spent) == pytest.approx(told["epsilon"])
    with pytest.raises(BudgetError, match="another 1 step would exceed the owner's budget"):
        run(with_budget(chosen, tmp_path, min(spent), "second"))
    assert [budget.read(tmp_path / "accounts").epsilon(one, told["delta"]).value for one in digests] == spent
    notes = [note.read_text() for note in (tmp_path / "second").rglob("notes.txt")]
    assert any("would exceed the owner's budget" in note for note in notes)


@pytest.mark.parametrize("change", [{"name": "vanilla-fl"}, {"noise_multiplier": 0.0}])
@pytest.mark.parametrize("beforehand", [True, False])
def test_a_budget_refuses_what_no_epsilon_covers(make, tmp_path, change, beforehand, monkeypatch):
    if not beforehand:
        monkeypatch.setattr("murmura.experiment.run.require_answers", lambda *_: None)
    with pytest.raises(BudgetError, match="no ε covers what verb train"):
        run(with_budget(make(**change), tmp_path, 8.0))


@pytest.mark.parametrize("beforehand", [True, False])
def test_a_budget_refuses_attacks(make, tmp_path, beforehand, monkeypatch):
    if not beforehand:
        monkeypatch.setattr("murmura.experiment.run.require_answers", lambda *_: None)
    chosen = make(noise_multiplier=4.0)
    with_attacks = with_budget(chosen, tmp_path, 1e9).model_copy(
        update={"evaluation": chosen.evaluation.model_copy(update={"attacks": True})}
    )
    with pytest.raises(BudgetError, match="no ε covers what verb attack"):
        run(with_attacks)

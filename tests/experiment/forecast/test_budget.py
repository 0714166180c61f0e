"""What a dry run foretells of the sites' accounts, against what a run then does to them."""

import pytest

from murmura import methods
from murmura.errors import BudgetError
from murmura.experiment.forecast.budget import foresee
from murmura.experiment.forecast.dry_run import dry_run
from murmura.experiment.run import run
from murmura.privacy.budget import read
from murmura.privacy.journal import Journal
from murmura.units import bound
from tests.experiment.small import SIZES

pytestmark = pytest.mark.usefixtures("no_page")

STEPS = {"max_steps": 1, "batch_size": 2, "lr": 5e-3}


def budgeted(make, tmp_path, epsilon, method=None, **evaluation):
    budget = {"folder": str(tmp_path / "accounts")} | ({} if epsilon is None else {"epsilon": epsilon})
    private = {"name": "dplora", "noise_multiplier": 4.0, "accountant": "rdp"}
    method = {"rounds": 3} | ({} if "name" in (method or {}) else private) | (method or {})
    return make(method=method, training=STEPS, budget=budget, evaluation=evaluation)


def told(experiment):
    return [note for note in dry_run(experiment).notes if "udget" in note]


def spent(tmp_path, site):
    [line, *_] = Journal(tmp_path / "accounts" / site / "account.journal").lines
    return read(tmp_path / "accounts").epsilon(line["records"], 1e-5).value


def test_what_is_foretold_is_what_happens(make, tmp_path):
    foretold = told(budgeted(make, tmp_path, None))
    assert not (tmp_path / "accounts").exists()  # nothing is written
    run(budgeted(make, tmp_path, None))
    for site in ("heart", "skin"):
        after = bound(spent(tmp_path, site))
        words = f"Budget of {site}: ε = 0.000 is spent at δ = 1e-05, and it would be {after} after this run."
        assert words in foretold


@pytest.mark.slow
def test_a_site_that_would_refuse_is_named_with_the_rounds_that_it_answers(make, tmp_path, monkeypatch):
    whole = budgeted(make, tmp_path, 1e9, {"rounds": 1})
    run(whole.model_copy(update={"run": whole.run.model_copy(update={"folder": str(tmp_path / "first")})}))
    one = {site: spent(tmp_path, site) for site in ("heart", "skin")}
    assert one["skin"] > one["heart"]  # it has fewer records
    tight = budgeted(make, tmp_path, one["skin"] * 1.01)
    notes = told(tight)
    [skin] = [note for note in notes if note.startswith("Budget of skin")]
    allowed = f"{tight.budget.epsilon:g}"
    assert f"ε = {bound(one['skin'])} of {allowed} is spent" in skin
    assert skin.endswith("That is too much: none of its rounds would be answered.")
    [refusal] = dry_run(tight).refusals
    monkeypatch.setattr("murmura.measure.monitor.Monitor.measure", lambda *_, **__: pytest.fail("measured for nothing"))
    with pytest.raises(BudgetError) as error:
        run(tight)
    assert str(error.value) == refusal and "site skin: " in refusal
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
    [heart] = [note for note in notes if note.startswith("Budget of heart")]
    assert " of its 3 rounds would be answered" in heart or "too much" not in heart


@pytest.mark.parametrize(
    ("method", "evaluation", "why"),
    [({"name": "vanilla-fl"}, {}, "what verb train releases"), ({}, {"attacks": True}, "attacks on their records")],
)
def test_what_no_epsilon_covers_is_told(make, tmp_path, method, evaluation, why):
    refused = budgeted(make, tmp_path, 8.0, method, **evaluation)
    [note] = told(refused)
    assert f"No ε at the sites covers {why}" in note and "sites do not answer it" in note
    [refusal] = dry_run(refused).refusals
    with pytest.raises(BudgetError) as error:
        run(refused)
    assert str(error.value) == refusal
    assert not dry_run(budgeted(make, tmp_path, None, method, **evaluation)).refusals
    [note] = told(budgeted(make, tmp_path, None, method, **evaluation))
    assert "keep no budget for these records from then on" in note


def test_a_run_that_enough_sites_answer_is_not_refused(make, tmp_path):
    """Sites in processes of their own: one that does not answer is left out, and its attacks are."""
    one = {"name": "dplora", "noise_multiplier": 4.0, "accountant": "rdp", "rounds": 1}
    found = {site: foresee_first(make, tmp_path, one, site) for site in SIZES}
    between = sum(found.values()) / 2  # skin has fewer records, and so spends more
    for engine, replies, refuses in (("local", 1, True), ("processes", 1, False), ("processes", 2, True)):
        chosen = budgeted(make, tmp_path, between, one)
        options = chosen.run.model_copy(update={"engine": engine, "min_replies": replies})
        assert bool(dry_run(chosen.model_copy(update={"run": options})).refusals) == refuses


def foresee_first(make, tmp_path, options, site):
    """ε that a site's account would have after one round."""
    chosen = budgeted(make, tmp_path, 1e9, options)
    method = methods.build(chosen.method, chosen.aggregation)
    cost = method.cost("train_private", SIZES[site], chosen.training)
    return foresee(chosen.budget, site, cost, 1).after


def test_an_account_that_was_edited_is_told(make, tmp_path):
    folder = tmp_path / "accounts" / "heart"
    folder.mkdir(parents=True)
    (folder / "account.journal").write_text("nonsense\n")
    assert any(
        note.startswith("Budget of heart, skin: the account cannot be read")
        for note in told(budgeted(make, tmp_path, 8))
    )


def test_without_a_budget_nothing_is_said(make):
    assert not told(make(method={"name": "dplora", "noise_multiplier": 4.0}, training=STEPS))

"""What is spent over all runs is on the account before it is spent, and nothing exceeds what the owner allows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pydantic import ValidationError

from murmura.errors import BudgetError, PrivacyError
from murmura.privacy import GaussianNoise
from murmura.privacy.budget import Budget, BudgetConfig
from tests.privacy.plans import RECORDS

ONE = RECORDS.epsilon(10).value


def made(path, epsilon=None, delta=1e-5):
    return Budget(path / "accounts" / "a", "a", epsilon, delta)


@pytest.mark.slow
def test_rounds_of_all_runs_add_up_as_one_composition(tmp_path):
    for run in ("first", "first", "second"):
        made(tmp_path).reserve(run, RECORDS, 10)
    assert made(tmp_path).spent().value == pytest.approx(RECORDS.epsilon(30).value, rel=1e-3)
    other = replace(RECORDS, noise=GaussianNoise(1.0))
    made(tmp_path).reserve("third", other, 1)
    assert made(tmp_path).spent().value > RECORDS.epsilon(30).value


@pytest.mark.slow
def test_what_would_exceed_the_budget_is_refused_and_not_entered(tmp_path):
    allowed = RECORDS.epsilon(25).value
    budget = made(tmp_path, allowed)
    budget.reserve("first", RECORDS, 10)
    budget.reserve("second", RECORDS, 10)
    before = budget.spent()
    with pytest.raises(BudgetError, match=r"site a: another 10 steps would exceed .* is spent, over 2 runs"):
        budget.reserve("third", RECORDS, 10)
    assert made(tmp_path, allowed).spent() == before and before.value <= allowed
    budget.reserve("third", RECORDS, 4)  # less still goes


def test_the_first_round_can_be_too_much(tmp_path):
    with pytest.raises(BudgetError, match=r"0 of ε = 0\.01 is spent, over 0 runs"):
        made(tmp_path, 0.01).reserve("first", RECORDS, 10)


def test_another_delta_is_another_budget(tmp_path):
    made(tmp_path, ONE * 1.01).reserve("first", RECORDS, 10)
    with pytest.raises(BudgetError):
        made(tmp_path / "b", ONE * 1.01, 1e-9).reserve("first", RECORDS, 10)


def test_what_no_epsilon_covers_is_refused_or_ends_the_account(tmp_path):
    with pytest.raises(BudgetError, match="no ε covers what verb train releases, and the owner's budget is ε = 8"):
        made(tmp_path, 8.0).lose("first", "no ε covers what verb train releases")
    made(tmp_path).lose("second", "no ε covers what verb train releases")  # an account without a limit
    for ask in (lambda account: account.reserve("third", RECORDS, 1), Budget.spent):
        with pytest.raises(BudgetError, match="no ε covers what run second did"):
            ask(made(tmp_path, 8.0))


def test_a_run_that_departed_from_its_plan_ends_the_account(tmp_path):
    budget = made(tmp_path, 8.0)
    budget.reserve("first", RECORDS, 1)
    budget.departed("first", "its noise was 0")
    budget.departed("first", "its noise was 0")
    with pytest.raises(BudgetError, match=r"no ε covers what run first did \(its noise was 0\)"):
        budget.reserve("first", RECORDS, 1)


def test_an_account_that_was_edited_is_refused(tmp_path):
    budget = made(tmp_path, 8.0)
    budget.reserve("first", RECORDS, 10)
    path = tmp_path / "accounts" / "a" / "account.journal"
    assert path.stat().st_mode & 0o777 == 0o600 and path.parent.stat().st_mode & 0o777 == 0o700
    path.write_text(path.read_text().replace('"steps": 10', '"steps": 1'))
    with pytest.raises(PrivacyError, match="account of site a is damaged or was edited"):
        made(tmp_path, 8.0)


def test_a_budget_needs_a_place_for_its_account():
    with pytest.raises(ValidationError, match=r"needs budget\.folder"):
        BudgetConfig(epsilon=8.0)
    assert BudgetConfig(folder="accounts").epsilon is None
    with pytest.raises(ValidationError, match=r"'delta' does nothing without budget\.epsilon"):
        BudgetConfig(folder="accounts", delta=1e-6)

"""What is spent over all runs is on the account before it is spent, and nothing exceeds what the owner allows."""

import json
from dataclasses import replace

import dp_accounting as dp
import pytest
from pydantic import ValidationError

from murmura.errors import BudgetError, PrivacyError
from murmura.experiment.forecast.budget import foresee
from murmura.privacy import accounting
from murmura.privacy.budget import Budget, BudgetConfig, read
from murmura.privacy.composition import ReleasedSteps, composed
from murmura.privacy.guarantee import Cost
from murmura.privacy.journal import Journal
from murmura.privacy.mechanisms.gaussian import GaussianNoise
from tests.privacy.plans import RECORDS, VOTES


def ten():
    """ε of ten steps."""
    return RECORDS.epsilon(10).value


def spent(path, records="digest"):
    return read(path / "accounts").epsilon(records, 1e-5).value


def made(path, epsilon=None, delta=1e-5, site="a", records="digest"):
    return Budget(path / "accounts", site, records, epsilon, delta)


@pytest.mark.slow
def test_rounds_of_all_runs_add_up_as_one_composition(tmp_path):
    for run in ("first", "first", "second"):
        made(tmp_path).reserve(run, Cost(RECORDS, 10))
    assert spent(tmp_path) == pytest.approx(RECORDS.epsilon(30).value, rel=1e-3)
    other = replace(RECORDS, noise=GaussianNoise(1.0))
    made(tmp_path).reserve("third", Cost(other, 1))
    assert spent(tmp_path) > RECORDS.epsilon(30).value


@pytest.mark.slow
def test_what_would_exceed_the_budget_is_refused_and_not_entered(tmp_path):
    allowed = RECORDS.epsilon(25).value
    budget = made(tmp_path, allowed)
    budget.reserve("first", Cost(RECORDS, 10))
    budget.reserve("second", Cost(RECORDS, 10))
    before = spent(tmp_path)
    with pytest.raises(BudgetError, match=r"site a: another 10 steps would exceed .* is spent, over 2 runs"):
        budget.reserve("third", Cost(RECORDS, 10))
    assert spent(tmp_path) == before <= allowed
    budget.reserve("third", Cost(RECORDS, 4))  # less still goes


def test_the_first_round_can_be_too_much(tmp_path):
    with pytest.raises(BudgetError, match=r"0 of ε = 0\.01 is spent, over 0 runs"):
        made(tmp_path, 0.01).reserve("first", Cost(RECORDS, 10))


def test_another_delta_is_another_budget(tmp_path):
    made(tmp_path, ten() * 1.01).reserve("first", Cost(RECORDS, 10))
    with pytest.raises(BudgetError):
        made(tmp_path / "b", ten() * 1.01, 1e-9).reserve("first", Cost(RECORDS, 10))


def test_what_no_epsilon_covers_is_refused_or_ends_the_account(tmp_path):
    with pytest.raises(BudgetError, match="no ε covers what verb train releases, and the owner's budget is ε = 8"):
        made(tmp_path, 8.0).lose("first", "no ε covers what verb train releases")
    made(tmp_path).lose("second", "no ε covers what verb train releases")  # an account without a limit
    with pytest.raises(BudgetError, match="no ε covers what run second did"):
        made(tmp_path, 8.0).reserve("third", Cost(RECORDS, 1))


def test_a_run_that_departed_from_its_plan_ends_the_account(tmp_path):
    budget = made(tmp_path, 8.0)
    budget.reserve("first", Cost(RECORDS, 1))
    budget.departed("first", "its noise was 0")
    budget.departed("first", "its noise was 0")
    with pytest.raises(BudgetError, match=r"no ε covers what run first did \(its noise was 0\)"):
        budget.reserve("first", Cost(RECORDS, 1))


def test_an_account_that_was_edited_is_refused(tmp_path):
    budget = made(tmp_path, 8.0)
    budget.reserve("first", Cost(RECORDS, 10))
    path = tmp_path / "accounts" / "a" / "account.journal"
    assert path.stat().st_mode & 0o777 == 0o600 and path.parent.stat().st_mode & 0o777 == 0o700
    path.write_text(path.read_text().replace('"steps": 10', '"steps": 1'))
    for budget in (lambda: made(tmp_path, 8.0), lambda: made(tmp_path, 8.0, site="b").reserve("run", Cost(RECORDS, 1))):
        with pytest.raises(PrivacyError, match="account of site a is damaged or was edited"):
            budget()


NAMES = ["skin", "skin-2026", "Skin", "skin "]


def test_a_name_is_no_budget_of_its_own(tmp_path):
    """The same records, whatever the site is called."""
    allowed = RECORDS.epsilon(25).value
    for name in NAMES[:2]:
        made(tmp_path, allowed, site=name).reserve(f"run of {name}", Cost(RECORDS, 10))
    for name in NAMES[2:]:
        with pytest.raises(BudgetError, match="over 2 runs"):
            made(tmp_path, allowed, site=name).reserve(f"run of {name}", Cost(RECORDS, 10))
    assert spent(tmp_path) == pytest.approx(RECORDS.epsilon(20).value, rel=1e-3)


@pytest.mark.slow
def test_records_at_two_sites_of_a_sum_with_noise_in_shares_move_it_twice_as_far(tmp_path):
    for site, steps in (("skin", 11), ("skin-2026", 7)):
        made(tmp_path, site=site).reserve("run", Cost(VOTES, steps))
    by_hand = replace(VOTES, adjacency="replace-one").event(11).event.further(2)
    exact = accounting.epsilon(dp.SelfComposedDpEvent(by_hand, 11), 1e-5, "replace-one").value
    assert spent(tmp_path) == pytest.approx(exact, rel=1e-6)
    one_after_the_other = composed([ReleasedSteps(VOTES, 18, by_record=True)], 1e-5, "replace-one").value
    assert exact > one_after_the_other
    # In two runs they move two sums.
    made(tmp_path / "b", site="skin").reserve("first", Cost(VOTES, 11))
    made(tmp_path / "b", site="skin-2026").reserve("second", Cost(VOTES, 7))
    assert spent(tmp_path / "b") == pytest.approx(one_after_the_other, rel=1e-6)


def test_the_same_records_under_two_names_in_one_run_are_asked_twice(tmp_path):
    for name in NAMES[:2]:
        made(tmp_path, site=name).reserve("run", Cost(RECORDS, 10))
    assert spent(tmp_path) == pytest.approx(RECORDS.epsilon(20).value, rel=1e-3)


def opened(path, site, records, opening, epsilon=None):
    return Budget(path / "accounts", site, records, epsilon, 1e-5, opening)


def test_a_run_that_is_called_like_an_earlier_one_is_another(tmp_path):
    """A server gives its runs their ids, and a site may have had other records, and another name, the first time."""
    opened(tmp_path, "skin", "monday", "1").reserve("run", Cost(RECORDS, 10))
    twice = opened(tmp_path, "skin-2026", "tuesday", "2", RECORDS.epsilon(15).value)
    with pytest.raises(BudgetError, match="over 1 runs"):
        twice.reserve("run", Cost(RECORDS, 10))
    opened(tmp_path, "skin-2026", "tuesday", "2").reserve("run", Cost(RECORDS, 10))
    for records in ("monday", "tuesday", "wednesday"):
        assert spent(tmp_path, records) == pytest.approx(RECORDS.epsilon(20).value, rel=1e-3)


def test_sites_that_are_opened_together_have_records_of_their_own(tmp_path):
    """Before a restart as after it."""
    for opening in "12":
        for site in ("skin", "lung"):
            opened(tmp_path, site, f"records of {site}", opening).reserve("run", Cost(RECORDS, 5))
    assert spent(tmp_path, "records of lung") == pytest.approx(RECORDS.epsilon(10).value, rel=1e-3)


def test_a_departure_counts_in_each_opening(tmp_path):
    """Another site had these records before, and departed from nothing."""
    opened(tmp_path, "lung", "tuesday", "1").reserve("run", Cost(RECORDS, 1))
    for opening, records in (("1", "monday"), ("2", "tuesday")):
        opened(tmp_path, "skin", records, opening).departed("run", "its noise was 0")
    with pytest.raises(BudgetError, match="no ε covers what run run did"):
        made(tmp_path, 8.0, site="anybody", records="tuesday").reserve("again", Cost(RECORDS, 1))


def test_a_record_more_is_no_budget_of_its_own(tmp_path):
    """Those that stay have seen both runs."""
    made(tmp_path, records="monday").reserve("first", Cost(RECORDS, 10))
    made(tmp_path, records="tuesday").reserve("second", Cost(RECORDS, 10))
    twice = pytest.approx(RECORDS.epsilon(20).value, rel=1e-3)
    assert spent(tmp_path, "tuesday") == twice and spent(tmp_path, "wednesday") == twice


def test_a_run_that_is_called_as_an_earlier_one_counts_too(tmp_path):
    """Whatever a server calls it: the site has another record, and its account the same place."""
    made(tmp_path, records="monday").reserve("run", Cost(RECORDS, 10))
    made(tmp_path, records="tuesday").reserve("run", Cost(RECORDS, 10))
    assert spent(tmp_path, "tuesday") == pytest.approx(RECORDS.epsilon(20).value, rel=1e-3)


def test_sites_of_one_run_have_each_spent_their_own(tmp_path):
    """And once records are shared out anew, each counts as having been where most was spent."""
    for records, steps in (("a", 10), ("b", 30)):
        made(tmp_path, site=records, records=records).reserve("first", Cost(RECORDS, steps))
    few, many = RECORDS.epsilon(10).value, RECORDS.epsilon(30).value
    assert (spent(tmp_path, "a"), spent(tmp_path, "b")) == (pytest.approx(few), pytest.approx(many))
    assert spent(tmp_path, "others") == pytest.approx(many)
    made(tmp_path, site="a", records="others").reserve("second", Cost(RECORDS, 10))
    assert spent(tmp_path, "others") == pytest.approx(RECORDS.epsilon(40).value, rel=1e-3)
    assert spent(tmp_path, "a") == pytest.approx(RECORDS.epsilon(20).value, rel=1e-3)


def test_what_a_run_lost_is_lost_for_whoever_may_have_been_in_it(tmp_path):
    made(tmp_path, site="a", records="a").reserve("first", Cost(RECORDS, 1))
    made(tmp_path, site="b", records="b").departed("first", "its noise was 0")
    made(tmp_path, 8.0, site="a", records="a").reserve("second", Cost(RECORDS, 1))
    for records in ("b", "others"):
        with pytest.raises(BudgetError, match="no ε covers what run first did"):
            made(tmp_path, 8.0, site="a", records=records).reserve("second", Cost(RECORDS, 1))


def test_several_plans_of_a_run_count_together(tmp_path):
    other = replace(RECORDS, noise=GaussianNoise(2.0))
    for plan in (RECORDS, other):
        made(tmp_path).reserve("run", Cost(plan, 5))
    assert spent(tmp_path) > RECORDS.epsilon(5).value


def test_an_account_of_an_earlier_release_counts(tmp_path):
    """It did not note the records."""
    folder = tmp_path / "accounts" / "old name"
    folder.mkdir(parents=True)
    line = {"run": "earlier", "plan": json.loads(RECORDS.to_json()), "steps": 10}
    Journal(folder / "account.journal").append(line)
    assert spent(tmp_path) == pytest.approx(ten())


def test_what_is_foreseen_is_by_the_records_too(tmp_path):
    made(tmp_path, records="a").reserve("first", Cost(RECORDS, 10))
    chosen = BudgetConfig(folder=str(tmp_path / "accounts"), epsilon=RECORDS.epsilon(25).value)
    assert [foresee(chosen, one, Cost(RECORDS, 10), 3).answered for one in ("a", "b")] == [1, 1]


def test_a_budget_needs_a_place_for_its_account():
    with pytest.raises(ValidationError, match=r"needs budget\.folder"):
        BudgetConfig(epsilon=8.0)
    assert BudgetConfig(folder="accounts").epsilon is None
    with pytest.raises(ValidationError, match=r"'delta' does nothing without budget\.epsilon"):
        BudgetConfig(folder="accounts", delta=1e-6)


def test_an_epsilon_without_delta_is_added_to_that_of_plans_however_often_it_was_spent(tmp_path):
    """Pure ε adds up (Dwork and Roth 2014, Theorem 3.14), also with what has a δ."""
    budget = made(tmp_path, 2.0 * 3 + ten() * 1.01)
    for run in ("first", "first", "second"):
        budget.reserve(run, Cost(epsilon=2.0))
    assert spent(tmp_path) == 6.0
    budget.reserve("third", Cost(RECORDS, 10))
    assert spent(tmp_path) == pytest.approx(6.0 + ten(), rel=1e-6)
    with pytest.raises(BudgetError, match="another answer would exceed"):
        budget.reserve("fourth", Cost(epsilon=0.5))
    chosen = BudgetConfig(folder=str(tmp_path / "accounts"), epsilon=6.0 + ten() * 1.01 + 4.5)
    assert foresee(chosen, "digest", Cost(epsilon=2.0), 3).answered == 2
    assert foresee(chosen, "others", Cost(epsilon=2.0), 3).answered == 2  # a record may have been at any site before

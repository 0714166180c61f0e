import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murmura.errors import PrivacyError
from murmura.privacy.clipping import AdaptiveSiteClipping
from murmura.privacy.journal import Journal
from murmura.privacy.ledger import PrivacyLedger, Spent
from murmura.privacy.mechanisms.discrete_gaussian import DiscreteGaussianNoise
from murmura.privacy.mechanisms.gaussian import GaussianNoise
from murmura.privacy.mechanisms.tree import TreeNoise
from murmura.privacy.samplers import FixedSizeSampling, FullParticipation, OncePerTree, PoissonSampling
from tests.privacy.plans import RECORDS, SITES, VOTES, followed, of_records, of_sites, of_votes

DONE = {"sampler": FullParticipation(), "clip_norm": 0.5, "noise_std": 11.3}
ADAPTIVE = of_sites(clipping=AdaptiveSiteClipping(0.5, 0.5, 0.2, count_noise=20.0))
TREE = of_sites(noise=TreeNoise(11.3, 4), sampler=OncePerTree(3))


def spent(steps=1, plan=SITES, **done):
    """What a run that says that it has ``done`` this also saw."""
    changes = DONE | {"parameters": {}} | done
    return followed(replace(plan, sampler=changes["sampler"]), steps, **changes)


def ledger(plan=SITES, journal=None, **done):
    made = PrivacyLedger(plan, journal)
    if done:
        made.record(1, [spent(plan=plan, **done)])
    return made


def test_epsilon_is_that_of_the_steps_that_were_done():
    done = ledger()
    assert done.epsilon().value == 0
    for step in range(1, 12):
        done.record(step, [spent()])
        assert done.epsilon() == SITES.epsilon(step)
    assert done.epsilon("rdp").value == pytest.approx(1.28748, abs=1e-5)
    assert done.entries == [Spent(11, **DONE)]


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (
            ledger(sampler=PoissonSampling(0.5)),
            "it drew Poisson sampling at rate 0.5 where every unit in every step was",
        ),
        (ledger(clip_norm=0.6), "it clipped to 0.6 where 0.5 was planned"),
        (ledger(clip_norm=0.4), "it clipped to 0.4 where 0.5 was planned"),
        (ledger(noise_std=11.2), "its noise was 11.2 norms where 11.3 was planned"),
        (ledger(clip_norm=0.50000251), "it clipped to 0.500003 where 0.5 was planned"),
        (ledger(noise_std=11.29995), "its noise was 11.29995 norms where 11.3 was planned"),
        (ledger(noise_std=0.0), "its noise was 0 norms where 11.3 was planned"),
        (ledger(noise_std=math.nan), "its noise was nan norms where 11.3 was planned"),
        (ledger(steps=12), "it took 12 steps where 11 were planned"),
        (ledger(parameters={"restart_every": 4}), "it had restart_every = 4, which is not in its plan"),
        (ledger(ADAPTIVE), "its count noise was None where 20 was planned"),
        (ledger(ADAPTIVE, parameters={"count_noise": 19.0}), "its count noise was 19.0 where 20 was planned"),
        (ledger(TREE, sampler=OncePerTree(3)), "it had restart_every = None where 4 was planned"),
        (
            ledger(TREE, parameters={"restart_every": 4}),
            "it drew every unit in every step where 3 a step, each at most once a tree was",
        ),
        (
            ledger(of_records(sampler=FixedSizeSampling(8, 200)), sampler=FixedSizeSampling(8, 201), clip_norm=1.5),
            "it drew 8 of 201 without replacement where 8 of 200 without replacement was planned",
        ),
    ],
)
def test_a_run_that_departs_from_its_plan_has_no_epsilon(made, reason):
    if not made.entries:
        made.record(1, [spent(plan=made.plan)])
    with pytest.raises(PrivacyError, match="no ε: the run did not follow its plan") as refused:
        made.epsilon()
    assert reason in str(refused.value)
    assert any(reason in departure for departure in made.departures)


@settings(max_examples=60, deadline=None)
@given(
    good=st.integers(0, 5),
    change=st.sampled_from(
        [
            {"sampler": PoissonSampling(0.041)},
            {"sampler": FullParticipation()},
            {"clip_norm": 1.51},
            {"noise_std": 1.99},
            {"noise_std": -2.0},
        ]
    ),
    more=st.integers(0, 5),
)
def test_one_step_that_departs_is_enough_wherever_it_stands(good, change, more):
    done = {"sampler": RECORDS.sampler, "clip_norm": 1.5, "noise_std": 2.0}
    made = PrivacyLedger(RECORDS)
    made.record(1, [followed(RECORDS, good, **done)])
    assert made.departures == []
    made.record(2, [followed(RECORDS, 1, **done | change)])
    made.record(3, [followed(RECORDS, more, **done)])
    for kept in (made, PrivacyLedger(RECORDS, made.journal)):
        assert kept.departures
        with pytest.raises(PrivacyError, match="did not follow its plan"):
            kept.epsilon()


def test_more_noise_than_planned_is_no_departure_and_gains_nothing():
    assert ledger(noise_std=20.0).epsilon() == SITES.epsilon(1)


SHARED = of_votes(noise=DiscreteGaussianNoise(11.3, 100))


@pytest.mark.parametrize("plan", [VOTES, SHARED])
def test_noise_in_shares_is_that_of_the_shares_that_came(plan):
    """Sized for 100 sites: more of them are more noise, and fewer are less."""
    made = PrivacyLedger(plan, Journal())
    for round, sites in enumerate((100, 120), start=1):
        made.record(round, [followed(plan, shares=sites, noise_std=11.3 * math.sqrt(sites / 100))])
    again = PrivacyLedger(plan, made.journal)
    assert [entry.shares for entry in again.entries] == [100, 120]
    assert again.epsilon() == plan.epsilon(2)
    again.record(3, [followed(plan, shares=99, noise_std=11.3 * math.sqrt(0.99))])
    with pytest.raises(PrivacyError, match=r"its noise was 11\.2434 norms in 99 shares where 11\.3 was planned"):
        again.epsilon()


def test_as_much_noise_in_more_and_smaller_shares_is_a_departure_where_that_matters():
    assert ledger(VOTES, clip_norm=8, shares=200, noise_std=11.3).departures == []
    [reason] = ledger(SHARED, clip_norm=8, shares=200, noise_std=11.3).departures
    assert reason == "its shares of noise were 0.799031 norms each where 1.13 was planned"
    [reason] = ledger(of_votes(noise=GaussianNoise(11.3)), clip_norm=8, shares=200, noise_std=11.3).departures
    assert reason == "its gaussian noise was in shares, where only integer noise may be"
    assert ledger(SHARED, clip_norm=8, shares=None, noise_std=11.3).departures == []  # all of it in one place


def test_a_norm_that_adapts_may_wander():
    made = ledger(ADAPTIVE, parameters=ADAPTIVE.parameters())
    made.record(2, [spent(plan=ADAPTIVE, clip_norm=0.7, parameters=ADAPTIVE.parameters())])
    assert made.epsilon() == ADAPTIVE.epsilon(2)


def test_a_tree_that_was_followed():
    made = ledger(TREE, sampler=OncePerTree(3), parameters=TREE.parameters())
    made.record(2, [spent(6, TREE, sampler=OncePerTree(3), parameters=TREE.parameters())])
    assert made.epsilon() == TREE.epsilon(7)


@pytest.mark.parametrize(
    ("plan", "done"),
    [
        (SITES, {}),
        (SITES, {"steps": 3}),
        (SITES, {"noise_std": 1.0}),
        (ADAPTIVE, {"parameters": {"count_noise": 21.0}}),
        (TREE, {"sampler": OncePerTree(3), "parameters": {"restart_every": 4}}),
    ],
)
def test_a_ledger_goes_on_from_its_journal(tmp_path, plan, done):
    made = ledger(plan, Journal(tmp_path / "a" / "ledger"), **done)
    again = PrivacyLedger(plan, Journal(tmp_path / "a" / "ledger"))
    assert again.entries == made.entries and again.departures == made.departures
    again.record(2, [spent()])
    assert again.steps == made.steps + 1
    third = PrivacyLedger(plan, Journal(tmp_path / "a" / "ledger"))
    assert third.entries == again.entries and third.repeated == ()


def test_a_ledger_of_another_plan_is_refused(tmp_path):
    journal = ledger(journal=Journal(tmp_path / "ledger"), steps=1).journal
    with pytest.raises(PrivacyError, match="begun under another privacy plan"):
        PrivacyLedger(replace(SITES, steps=12), journal)


def test_a_ledger_that_was_edited_by_hand_is_refused(tmp_path):
    """Fewer steps, and a chain that fits them: but where the run was saved the digest is another."""
    made = ledger(journal=Journal(tmp_path / "ledger"), steps=3)
    saved = made.journal.anchor
    (tmp_path / "ledger").unlink()
    forged = ledger(journal=Journal(tmp_path / "ledger"), steps=1)
    assert forged.epsilon().value < made.epsilon().value
    with pytest.raises(PrivacyError, match="ledger: the privacy ledger is not the one that was written"):
        forged.journal.check(saved)


@pytest.mark.parametrize("line", [{}, {"plan": 1}, {"round": 1, "spent": []}])
def test_what_is_no_ledger_is_refused(line):
    journal = Journal()
    journal.append(line)
    journal.append({"round": 1, "steps": 3})
    with pytest.raises(PrivacyError, match="not a privacy"):
        PrivacyLedger(SITES, journal)


@pytest.mark.parametrize("steps", [-1, 1.5])
def test_steps_that_cannot_be_are_refused(steps):
    with pytest.raises(PrivacyError, match="cannot be entered"):
        spent(steps)


def test_equal_steps_in_a_row_are_one_entry():
    made = ledger(steps=2)
    made.record(2, [spent(0), spent(noise_std=12.0), spent()])
    assert [entry.steps for entry in made.entries] == [2, 1, 1]
    assert replace(made.entries[1], noise_std=11.3) == made.entries[2]


# ---- rounds that were done again -------------------------------------------------------------------------------------


def rounds(plan, *numbers, steps=1, **done):
    made = PrivacyLedger(plan)
    for number in numbers:
        made.record(number, [spent(steps, plan, **done)])
    return made


@pytest.mark.parametrize(
    ("numbers", "steps", "repeated"),
    [
        ([1, 2, 3], 1, ()),
        ([1, 2, 2, 3], 1, (2,)),
        ([1, 2, 2, 2, 3], 1, (2, 2)),
        ([1, 2, 3, 2, 3], 1, (3, 2)),  # the newest checkpoint was damaged
        ([1, 2, 3, 2, 3, 3], 1, (3, 2, 3)),
        ([2, 5, 5, 9], 1, (2,)),  # a site that is not in every round
        ([1, 2, 2], 3, (4, 5, 6)),
    ],
)
def test_steps_that_were_done_again(numbers, steps, repeated):
    made = rounds(SITES, *numbers, steps=steps)
    assert made.repeated == repeated
    assert made.steps == steps * len(numbers)
    assert made.epsilon() == SITES.epsilon(made.steps)  # every one of them is a release


def test_a_round_that_was_done_again_is_no_departure_but_one_more_is():
    again = rounds(SITES, *range(1, 12), 11, 11)
    assert again.departures == [] and again.epsilon() == SITES.epsilon(13)
    assert rounds(SITES, *range(1, 13), 12).departures == ["it took 12 steps where 11 were planned"]


def test_one_attempt_that_departs_is_enough():
    made = rounds(SITES, 1)
    made.record(2, [spent(noise_std=1.0)])
    made.record(2, [spent()])
    assert made.departures == ["its noise was 1 norms where 11.3 was planned"]


@pytest.mark.parametrize("sampler", [OncePerTree(3), FullParticipation()])
def test_of_a_tree_all_nodes_that_the_step_completes_count_again(sampler):
    plan = replace(TREE, sampler=sampler)
    done = {"sampler": sampler, "parameters": {"restart_every": 4}}
    whole = [rounds(plan, *numbers, **done).epsilon().value for numbers in ([1, 2, 3, 4], [1, 1, 2, 3, 4])]
    last = rounds(plan, 1, 2, 3, 4, 4, **done).epsilon().value  # three nodes, where the first completes one
    assert whole[0] < whole[1] < last

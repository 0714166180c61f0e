from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murmura.errors import PrivacyError
from murmura.privacy import (
    AdaptiveSiteClipping,
    FixedSizeSampling,
    FullParticipation,
    OncePerTree,
    PoissonSampling,
    TreeNoise,
)
from murmura.privacy.ledger import PrivacyLedger, Spent
from tests.privacy.plans import RECORDS, SITES, of_records, of_sites

DONE = {"sampler": FullParticipation(), "clip_norm": 0.5, "noise_std": 11.3}
ADAPTIVE = of_sites(clipping=AdaptiveSiteClipping(0.5, 0.5, 0.2, count_noise=20.0))
TREE = of_sites(noise=TreeNoise(11.3, 4), sampler=OncePerTree(3))


def ledger(plan=SITES, **done):
    made = PrivacyLedger(plan)
    if done:
        made.record(**{"steps": 1} | DONE | done)
    return made


def test_epsilon_is_that_of_the_steps_that_were_done():
    done = ledger()
    assert done.epsilon().value == 0
    for step in range(1, 12):
        done.record(1, **DONE)
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
        (ledger(noise_std=0.0), "its noise was 0 norms where 11.3 was planned"),
        (ledger(noise_std=math.nan), "its noise was nan norms where 11.3 was planned"),
        (ledger(steps=12), "it took 12 steps where 11 were planned"),
        (ledger(restart_every=4), "its trees spanned 4 steps where None were planned"),
        (ledger(ADAPTIVE), "its count noise was None where 20 was planned"),
        (ledger(ADAPTIVE, count_noise=19.0), "its count noise was 19.0 where 20 was planned"),
        (ledger(TREE, sampler=OncePerTree(3)), "its trees spanned None steps where 4 were planned"),
        (
            ledger(TREE, restart_every=4),
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
        made.record(1, **DONE)
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
    made.record(good, **done)
    assert made.departures == []
    made.record(1, **done | change)
    made.record(more, **done)
    for kept in (made, PrivacyLedger.from_json(made.to_json())):
        assert kept.departures
        with pytest.raises(PrivacyError, match="did not follow its plan"):
            kept.epsilon()


def test_more_noise_than_planned_is_no_departure_and_gains_nothing():
    assert ledger(noise_std=20.0).epsilon() == SITES.epsilon(1)


def test_a_norm_that_adapts_may_wander():
    made = ledger(ADAPTIVE, count_noise=20.0)
    made.record(1, **DONE | {"clip_norm": 0.7}, count_noise=20.0)
    assert made.epsilon() == ADAPTIVE.epsilon(2)


def test_a_tree_that_was_followed():
    made = ledger(TREE, sampler=OncePerTree(3), restart_every=4)
    made.record(6, OncePerTree(3), 0.5, 11.3, restart_every=4)
    assert made.epsilon() == TREE.epsilon(7)


@pytest.mark.parametrize(
    "made",
    [
        ledger(),
        ledger(steps=3),
        ledger(noise_std=1.0),
        ledger(ADAPTIVE, count_noise=21.0),
        ledger(TREE, sampler=OncePerTree(3), restart_every=4),
    ],
)
def test_a_ledger_survives_json(made):
    again = PrivacyLedger.from_json(made.to_json())
    assert again.plan == made.plan and again.entries == made.entries
    assert again.departures == made.departures


def test_a_sampler_may_come_as_json_holds_it():
    made = PrivacyLedger(RECORDS)
    made.record(1, {"kind": "poisson", "rate": 0.04}, 1.5, 2.0)
    assert made.departures == []


@pytest.mark.parametrize("steps", [-1, 1.5])
def test_steps_that_cannot_be_are_refused(steps):
    with pytest.raises(PrivacyError, match="cannot be entered"):
        ledger(steps=steps)


@pytest.mark.parametrize("text", ["", "[]", "{}", ledger(steps=1).to_json().replace('"clip_norm"', '"norm"')])
def test_what_is_no_ledger_is_refused(text):
    with pytest.raises(PrivacyError, match="not a privacy ledger"):
        PrivacyLedger.from_json(text)


def test_equal_steps_in_a_row_are_one_entry():
    made = ledger(steps=2)
    made.record(0, **DONE)
    made.record(1, **DONE | {"noise_std": 12.0})
    made.record(1, **DONE)
    assert [entry.steps for entry in made.entries] == [2, 1, 1]
    assert replace(made.entries[1], noise_std=11.3) == made.entries[2]

"""Arms whose records are not those of the others."""

from dataclasses import replace

import pytest

from murmura.compare.alike import on_other_records
from murmura.runs.schema import Attack, MeasuredOn, RecordSet, SiteReport
from tests.compare.arms import result

PUBLIC = RecordSet(6, "a")


def with_records(arm, heldout=PUBLIC, used=(8, 8), members=30):
    """The arm, each of whose runs had these records."""
    measured = MeasuredOn(heldout, RecordSet(3, "b"), RecordSet(0, "c"))
    sites = tuple(SiteReport(f"site-{k}", 9, own, 0, 0) for k, own in enumerate(used))
    runs = {}
    for seed, run in arm.runs.items():
        last = replace(run.last, attacks={"attack": Attack("loss", members, 3)})
        runs[seed] = replace(run, measured=measured, sites=sites, rounds=(*run.rounds[:-1], last))
    return replace(arm, runs=runs)


@pytest.fixture
def arms(tmp_path):
    return [result(tmp_path, name, [2.0, 2.1]) for name in ("FedAvg", "noisy", "pooled")]


def test_of_arms_with_the_same_records_nothing_is_told(arms):
    assert on_other_records([*map(with_records, arms)]) == []
    assert on_other_records(arms) == []  # runs that do not say


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"heldout": RecordSet(8, "d")}, "measured on the same records: FedAvg on 6, noisy on 8."),
        ({"heldout": RecordSet(6, "d")}, "measured on the same records: FedAvg on 6, noisy on as many others."),
        ({"members": 24}, "attacked on the same records: FedAvg on 30, noisy on 24."),
        ({"used": (4, 4)}, "trained on the same records: FedAvg on 16, noisy on 8."),
    ],
)
def test_who_had_others_is_told_with_how_many(arms, other, told):
    first, noisy, pooled = arms
    [sentence] = on_other_records([with_records(first), with_records(noisy, **other), with_records(pooled)])
    assert told in sentence and "pooled" not in sentence


@pytest.mark.parametrize("at", [0, 1])
def test_an_arm_that_does_not_say_hides_no_difference_between_the_others(arms, at):
    told = [with_records(arms[0]), with_records(arms[1], used=(4, 4))]
    silent = with_records(arms[2], used=(None, None))
    [sentence] = on_other_records([*told[:at], silent, *told[at:]])
    assert "trained on the same records: FedAvg on 16, noisy on 8." in sentence


def test_a_seed_of_which_nothing_is_told_is_not_counted(arms):
    other = with_records(arms[1], used=(4, 4))
    other.runs[1] = with_records(arms[1], used=(None, None)).runs[1]
    [sentence] = on_other_records([with_records(arms[0]), other])
    assert "FedAvg on 16, noisy on 8." in sentence


def test_what_an_epsilon_keeps_secret_is_not_compared(arms):
    hidden = with_records(arms[1], heldout=RecordSet(6, None), used=(None, None))
    assert on_other_records([with_records(arms[0]), hidden]) == []

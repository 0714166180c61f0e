import math
from dataclasses import replace

import pytest

from murmura.compare.choice import broken_limits, choose
from murmura.compare.config import Limits
from murmura.compare.outcome import Tried, frontier
from tests.compare.arms import audit, audited, labels, result, secret
from tests.privacy.plans import RECORDS


@pytest.fixture
def arms(tmp_path):
    return [
        result(tmp_path, "FedAvg", [2.00, 2.02, 2.01], [0.95, 0.96, 0.95]),
        result(tmp_path, "mixed", [2.03, 2.051, 2.04], [0.80, 0.81, 0.80]),
        result(tmp_path, "near", [2.02, 2.07, 2.05], [0.70, 0.711, 0.70]),
        result(tmp_path, "private", [2.50, 2.51, 2.52], [0.51, 0.50, 0.52], epsilon=7.9),
    ]


def chosen(arms, **limits):
    return choose(arms, Limits(**limits), "instruction")


def test_without_limits_the_best_utility_is_taken(arms):
    found = chosen(arms)
    assert found.arm == "FedAvg"
    assert found.sentences[0].startswith("Best: FedAvg, held-out loss 2.010 (1.985 to 2.035), leakage 0.953")
    assert "no ε guaranteed, 13.5 MB travel" in found.sentences[0]


def test_of_arms_that_are_exactly_as_good_what_leaks_or_sends_least_is_taken(tmp_path):
    first = result(tmp_path, "first", [2.1, 2.0, 2.2], [0.9, 0.9, 0.9])
    # The same values in another order, of which a sum of floats may make another mean.
    leaks_less = result(tmp_path, "leaks less", [2.2, 2.1, 2.0], [0.7, 0.7, 0.7])
    sends_less = replace(leaks_less, arm="sends less", runs={s: _sending(1, run) for s, run in leaks_less.runs.items()})
    unknown = result(tmp_path, "not attacked", [2.1, 2.0, 2.2])
    worse = result(tmp_path, "worse", [2.3, 2.2, 2.4], [0.5, 0.5, 0.5])
    found = chosen([first, leaks_less, sends_less, worse])
    assert found.arm == "sends less"
    by = "the least leakage, then the fewest bytes, then the order in the file"
    assert found.sentences[1] == f"Exactly as good: first and leaks less. What decided: {by}."
    assert not any("first (difference" in told for told in found.sentences)
    assert chosen([first, leaks_less]).arm == "leaks less"
    assert not any("Exactly" in told for told in chosen([leaks_less, worse]).sentences)
    below = result(tmp_path, "below", [2.1, 2.0, 2.2], [0.4, 0.4, 0.4])  # which is no merit
    none = result(tmp_path, "none", [2.1, 2.0, 2.2], [0.5, 0.5, 0.5])
    assert [chosen(both).arm for both in ([below, none], [none, below])] == ["below", "none"]
    # Where not all were attacked, or not alike, it is not known which leaks least.
    some = replace(unknown, arm="one seed attacked", runs={**unknown.runs, 0: first.runs[0]})
    by_audit = audited(first, *[audit(model={"RMIA": 0.9})] * 3)
    otherwise = audited(leaks_less, *[audit(model={"loss": 0.6})] * 3)
    for other, than in ((unknown, leaks_less), (some, leaks_less), (by_audit, leaks_less), (by_audit, otherwise)):
        found = chosen([other, than])
        assert found.arm == other.arm
        assert "What decided: the fewest bytes, then the order in the file." in found.sentences[1]
    less = audited(leaks_less, *[audit(model={"RMIA": 0.8})] * 3)
    assert chosen([by_audit, less]).arm == "leaks less"


def _sending(count, run):
    return replace(run, totals={**run.totals, "bytes_up": count, "bytes_down": count})


def test_what_is_better_but_breaks_a_limit_is_named_with_how_much_better_it_is(arms):
    found = chosen(arms, max_leakage=0.85)
    assert found.arm == "mixed"
    assert "FedAvg is better by 0.030 (0.029 to 0.032), but its leakage is 0.953." in found.sentences


def test_what_seeds_cannot_tell_apart_is_not_called_worse(arms):
    told = " ".join(chosen(arms, max_leakage=0.85).sentences)
    assert "Not told apart from it: near (difference +0.006" in told and "leaks less by 0.100" in told
    assert "Worse than it: private." in told


def test_one_seed_in_common_tells_nothing_apart(tmp_path):
    """However far they are apart: to say that the two are not told apart would read as if they were alike."""
    told = " ".join(chosen([result(tmp_path, "a", [2.0], [0.5]), result(tmp_path, "b", [9.0], [0.5])]).sentences)
    assert "Not compared with it, since one seed alone is in common: b (difference +7.000)." in told
    assert "Not told apart" not in told and "corrected" not in told


def test_an_epsilon_is_asked_for(arms):
    assert chosen(arms, max_epsilon=8).arm == "private"
    none = chosen(arms, max_epsilon=2)
    assert none.arm is None
    assert "No arm keeps ε at most 2" in none.sentences[0] and "private: its ε is 7.900" in none.sentences[0]
    assert "FedAvg: it guarantees no ε" in none.sentences[0]


PRIVACY = {"epsilon": 7.9, "delta": 1e-5, "unit": "record", "adjacency": "zero-out", "accountant": "pld", "plan": "-"}


def test_an_epsilon_is_told_with_what_it_is_for(tmp_path):
    """A limit is one number, and an ε is none without δ and unit."""
    of_sites = PRIVACY | {"epsilon": 3.0, "unit": "site", "delta": 1e-6}
    record = result(tmp_path, "record", [2.0, 2.01], epsilon=7.9, privacy=PRIVACY | {"caveat": "It began elsewhere."})
    site = result(tmp_path, "site", [2.5, 2.51], epsilon=3.0, privacy=of_sites)
    first, *more = chosen([record, site], max_epsilon=8).sentences
    assert "ε is 7.900 at δ = 1e-05, for one record (zero-out), " in first
    assert "Of its ε: It began elsewhere." in more
    assert (
        "The limit is held against ε that are on no common scale: record’s is at δ = 1e-05, for one record (zero-out) "
        "and site’s is at δ = 1e-06, for one site (zero-out)."
    ) in more
    [none] = chosen([record, site], max_epsilon=2).sentences
    assert "site: its ε is 3.000 at δ = 1e-06, for one site (zero-out)" in none
    assert not any("Of its ε" in told or "scale" in told for told in chosen([record, record]).sentences)


def test_an_epsilon_at_a_delta_of_no_use_keeps_no_limit(tmp_path):
    said = replace(RECORDS, delta=0.9).caveat([40])
    useless = result(tmp_path, "useless", [2.0], epsilon=7.9, privacy=PRIVACY | {"delta": 0.9, "caveat": said})
    assert broken_limits(useless, Limits(max_epsilon=8)) == ["its ε guarantees nothing, since δ is of no use"]
    assert broken_limits(useless, Limits()) == []


def test_bytes_are_of_a_run_up_and_down(arms):
    assert chosen(arms, max_bytes="13.5MB").arm == "FedAvg"
    assert "13.5 MB travel" in chosen(arms, max_bytes="13.4MB").sentences[0]


def test_a_limit_on_bytes_that_an_expectation_keeps_is_not_said_to_be_kept_for_sure(tmp_path):
    counted, expected = result(tmp_path, "counted", [2.0, 2.1]), secret(result(tmp_path, "expected", [2.0, 2.1]))
    doubt = "since ε counts on nobody knowing whom rounds asked: a run may send more."
    found = chosen([expected], max_bytes="13.6MB").sentences
    assert "13.5 MB travel (expected)." in found[0] and any(doubt in told for told in found)
    assert not any(doubt in told for told in chosen([expected]).sentences)
    plain = " ".join(chosen([counted], max_bytes="13.6MB").sentences)
    assert "13.5 MB travel." in plain and doubt not in plain
    assert broken_limits(expected, Limits(max_bytes="13.4MB")) == ["13.5 MB travel (expected)"]


def test_what_exceeds_a_limit_is_written_as_more_than_it(tmp_path):
    close = result(tmp_path, "close", [2.0, 2.0], [0.6002, 0.6004])
    assert broken_limits(close, Limits(max_leakage=0.6)) == ["its leakage is 0.6003"]
    assert broken_limits(close, Limits(max_bytes="13.49MB")) == ["13,500,000 bytes travel"]


def test_a_leakage_that_some_seeds_did_not_measure_keeps_no_limit(tmp_path):
    some = result(tmp_path, "some", [2.0, 2.0, 2.1], [0.5, None, None])
    assert broken_limits(some, Limits(max_leakage=0.6)) == [
        "its leakage was measured with 1 of 3 seeds (evaluation.attacks, or audit the others)"
    ]


def test_what_leaks_is_by_the_attack_that_limits_are_held_against(arms):
    """Tables compare by one attack on all, which another arm may have chosen."""
    weak = {"attack": "loss difference"}
    for arm in arms:
        for run in arm.runs.values():
            told = run.last.attacks["attack"]
            told.each["loss difference"] = (0.5, 0.45, 0.55)
    found = chosen([replace(arm, attacks=weak) for arm in arms])
    assert arms[0].leakage.mean == pytest.approx(0.953, abs=1e-3)
    assert replace(arms[0], attacks=weak).leakage.mean == 0.5 and "leakage 0.953" in found.sentences[0]


def test_what_leaks_is_told_with_the_wider_interval_and_by_an_audit_where_that_alone_measured_it(tmp_path):
    """Of three seeds that came to much the same, that over seeds is narrower than what a few records can tell."""
    seeds = result(tmp_path / "seeds", "seeds", [2.0, 2.1, 2.2], [0.55, 0.56, 0.57])
    assert "leakage 0.560 (0.510 to 0.610), " in chosen([seeds]).sentences[0]
    found = audit(rounds={"RMIA": 0.55}, model={"RMIA": 0.52})
    told = chosen([audited(result(tmp_path / "blind", "blind", [2.0, 2.0]), found, found)], max_leakage=0.6).sentences
    assert "leakage 0.550 (0.500 to 0.600) by an audit, " in told[0]


def test_that_p_is_corrected_for_more_than_in_the_table_is_said(arms):
    told = " ".join(chosen(arms, max_leakage=0.85).sentences)
    assert "Of these p is corrected for all pairs of arms, since the best was picked; intervals are not." in told


def test_less_than_nothing_is_not_called_less_leakage(tmp_path):
    first = result(tmp_path, "first", [2.0, 2.01, 2.02], [0.480, 0.481, 0.480])
    second = result(tmp_path, "second", [2.01, 2.02, 2.02], [0.400, 0.4, 0.401])
    told = " ".join(chosen([first, second]).sentences)
    assert "Not told apart from it: second" in told and "leaks less" not in told
    third = result(tmp_path, "third", [2.0, 2.01, 2.02], [0.550, 0.551, 0.549])
    assert "leaks less by 0.050 (0.048 to 0.052)" in " ".join(chosen([third, second]).sentences)


def test_what_was_not_measured_keeps_no_limit(tmp_path):
    blind = result(tmp_path, "blind", [2.0, 2.0])
    assert broken_limits(blind, Limits(max_leakage=0.9)) == ["its leakage was not measured (evaluation.attacks)"]
    assert broken_limits(blind, Limits()) == []


def test_doubts_are_told(tmp_path):
    alone = result(tmp_path, "alone", [2.0], [0.58], tried=(Tried(1e-3, 2.0), Tried(1e-4, 3.0)))
    told = " ".join(chosen([alone], max_leakage=0.6).sentences)
    assert "One seed cannot show" in told and "reaches to 0.630" in told and "Its rate, 0.001, is the last" in told
    found = replace(audit(model={"error zone": 0.55}), unlike=True)
    apart = chosen([audited(result(tmp_path, "apart", [2.0, 2.0], [0.5, 0.5]), found, found)], max_leakage=0.6)
    assert "It may leak more than what was measured, or less: the loss alone told" in " ".join(apart.sentences)
    inner = result(tmp_path, "inner", [2.0, 2.0], [0.5, 0.5], tried=tuple(Tried(r, r) for r in (1e-4, 1e-3, 1e-2)))
    assert len(chosen([inner], max_leakage=0.6).sentences) == 1


def test_arms_about_other_records_are_not_chosen(arms, tmp_path):
    assert chosen([*arms, labels(tmp_path, "classifier")], max_leakage=0.85).arm == "mixed"


def test_an_arm_that_came_to_nothing_with_a_seed_is_not_chosen_for_the_others(tmp_path):
    """The monitor stops a run whose loss is not finite, so one that diverged looks like any that failed."""
    steady = result(tmp_path, "steady", [2.0, 2.1, 2.2])
    for losses in ([1.0, None, 1.1], [1.0, math.inf, 1.1]):
        brittle = result(tmp_path / repr(losses), "brittle", losses)
        found = chosen([steady, brittle])
        assert found.arm == "steady" and brittle.lacking == [1]
        assert any("brittle" in told and "with seed 1 it came to no held-out loss" in told for told in found.sentences)
        assert frontier([steady, brittle], "instruction") == []


def test_where_no_arm_was_measured_each_is_named(tmp_path):
    found = chosen([result(tmp_path, "a", [math.nan]), result(tmp_path, "b", [math.nan, math.nan])])
    assert found.sentences == (
        "No arm can be chosen. a: with seed 0 it came to no held-out loss; b: with seeds 0 and 1 it came to no "
        "held-out loss.",
    )


def test_an_arm_that_is_ahead_on_the_seeds_that_both_have_says_why_it_was_not_taken(tmp_path):
    """Its own mean, over fewer seeds, is the worse one."""
    whole = result(tmp_path, "whole", [1.0, 1.01, 0.0])
    part = result(tmp_path, "part", [0.9, 0.911, None])
    assert chosen([whole, part]).arm == "whole"

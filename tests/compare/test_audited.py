from dataclasses import replace

import pytest

from murmura.compare.audited import audited as found_in
from murmura.compare.audited import told
from murmura.compare.choice import broken_limits, choose
from murmura.compare.comparison import Outcome
from murmura.compare.config import Limits
from murmura.compare.view import answers
from murmura.report.in_short import LEAKS
from murmura.report.standing import untried
from tests.compare.arms import audit, audited, result


@pytest.fixture
def arm(tmp_path):
    return result(tmp_path, "FedAvg", [2.0, 2.0, 2.0], [0.6, 0.6, 0.6])


def test_only_the_strongest_attack_of_each_audit_counts(arm):
    made = audit(model={"RMIA": 0.8, "error zone": 0.7}, uploads={"FedMIA": 0.9})
    found = found_in(list(audited(arm, made, made).runs.values()))
    assert [(one.target, one.auc, one.by, one.runs) for one in found] == [
        ("model", 0.8, ("RMIA",), 2),
        ("uploads", 0.9, ("FedMIA",), 2),
    ]


def runs_of(*arms):
    return {one.arm: list(one.runs.values()) for one in arms}


def test_what_gives_most_away_is_told_of_each_arm_with_the_wider_interval(arm, tmp_path):
    both = audit(model={"RMIA": 0.8}, uploads={"FedMIA": 0.9}), audit(model={"RMIA": 0.8}, uploads={"RMIA": 0.92})
    other = audited(result(tmp_path, "mixed", [2.1], [0.5]), audit(adapters={"RMIA": 0.55}))
    # Over the two seeds 0.91 ± 12.706 · 0.01, and no AUC is above 1.
    first = "91 (95 %: 78 to 100) for FedAvg (from single uploads, by FedMIA and RMIA, in 2 of 3 runs)"
    second = "55 (95 %: 50 to 60) for mixed (from each site's own adapter, by RMIA, in 1 of 1 runs)"
    lead = "Audits, which use all that a run has kept, found most, of 100 pairs:"
    kind = "For {}, what kind of record a site has counts, too."
    assert told(runs_of(audited(arm, *both), other)) == (f"{lead} {first}; {second}.", kind.format("FedAvg and mixed"))
    assert told(runs_of(arm, other))[1:] == ("Not audited: FedAvg.", kind.format("mixed"))
    assert len(told(runs_of(audited(arm, audit(model={"RMIA": 0.9}, uploads={"RMIA": 0.8}))))) == 1
    assert told(runs_of(arm)) == ()


def test_of_so_few_records_it_says_little(arm, tmp_path):
    other = audited(result(tmp_path, "mixed", [2.1], [0.5]), audit(members=6, model={"RMIA": 0.9}))
    *_, little = told(runs_of(audited(arm, audit(model={"RMIA": 0.8})), other))
    assert little == "So few records were audited for mixed that it says little."
    assert "little" not in " ".join(told(runs_of(audited(arm, audit(model={"RMIA": 0.8})))))


def test_no_epsilon_covers_them(tmp_path):
    private = result(tmp_path, "DP", [2.0], [0.5])
    [run] = private.runs.values()
    last = replace(run.rounds[-1], privacy={"epsilon": 8.0, "delta": 1e-5, "unit": "record"})
    run = replace(run, rounds=(*run.rounds[:-1], last), audit=audit(model={"RMIA": 0.6}))
    assert "No ε covers what audits find" in told({"DP": [run]})[-1]


def shown(one):
    choice = choose([one], Limits(), "instruction")
    return answers(Outcome("x", [one], one.arm, "instruction", [0], Limits(), choice, [])).answers[LEAKS]


def test_it_stands_on_the_first_screen_also_where_runs_were_not_attacked(arm, tmp_path):
    made = audit(model={"RMIA": 0.8})
    assert shown(audited(arm, made))[-1] == told(runs_of(audited(arm, made)))[0]
    blind = audited(result(tmp_path, "blind", [2.0]), made)
    [run] = blind.runs.values()
    last = replace(run.rounds[-1], values={"heldout_loss": 2.0})
    blind = replace(blind, runs={0: replace(run, rounds=(*run.rounds[:-1], last))})
    assert shown(blind) == told(runs_of(blind))  # and not that no attack was carried out


def test_all_is_tried_where_every_run_kept_its_rounds_and_was_audited(arm):
    def kept(run, keep=True):
        return replace(run, config=f"[audit]\nkeep = {str(keep).lower()}\n", audit=audit(model={"RMIA": 0.8}))

    first, second, _ = arm.runs.values()
    assert not untried([kept(first), kept(second)])
    assert untried([kept(first), kept(second, False)]) and untried([kept(first), second])


def test_a_limit_is_held_against_audits_of_models_and_not_of_uploads(arm):
    limits = Limits(max_leakage=0.7)
    assert broken_limits(arm, limits) == []
    assert broken_limits(audited(arm, audit(model={"RMIA": 0.65}, uploads={"FedMIA": 0.9})), limits) == []
    assert broken_limits(audited(arm, audit(model={"RMIA": 0.8})), limits) == ["its leakage is 0.800 (by an audit)"]


def test_how_sure_a_limit_is_kept_is_told_by_audits_too(arm):
    assert arm.leakage_at_most == pytest.approx(0.65)
    found = audited(arm, audit(model={"RMIA": 0.66}))
    assert found.leakage_at_most == pytest.approx(0.71)
    told = " ".join(choose([found], Limits(max_leakage=0.67), "instruction").sentences)
    assert "the 95 % interval of an audit reaches to 0.710" in told
    told = " ".join(choose([arm], Limits(max_leakage=0.62), "instruction").sentences)
    assert "the 95 % interval reaches to 0.650" in told


def test_an_arm_that_was_audited_alone_keeps_a_limit(tmp_path):
    """Its leakage was measured, if not within its runs."""
    made = audit(model={"RMIA": 0.52})
    blind = audited(result(tmp_path, "blind", [2.0, 2.0]), made, made)
    assert broken_limits(blind, Limits(max_leakage=0.6)) == []
    assert broken_limits(blind, Limits(max_leakage=0.5)) == ["its leakage is 0.520 (by an audit)"]


def test_an_audit_of_some_seeds_alone_keeps_no_limit(tmp_path):
    """Neither by itself nor beside attacks on the same seeds; on others it does."""
    made, limit = audit(model={"RMIA": 0.55}), Limits(max_leakage=0.6)
    never = audited(result(tmp_path / "never", "N", [2.0, 2.0, 2.0]), made)
    once = result(tmp_path / "once", "O", [2.0, 2.0, 2.0], [0.55, 0.55, 0.55])
    only = {seed: run if seed == 0 else never.runs[seed] for seed, run in once.runs.items()}
    assert broken_limits(never, limit) == [
        "its leakage was measured with 1 of 3 seeds (evaluation.attacks, or audit the others)"
    ]
    assert broken_limits(audited(replace(once, runs=only), made), limit) == broken_limits(never, limit)
    assert broken_limits(audited(once, made), limit) == []
    assert choose([never], limit, "instruction").arm is None


def test_that_the_choice_was_not_audited_where_others_were_is_a_doubt(tmp_path):
    plain = result(tmp_path / "plain", "plain", [2.2, 2.2, 2.2], [0.55, 0.55, 0.55])
    other = result(tmp_path / "other", "other", [2.0, 2.0, 2.0], [0.55, 0.55, 0.55])
    found = choose([plain, audited(other, audit(model={"RMIA": 0.7}))], Limits(max_leakage=0.61), "instruction")
    doubt = "It was not audited, and others were: an audit may find more."
    assert found.arm == "plain" and doubt in found.sentences
    assert doubt not in choose([plain, other], Limits(max_leakage=0.61), "instruction").sentences
    once, thrice = audit(model={"RMIA": 0.5}), [audit(model={"RMIA": 0.7})] * 3
    found = choose([audited(plain, once), audited(other, *thrice)], Limits(max_leakage=0.61), "instruction")
    assert "It was audited with 1 seed, and others with 3: an audit may find more." in found.sentences


def test_that_the_choice_was_audited_by_fewer_attacks_is_a_doubt(tmp_path):
    """As where others alone have kept their rounds; what was tried on uploads is beside the limit."""
    kept = audit(model={"loss trajectory": 0.63, "error zone": 0.56}, uploads={"FedMIA": 0.9})
    last, own = audit(model={"error zone": 0.58}, uploads={"RMIA": 0.9}), audit(adapters={"error zone": 0.58})
    doubt = "It was audited by fewer attacks than others: more may be found."
    better, worse = (result(tmp_path, arm, [loss], [0.55]) for arm, loss in (("A", 2.0), ("B", 2.2)))

    def chosen(first, second, **limits):
        found = choose([audited(better, first), audited(worse, second)], Limits(**limits), "instruction")
        return found.arm, doubt in found.sentences

    assert chosen(kept, last, max_leakage=0.6) == chosen(kept, own, max_leakage=0.6) == ("B", True)
    assert chosen(kept, last, max_leakage=0.7) == chosen(last, kept) == ("A", False)
    alike = audit(model={"error zone": 0.63})
    assert chosen(alike, last, max_leakage=0.6) == chosen(alike, own, max_leakage=0.6) == ("B", False)

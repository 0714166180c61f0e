from dataclasses import replace

import pytest

from murmura.compare.audited import strongest, told
from murmura.compare.choice import broken_limits, choose
from murmura.compare.comparison import Outcome
from murmura.compare.config import Limits
from murmura.compare.view import answers
from murmura.report.in_short import LEAKS
from murmura.runs.audit import Audit, AuditedModel, Histogram, Separation
from tests.compare.arms import result


def audit(**targets):
    """What audits found of what is attacked: each attack's AUC, of which the first is the strongest."""
    models = []
    for target, aucs in targets.items():
        attacks = tuple(Separation(name, auc, auc - 0.05, auc + 0.05, None, None, None) for name, auc in aucs.items())
        models.append(AuditedModel(target, 3, 2, attacks[0].attack, attacks, Histogram((0.0, 1.0), (3,), (2,))))
    return Audit("0.1", "now", tuple(models), (), (), (), None, (), ())


def audited(one, *audits):
    """The arm with audits of its first runs."""
    runs = {seed: replace(run, audit=made) for (seed, run), made in zip(one.runs.items(), audits, strict=False)}
    return replace(one, runs={**one.runs, **runs})


@pytest.fixture
def arm(tmp_path):
    return result(tmp_path, "FedAvg", [2.0, 2.0, 2.0], [0.6, 0.6, 0.6])


def test_only_the_strongest_attack_of_each_audit_counts(arm):
    made = audit(model={"RMIA": 0.8, "error zone": 0.7}, uploads={"FedMIA": 0.9})
    found = strongest(audited(arm, made, made).runs.values())
    assert {target: [one.attack for one in own] for target, own in found.items()} == {
        "model": ["RMIA"] * 2,
        "uploads": ["FedMIA"] * 2,
    }


def test_what_gives_most_away_is_told_of_each_arm_with_the_wider_interval(arm, tmp_path):
    both = audit(model={"RMIA": 0.8}, uploads={"FedMIA": 0.9}), audit(model={"RMIA": 0.8}, uploads={"RMIA": 0.92})
    other = audited(result(tmp_path, "mixed", [2.1], [0.5]), audit(adapters={"RMIA": 0.55}))
    [sentence] = told({one.arm: one.runs.values() for one in (audited(arm, *both), other)})
    # Over the two seeds 0.91 ± 12.706 · 0.01, and no AUC is above 1.
    first = "single uploads of FedAvg: 91 (95 %: 78 to 100), by FedMIA and RMIA (2 runs)"
    second = "each site's own adapter of mixed: 55 (95 %: 50 to 60), by RMIA (one run)"
    lead = "Audits, which attack with all that a run has kept, picked the right one of 100 pairs most often in"
    assert sentence == f"{lead} {first}; {second}."
    assert told({"FedAvg": arm.runs.values()}) == ()


def test_it_stands_on_the_first_screen(arm):
    one = audited(arm, audit(model={"RMIA": 0.8}))
    outcome = Outcome("x", [one], "FedAvg", "instruction", [0], Limits(), choose([one], Limits(), "instruction"), [])
    assert answers(outcome).answers[LEAKS][-1] == told({"FedAvg": one.runs.values()})[0]


def test_a_limit_is_held_against_audits_of_models_and_not_of_uploads(arm):
    limits = Limits(max_leakage=0.7)
    assert broken_limits(arm, limits) == []
    assert broken_limits(audited(arm, audit(model={"RMIA": 0.65}, uploads={"FedMIA": 0.9})), limits) == []
    assert broken_limits(audited(arm, audit(model={"RMIA": 0.8})), limits) == ["its leakage is 0.800"]

"""Arms with figures that a test says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from murmura.compare.outcome import ArmResult, Tried
from murmura.runs import read
from murmura.runs.audit import Audit, AuditedModel, Histogram, Separation
from tests.report.runs import classifier, metrics, write_run


def result(
    folder: Path,
    arm: str,
    losses: Sequence[float | None],
    leakage: Sequence[float] | None = None,
    epsilon: float | None = None,
    tried: tuple[Tried, ...] = (),
    privacy: Mapping[str, Any] | None = None,
    **more: Any,
) -> ArmResult:
    """An arm with a run for each loss, seeds 0, 1, 2 ..., that of None has failed; 4.5 MB travel up in each and 9 MB
    down."""
    runs = {}
    for seed, loss in enumerate(losses):
        if loss is None:
            continue
        auc = None if leakage is None else leakage[seed]
        attack: Mapping[str, Any] = {"attack_auc": auc, "attack_auc_low": None, "attack_auc_high": None}
        if auc is not None:
            attack = {"attack_auc": auc, "attack_auc_low": auc - 0.05, "attack_auc_high": auc + 0.05}
        rows = [metrics(0), metrics(1), metrics(2, heldout_loss=loss, **attack)]
        rows[-1] |= {} if privacy is None else {"privacy": privacy}
        runs[seed] = read(write_run(folder / arm / f"s{seed}", arm, seed, rows))
    seeds, rate, steps = range(len(losses)), more.get("rate", 1e-3), more.get("steps", 12)
    return ArmResult(arm, "instruction", seeds, runs, rate, tried, steps, epsilon, "")


def secret(one: ArmResult) -> ArmResult:
    """The arm with runs of which it is secret whom their rounds asked, so that bytes are expected ones."""
    runs = {
        seed: replace(run, rounds=(*run.rounds[:-1], replace(run.last, expected=("bytes_up", "bytes_down"))))
        for seed, run in one.runs.items()
    }
    return replace(one, runs=runs)


def labels(folder: Path, arm: str) -> ArmResult:
    """An arm about another kind of record."""
    run = read(classifier(folder / arm))
    return ArmResult(arm, "labelled", [0], {0: run}, 1e-3, (), 12, None, "")


def audit(*, members: int = 150, **targets: Mapping[str, float]) -> Audit:
    """What an audit found of what it attacked: each attack's AUC, of which the first is the strongest."""
    models = []
    for target, aucs in targets.items():
        attacks = tuple(Separation(name, auc, auc - 0.05, auc + 0.05, None, None, None) for name, auc in aucs.items())
        models.append(AuditedModel(target, members, 120, attacks[0].attack, attacks, Histogram((0.0, 1.0), (3,), (2,))))
    return Audit("0.1", "now", tuple(models), (), (), (), None, (), ())


def audited(one: ArmResult, *audits: Audit) -> ArmResult:
    """The arm with audits of its first runs."""
    runs = {seed: replace(run, audit=made) for (seed, run), made in zip(one.runs.items(), audits, strict=False)}
    return replace(one, runs={**one.runs, **runs})

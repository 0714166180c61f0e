"""What attacks find as rounds go on: in the model, in single uploads, and with all models and uploads together; whether
noise takes it away; and how far canaries bear that out.

    python studies/leakage.py --data FOLDER --out runs/leakage          # writes runs/leakage/leakage.toml, its records
    murmura compare runs/leakage/leakage.toml --jobs 2 --out runs/leakage
    murmura audit runs/leakage/runs/FedAvg-seed0 --texts 0     # and of every other run
    python studies/leakage.py --out runs/leakage --show                 # what the comparison's own tables do not tell

FOLDER holds ``medical_icliniq.jsonl``, questions of patients and answers. Five sites share some of them evenly, others
are held out, and canaries are written into the sites' records besides. All arms read a record as often and have a rate
of their own, but for the controls: FedAvg at a rate at which nothing is learnt, and no noise at the rate of DP-LoRA.
``--full`` writes the comparison for a large machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from math import inf, log2
from pathlib import Path
from statistics import fmean
from typing import Any

import runs
from murmura.audit.curious import FEDMIA, RMIA
from murmura.measure.catalogue import exposure_by_chance
from murmura.measure.statistics import Estimate
from murmura.runs import RunRecord
from murmura.runs.audit import TARGETS
from murmura.units import DASH
from runs import apart, pipes, run_records, short_questions

SITES = 5
RANK = 4
NO_RATE = 1e-9
ATTACK = "error zone"
"""By which rounds and uploads are compared: one attack for all, fixed beforehand."""
BETWEEN = (("model", ATTACK), ("model", RMIA), ("uploads", FEDMIA))
"""By which attacks of audits, and on what, arms are compared."""
SMALL, FULL = runs.scales(
    words=(20, 400),  # at most, of a question and of an answer
    records=(50, 100),  # of a site
    heldout=(180, 300),
    attacked=(250, 500),  # of the sites' records
    canaries=(50, 500),
    candidates=(2, 32),
    rounds=(4, 12),
    every=(2, 1),
    epochs=(2, 1),
    batch=(4, 4),
    noisy_batch=(16, 16),  # expected, of DP-LoRA
    noisy_steps=(7, 12),  # of a round: as many passes
    layers=("last 4", "all"),
    rates=([5e-3, 1e-2], [1e-4, 3e-4, 1e-3, 3e-3]),
    sgd_rates=([1.0, 3.0], [0.1, 0.3, 1.0, 3.0]),  # of DP-LoRA without noise
    noisy_rates=([0.3, 1.0], [0.1, 0.3, 1.0, 3.0]),
    epsilons=([8.0], [32.0, 8.0, 2.0]),
    seeds=(3, 5),
    uploads=(1, SITES),
    max_length=(112, 1024),
)


def main() -> None:
    """Write the comparison and its records, or show what its runs and audits have found."""
    parser = runs.parser(__doc__)
    parser.add_argument("--show", action="store_true", help="what finished runs and audits have found, nothing else")
    options = runs.parse(parser, reading="show")
    if options.show:
        print(shown(options.out))
        return
    scale = FULL if options.full else SMALL
    short_questions(options.data, options.out, scale.words, SITES * scale.records + scale.heldout)
    written = comparison(options.model, options.dtype, scale)
    runs.save(written, options.out / "leakage.toml")


def comparison(model: str, dtype: str, scale: runs.Scale) -> dict[str, Any]:
    """The comparison's file."""
    steps = {"epochs": 1, "max_steps": scale.noisy_steps, "batch_size": scale.noisy_batch}
    training = steps | {"optimizer": "sgd", "schedule": "constant", "clip": 1.0}
    without_noise = {"method": {"name": "dplora", "noise_multiplier": 0.0}, "training": training}
    return {
        "compare": {
            "name": "leakage",
            "seeds": scale.seeds,
            "rates": scale.rates,
            "arms": [
                {"name": "FedAvg"},
                {"name": "nothing learnt", "rates": [NO_RATE], "training": {"lr_min": NO_RATE}},
                {"name": "no noise", "rates": scale.sgd_rates} | without_noise,
                {"method": {"name": "dplora"}, "grid": {"method.epsilon": scale.epsilons}}
                | {"training": training, "rates": scale.noisy_rates},
                *(
                    {"name": f"no noise, rate of ε={epsilon:g}", "rate_of": f"DP-LoRA ε={epsilon:g}"} | without_noise
                    for epsilon in scale.epsilons
                ),
            ],
        },
        **runs.of_questions(model, dtype, scale, SITES, RANK),
        "training": {"batch_size": scale.batch, "epochs": scale.epochs, "tokens_per_pass": 512},
        "method": {"name": "fedit", "rounds": scale.rounds},
        "evaluation": {"every": scale.every, "sample": 1, "attacks": True}
        | {"attack_records": scale.attacked, "uploads": scale.uploads},
        "audit": {"canaries": scale.canaries, "candidates": scale.candidates, "keep": True},
    }


Found = Mapping[str, Mapping[int, RunRecord]]
"""Finished runs by arm and seed."""
Series = Mapping[int, float]
"""A figure by seed."""


def shown(out: Path) -> str:
    """What runs and audits have found, in Markdown: how the AUC of one attack goes on with rounds, and what single
    uploads add; how well canaries were told; and what all attacks of the audits found. Means over the seeds with 95 %
    intervals (Student's t)."""
    found = run_records(out)
    tables = (_losses, _by_round, _of_uploads, _of_canaries, _of_audits, _between_arms)
    return "\n".join(table(found) for table in tables)


def _losses(found: Found) -> str:
    """The held-out loss round by round, and by how much it is larger after the last than after the first measured."""
    rounds = _rounds(found, "attack")
    lines = []
    for arm, own in found.items() if rounds else ():
        each = [
            {
                seed: row.values["heldout_loss"]
                for seed, run in own.items()
                for row in run.rounds
                if row.number == number
            }
            for number in rounds
        ]
        lines.append([arm, *(_mean(one, inf) for one in each), apart(each[-1], each[0])])
    return pipes(["held-out loss after round", *map(str, rounds), "last − first"], lines)


def _by_round(found: Found) -> str:
    """The AUC of one attack on the model, and by how much it is larger after the last round than after the first that
    was measured."""
    rounds = _rounds(found, "attack")
    lines = []
    for arm, own in found.items() if rounds else ():
        each = [_auc(own, number, "attack") for number in rounds]
        lines.append([arm, *map(_mean, each), apart(each[-1], each[0])])
    return pipes([f"AUC of {ATTACK} on the model after round", *map(str, rounds), "last − first"], lines)


def _of_uploads(found: Found) -> str:
    """The AUC of the same attack on single uploads of each round, and by how much it is above that on the model; and
    the latter by audits, which attack the last upload of every site."""
    rounds = _rounds(found, "upload")
    heads = [head for number in rounds for head in (f"round {number}", "above the model")]
    lines = []
    for arm, own in found.items():
        pairs = [(_auc(own, number, "upload"), _auc(own, number, "attack")) for number in rounds]
        uploads, model = (_audited(own, "auc").get((target, ATTACK), {}) for target in ("uploads", "model"))
        cells = [cell for some, other in pairs for cell in (_mean(some), apart(some, other))]
        lines.append([arm, *cells, apart(uploads, model)])
    return pipes([f"AUC of {ATTACK} on single uploads", *heads, "audits: above the model"], lines)


def _of_canaries(found: Found) -> str:
    """How far the last models and uploads give canaries away. Which ε goes with that is on the pages of the runs."""
    lines = []
    for arm, own in found.items():
        last = {seed: run.last.values for seed, run in own.items()}
        counts = [run.options.get("audit", {}).get("candidates", 2) for run in own.values()]
        most, chance = log2(max(counts)), fmean(map(exposure_by_chance, counts))
        cells = [
            _mean({seed: values[key] for seed, values in last.items() if key in values}, most)
            for key in ("exposure", "upload_exposure")
        ]
        lines.append([arm, *cells, f"{chance:.3f}"])
    return pipes(["exposure of canaries, bits", "the model", "single uploads", "by chance"], lines)


def _of_audits(found: Found) -> str:
    """The AUC of each attack of the audits, by how much it is above that of the one attack, and the share of members
    that it finds at 1 % false positives, seed by seed."""
    lines = []
    for arm, own in found.items():
        told, shares = _audited(own, "auc"), _audited(own, "tpr")
        for (target, attack), auc in told.items():
            above = DASH if attack == ATTACK else apart(auc, told.get((target, ATTACK), {}))
            found_of = ", ".join(f"{share:.0%}" for share in shares.get((target, attack), {}).values()) or DASH
            lines.append([f"{arm}, {TARGETS[target]}", attack, _mean(auc), above, found_of, str(len(auc))])
    return pipes(["arm, attacked", "attack", "AUC", f"above {ATTACK}", "found at 1 %", "runs"], lines, words=(0, 1))


def _between_arms(found: Found) -> str:
    """By how much the AUC of an audit's attacks is larger of one arm than of another."""
    told = {arm: _audited(own, "auc") for arm, own in found.items() if any(run.audit for run in own.values())}
    lines = []
    for one, other in combinations(told, 2):
        cells = [apart(told[one].get(key, {}), told[other].get(key, {})) for key in BETWEEN]
        lines.append([f"{one} − {other}", *cells])
    return pipes(["difference in AUC", *(f"{attack}, {TARGETS[target]}" for target, attack in BETWEEN)], lines)


def _audited(own: Mapping[int, RunRecord], figure: str) -> dict[tuple[str, str], dict[int, float]]:
    """Of an arm's audits a figure of each attack on each of ``TARGETS``, by seed."""
    told: dict[tuple[str, str], dict[int, float]] = {}
    for seed, run in own.items():
        for model in run.audit.models if run.audit else ():
            for one in model.attacks:
                if (value := getattr(one, figure)) is not None:
                    told.setdefault((model.target, one.attack), {})[seed] = value
    return told


def _rounds(found: Found, target: str) -> list[int]:
    """Those in which the model (``attack``) or single uploads (``upload``) were attacked after training."""
    rows = [row for own in found.values() for run in own.values() for row in run.rounds]
    return sorted({row.number for row in rows if row.number and target in row.attacks})


def _auc(own: Mapping[int, RunRecord], number: int, target: str) -> Series:
    rows = {seed: row.attacks for seed, run in own.items() for row in run.rounds if row.number == number}
    each = {seed: attacks[target].each for seed, attacks in rows.items() if target in attacks}
    return {seed: auc[ATTACK][0] for seed, auc in each.items() if ATTACK in auc}


def _mean(series: Series, most: float = 1) -> str:
    """Of figures from 0 to ``most``, as AUCs are."""
    return Estimate.of(list(series.values()), 0, most).words if series else DASH


if __name__ == "__main__":
    main()

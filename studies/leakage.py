"""What attacks see of FedAvg, FewFedPIT, DP-LoRA and LP-FL: membership inference and canaries, round by round.

    python studies/leakage.py --medical FILE --texts FILE --out runs/leakage           # two CPU cores, some two hours
    python studies/leakage.py --medical FILE --texts FILE --out runs/leakage --full    # for a GPU

``--medical`` is ``medical_icliniq.jsonl`` (questions of patients and answers), ``--texts`` a file of short texts with a
label that ``lpfl.py`` has words for, such as ``sentiment_movie_rt.jsonl``; the clinic example is in this repository.

First a pilot with a seed of its own, without canaries or attacks, chooses rates by the loss on held-out records, so
that arms are compared where each of them is useful. Then FedAvg is run with the first seed, beside a control: the same
at a rate at which nothing is learnt; ``--pilot`` does no more than that. Then each arm is run with each seed, with
canaries among the records, and the model and single uploads are attacked after each round. Last, all records are scored
one by one under each run's final model, so that arms can be compared on the same records (``paired.py``). Runs that are
finished are kept, unfinished ones are resumed, so the command may be stopped and given again. It ends with the tables.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean

import paired
from leakage_runs import ARMS, CLINIC, CONTROL, FULL, SETS, SMALL, TEXT_ARMS, Study, prepare, rows
from paired import Estimate, Scored

from murmura.runs import RunFolder
from murmura.units import DASH, decimal, signed
from runs import finished, pipes, show, together

COMPARED = {
    "leakage falls with β": [("fedavg", "beta-0.5"), ("beta-0.5", "beta-0"), ("fedavg", "beta-0")],
    "attacks weaken with noise": [("dplora-inf", "dplora-8")],
    "annotating lowers leakage": [("labelled", "lpfl")],
}
SAME = "beta-1"  # the runs of FedAvg again, which count once
FEWEST = 3  # runs that an interval over runs is given for
ATTACK = {"clinic": "error zone", "medical": "error zone", "texts": "loss difference"}
"""By which arms, rounds and uploads are compared: one attack for all, fixed beforehand."""


def main() -> None:
    """Run what is missing, then print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--medical", type=Path, required=True, help="questions and answers, a JSONL file")
    parser.add_argument("--texts", type=Path, required=True, help="labelled texts, a JSONL file")
    parser.add_argument("--out", type=Path, required=True, help="where runs are kept")
    parser.add_argument("--full", action="store_true", help="the full study, for a GPU")
    parser.add_argument("--sets", choices=SETS, nargs="+", default=list(SETS))
    parser.add_argument("--arms", choices=[*ARMS, *TEXT_ARMS], nargs="+", default=[*ARMS, *TEXT_ARMS])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--pilot", action="store_true", help="only choose rates")
    parser.add_argument("--show", action="store_true", help="run nothing, print the tables of what is there")
    parser.add_argument("--at-once", type=int, default=1, help="runs side by side")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--table", type=Path, help="also write the tables as Markdown, in this folder")
    options = parser.parse_args()
    scale = FULL if options.full else SMALL
    files = {"clinic": CLINIC, "medical": options.medical, "texts": options.texts}
    studies = [
        Study(name, options.out, scale, options.model, prepare(name, files[name], options.out, scale))
        for name in options.sets
    ]
    if options.show:
        tables(studies, options.seeds, options.table)
        return
    wanted = {study.name: [arm for arm in study.arms if arm in options.arms] for study in studies}
    together([job for study in studies for job in study.pilot(wanted[study.name])], options.at_once)
    for study in studies:
        print(rates_table(study))
    pilots = {study.name: study.pilots for study in studies}
    complete(studies, pilots, options.seeds[:1], options.at_once)
    for study in studies:
        print(pilot_table(study, options.seeds[0]))
    if options.pilot:
        return
    complete(studies, wanted, options.seeds, options.at_once)
    tables(studies, options.seeds, options.table)


def complete(studies: Sequence[Study], arms: Mapping[str, Sequence[str]], seeds: Sequence[int], at_once: int) -> None:
    """Run what is missing, seed by seed, and score single records."""
    for seed in seeds:
        together([job for study in studies for job in study.runs(arms[study.name], seed)], at_once)
        together([partial(study.score, arms[study.name], seed) for study in studies], at_once)


def tables(studies: Sequence[Study], seeds: Sequence[int], folder: Path | None) -> None:
    """Print the tables of all runs that are there, and write them as Markdown."""
    for study in studies:
        names = [f"{study.name}-{arm}" for arm in study.arms]
        markdown = folder / f"leakage-{study.name}.table.md" if folder else None
        canaries = () if study.name == "texts" else ("exposure", "upload_exposure")
        more = [rates_table(study), pilot_table(study, seeds[0]), levels(study, seeds), differences(study, seeds)]
        rounds = ("attack_auc", "upload_auc", *canaries)
        show(finished(study.out, names), ("heldout_loss", "attack_auc"), markdown, rounds, more)
    overall = over_runs(studies, seeds)
    print(overall)
    if folder:
        (folder / "leakage-runs.table.md").write_text(overall)


def scored(study: Study, arm: str, seed: int) -> Scored | None:
    """Scores of single records under a run's final model; None where there is none."""
    file = paired.beside(study.folder(arm, seed))
    return Scored.of(file, ATTACK[study.name]) if file.exists() else None


def done(study: Study, seeds: Sequence[int]) -> dict[str, list[Path]]:
    """The folders of finished runs, by arm."""
    folders = {arm: [study.folder(arm, seed) for seed in seeds] for arm in study.arms}
    found = {arm: [one for one in own if RunFolder(one).is_finished] for arm, own in folders.items()}
    return {arm: own for arm, own in found.items() if own}


def rates_table(study: Study) -> str:
    """What the pilot found."""
    lines = [["arm", "held-out loss by rate, seed 100", "chosen"], ["---", "---", "--:"]]
    for arm in study.arms:
        losses = study.losses(arm)
        if losses:
            found = ", ".join(f"{lr:g}: {decimal(loss)}" for lr, loss in losses.items())
            lines.append([arm, found, f"{study.rate(arm):g}"])
    return pipes(lines)


def levels(study: Study, seeds: Sequence[int]) -> str:
    """The AUC of each arm's final model over all records, by one attack."""
    lines = [[f"AUC of the final model by {ATTACK[study.name]}", "mean over seeds", "seeds"], ["---", "---", "--:"]]
    for arm in study.arms:
        found = [run for seed in seeds if (run := scored(study, arm, seed))]
        if found:
            lines.append([arm, interval(paired.auc(found)), str(len(found))])
    return pipes(lines)


def differences(study: Study, seeds: Sequence[int]) -> str:
    """What arms differ in on the same records."""
    lines = [["difference in AUC on the same records", "question", "mean over seeds", "shown"], ["---"] * 4]
    for question, pairs in COMPARED.items():
        for one, other in pairs:
            if both := of_both(study, one, other, seeds):
                lines.append([f"{one} − {other}", question, *words(paired.difference(both))])
    return pipes(lines)


def of_both(study: Study, one: str, other: str, seeds: Sequence[int]) -> list[tuple[Scored, Scored]]:
    """The scores of two arms, for all seeds that both have been run with."""
    found = [(scored(study, one, seed), scored(study, other, seed)) for seed in seeds]
    return [(a, b) for a, b in found if a and b]


def pilot_table(study: Study, seed: int) -> str:
    """Whether the pilot sees anything: FedAvg and the control, in which nothing is learnt, with one seed."""
    lines = [[f"pilot, AUC by {ATTACK[study.name]}", "members", "others", "AUC"], ["---", "--:", "--:", "---"]]
    for arm in study.pilots:
        if run := scored(study, arm, seed):
            lines.append([arm, str(len(run.members)), str(len(run.others)), interval(paired.auc([run]))])
    if both := of_both(study, "fedavg", CONTROL, [seed]):
        lines.append(["fedavg − control", "", "", words(paired.difference(both))[0]])
    return pipes(lines) if len(lines) > 2 else ""


def steps(study: Study, seeds: Sequence[int]) -> list[tuple[str, float | None, float | None]]:
    """Of each finished run with something to see: its arm, by how much the AUC of its uploads is above that of its
    model in the last round, and by how much its model's is in the last round above the first."""
    found = []
    for arm, folders in done(study, seeds).items():
        for folder in folders if arm != SAME else []:
            model, uploads = (auc_by_round(study, folder, target) for target in ("attack", "upload"))
            last = max(model)
            above = uploads[last] - model[last] if last in uploads else None
            found.append((arm, above, model[last] - model[1] if 1 in model and last > 1 else None))
    return found


def auc_by_round(study: Study, folder: Path, target: str) -> dict[int, float]:
    """The AUC in each round by the set's one attack, of the model or of the uploads."""
    told = {row["round"]: row.get("attacks", {}).get(target) for row in rows(folder)}
    return {round: one["each"][ATTACK[study.name]][0] for round, one in told.items() if one}


def interval(found: Estimate) -> str:
    """A figure with its interval."""
    return f"{decimal(found.value)} ({decimal(found.low)}–{decimal(found.high)})"


def words(found: Estimate) -> list[str]:
    """A difference and its interval; and whether that excludes 0, and on which side."""
    shown = ("yes" if found.value > 0 else "the opposite") if found.shows else "no"
    return [f"{signed(found.value)} ({signed(found.low)} to {signed(found.high)})", shown]


def over_runs(studies: Sequence[Study], seeds: Sequence[int]) -> str:
    """Whether uploads leak more than the model, and later rounds more than the first: over the runs of each arm, on all
    sets and with all seeds, and over all runs."""
    lines = [["over runs", "question", "runs above 0", "mean", "shown"], ["---"] * 5]
    every = [one for study in studies for one in steps(study, seeds)]
    arms = dict.fromkeys(arm for arm, *_ in every)
    for place, question in ((1, "uploads leak more than the aggregate"), (2, "leakage rises with rounds")):
        for name in [*arms, "all arms"]:
            values = [value for one in every if name in (one[0], "all arms") and (value := one[place]) is not None]
            above = f"{sum(value > 0 for value in values)} of {len(values)}"
            if len(values) >= FEWEST:
                lines.append([name, question, above, *words(paired.over_runs(values))])
            elif values:
                lines.append([name, question, above, signed(fmean(values)), DASH])
    return pipes(lines)


if __name__ == "__main__":
    main()

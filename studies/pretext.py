"""PrE-Text and what it is compared with: training on texts that 200 sites voted for, on public ones, on private ones,
and by DP-FedAvg.

    python studies/pretext.py --data FOLDER --out runs/pretext          # two CPU cores, some 40 minutes a seed
    python studies/pretext.py --data FOLDER --out runs/pretext --full   # the paper's sizes, for a large machine
    python studies/pretext.py --data FOLDER --out runs/pretext --secure # also the votes without noise by a secure sum

FOLDER holds ``finance_phrasebank.jsonl`` and ``sentiment_movie_rt.jsonl`` (text), and ``medical_icliniq.jsonl``,
``code_codealpaca.jsonl``, ``math_gsm8k_train.jsonl`` and ``general_seed_tasks.jsonl`` (instruction, input, output). The
sites' texts are news of finance, four at each; the public texts are from the other files, a like number of each; no
text is longer than 24 words.

``public-only`` trains a model on public texts, and all others begin with it. ``expand-only`` goes on with texts that
are expanded from public ones, ``pretext-ε`` from those that sites voted for, ``expand-private`` from the private ones
themselves; ``private-only`` with the private texts, and ``dpfedavg-ε`` by DP-FedAvg, which trains all parameters, as
in the paper; the others train an adapter. Of expanded texts that are cut off whole sentences are kept. One model
writes, varies and is trained. A pilot with a seed of its own chooses each arm's learning rate, and DP-FedAvg's
clipping norm, by the loss on held-out news; votes at every ε share the rate of 7.58. It shows whether expanded private
texts help at all: if not, nothing that is like them can. No ε counts that choice.

What votes can show here: 200 sites cast 800 of them, against noise of σ = 31 on each candidate at ε = 1.29 and of 6.4
at 7.58 (six rounds, four votes a site). Of 64 candidates from other domains, the ten that are most like the news have
two votes in three, the first about 100 and the tenth 30; of hundreds, nearly all would be below σ at ε = 1.29. So there
are few candidates, and the twelve with the most votes survive (rank): drawn in proportion to their votes, half of them
would be noise at ε = 1.29, while without noise every candidate with a vote might become a seed, so that less noise
would make worse seeds. No masked model can be had without a network, so texts are varied by continuing them. Texts are
cut anywhere (``change = 1``). That may replace nearly all of a text, so where
variations stand says little of it, and candidates stand where they are, without look-ahead, as in Aug-PE.

Finished runs are kept, unfinished ones are resumed, so the command may be stopped and given again. It ends with the
tables. For these it measures how far the private texts are from every round's candidates and from what each arm was
trained on, of runs with an ε too: all files are here, and nothing of it goes back into a run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from pretext_runs import (
    ARMS,
    FULL,
    PILOT_SEED,
    PILOTS,
    SMALL,
    START,
    UNNOISED,
    VOTED,
    Study,
    minutes,
    pilot_tokens,
    tokens,
)

from murmura.runs import RunFolder, read
from murmura.runs.schema import FIGURES
from murmura.units import DASH, decimal, signed
from runs import apart, ends, levels, parser, pipes

CLAIMS = {
    "votes beat public texts alone": [("pretext-1.29", START), ("pretext-7.58", START)],
    "votes beat expanded public texts": [("pretext-1.29", "expand-only"), ("pretext-7.58", "expand-only")],
    "votes beat DP-FedAvg at one ε": [("pretext-1.29", "dpfedavg-1.29"), ("pretext-7.58", "dpfedavg-7.58")],
    "expanded private texts beat votes": [("expand-private", "pretext-7.58"), ("expand-private", "pretext-inf")],
    "less noise is better": [("pretext-7.58", "pretext-1.29"), ("pretext-inf", "pretext-7.58")],
}
"""What Hou et al. 2024 found, as pairs of arms of which the first is the better; the last pair is ours."""
MEASURED = ("heldout_loss", "heldout_accuracy")


def main() -> None:
    """Run what is missing, then print the tables."""
    parsed = parser(__doc__, ARMS)
    parsed.add_argument("--secure", action="store_true", help="also sum the votes without noise securely, and compare")
    parsed.add_argument("--picture", type=Path, help="also draw distances and losses, here: FILE.svg or FILE.png")
    options = parsed.parse_args()
    study = Study(options.data, options.out, FULL if options.full else SMALL, options.model)
    if not options.show:
        print(estimate(study, options.arms, options.seeds), flush=True)
        for seed in (PILOT_SEED, *options.seeds):
            study.records(seed)
        study.pilot(options.arms, options.at_once)
        print(pilot_table(study))
        for seed in options.seeds:
            study.complete(options.arms, seed, options.at_once)
            if options.secure:
                study.run_secured(seed)
    text = tables(study, options.seeds)
    print(text)
    if options.table is not None:
        options.table.write_text(text, encoding="utf-8")
    if options.picture is not None:
        draw(study, options.seeds, options.picture)


def estimate(study: Study, arms: Sequence[str], seeds: Sequence[int]) -> str:
    """What each arm takes, in tokens, and about how long on two cores; as Markdown."""
    lines = [["arm", "writes", "reads", "trains on", "minutes for SmolLM2-135M"], ["---", *["--:"] * 4]]
    asked = [(f"pilot of {arm}", 1, pilot_tokens(study.scale, arm)) for arm in dict.fromkeys(PILOTS[a] for a in arms)]
    asked += [(arm, len(seeds), tokens(study.scale, arm)) for arm in arms]
    total = 0.0
    for name, times, own in asked:
        total += times * minutes(own)
        lines.append([f"{name} (× {times})", *(f"{count:,.0f}" for count in own.values()), f"{minutes(own):.1f}"])
    lines.append(["all, without loading the model", "", "", "", f"{total:.0f}"])
    return pipes(lines)


def tables(study: Study, seeds: Sequence[int]) -> str:
    """All of them, of the runs that are there, as Markdown."""
    folders = study.folders(seeds)
    found = [levels(folders, seeds, key, START) for key in MEASURED]
    found += [orderings(folders), distances_table(study, seeds), costs(folders), secure_table(study, seeds)]
    return "\n".join([one for one in [*found, pilot_table(study)] if one])


def orderings(folders: Mapping[str, Mapping[int, Path]]) -> str:
    """By how much the arm that should be better is so, and with how many seeds; of the pairs that were run."""
    lines = [["claimed", "loss", "seeds", "accuracy", "seeds"], ["---", *["--:"] * 4]]
    for claim, pairs in CLAIMS.items():
        for better, worse in pairs:
            cells = []
            for key, sign in zip(MEASURED, (-1, 1), strict=True):
                one, other = ends(folders[better], key), ends(folders[worse], key)
                if gains := [sign * (one[seed] - other[seed]) for seed in one if seed in other]:
                    far = apart(one, other) if len(gains) > 1 else signed(sign * gains[0])
                    cells += [far, f"{sum(gain > 0 for gain in gains)} of {len(gains)}"]
            if cells:
                lines.append([f"{claim}: {better} against {worse}", *cells])
    return pipes(lines)


def distances_table(study: Study, seeds: Sequence[int]) -> str:
    """How far private texts are from the nearest candidate, round by round, and from the nearest text that the arm was
    trained on; means over the seeds."""
    rounds = study.scale.voting["rounds"]
    heads = [*map(str, range(1, rounds + 1)), "texts trained on", "its seeds"]
    lines = [["Distance of the private texts by round", *heads], ["---", *["--:"] * len(heads)]]
    for arm, told in all_told(study, seeds).items():
        by_round = [decimal(fmean(one)) for one in zip(*(own["rounds"] for own in told.values()), strict=True)]
        texts = decimal(fmean(own["texts"] for own in told.values()))
        lines.append([arm, *(by_round or [DASH] * rounds), texts, ", ".join(map(str, told))])
    return pipes(lines)


def all_told(study: Study, seeds: Sequence[int]) -> dict[str, dict[int, dict[str, Any]]]:
    """Distances by arm and seed, of the finished runs that have texts."""
    on_texts = [arm for arm, method in ARMS.items() if "seeds" in method]
    found = {
        arm: {seed: study.told(arm, seed) for seed in seeds if RunFolder(study.folder(arm, seed)).is_finished}
        for arm in on_texts
    }
    return {arm: own for arm, own in found.items() if own}


def costs(folders: Mapping[str, Mapping[int, Path]]) -> str:
    """What each arm spent and sent, of its first finished run. Of one that guarantees something the owner alone knows
    how long it took."""
    lines = [["One run", "ε", "bytes up", "bytes down", "seconds", "peak memory"], ["---", *["--:"] * 5]]
    for arm, own in folders.items():
        done = [folder for folder in own.values() if RunFolder(folder).is_finished][:1]
        for folder in done:
            run = read(folder)
            epsilon, totals = run.last.values.get("epsilon"), {**run.totals, **_owners(folder)}
            spent = DASH if epsilon is None else f"{epsilon:.2f}"
            memory = f"{totals['peak_memory'] / 1e9:.2f} GB"
            sent = [f"{totals[key]:,.0f}" for key in ("bytes_up", "bytes_down")]
            lines.append([arm, spent, *sent, f"{totals['wall']:.0f}", memory])
    return pipes(lines)


def _owners(folder: Path) -> dict[str, float]:
    """Time and memory of a run that guarantees something, which only its owner has."""
    if not (folder / FIGURES).exists():
        return {}
    rows = [json.loads(line) for line in (folder / FIGURES).read_text(encoding="utf-8").splitlines()]
    known = [row for row in rows if "wall" in row]
    return {"wall": sum(row["wall"] for row in known), "peak_memory": max(row["peak_memory"] for row in known)}


def secure_table(study: Study, seeds: Sequence[int]) -> str:
    """Whether secure sums give the same votes, and what they cost; nothing where there are none."""
    lines = [
        ["Votes by a secure sum", "rounds that are the same to the bit", "bytes up", "in clear", "seconds", "in clear"]
    ]
    lines.append(["---", *["--:"] * (len(lines[0]) - 1)])
    for seed in seeds:
        folders = [study.secured(seed), study.folder(UNNOISED, seed)]
        if all(RunFolder(folder).is_finished for folder in folders):
            alike, runs = study.summed_alike(seed), [read(folder) for folder in folders]
            up = [f"{run.totals['bytes_up']:,.0f}" for run in runs]
            took = [f"{sum(one.values['wall'] for one in run.rounds[1:-1]):.0f}" for run in runs]
            lines.append([f"seed {seed}", f"{sum(alike)} of {len(alike)}", *up, *took])
    return pipes(lines) if len(lines) > 2 else ""


def pilot_table(study: Study) -> str:
    """What the pilot found: the loss by setting, the chosen one marked."""
    lines = [["Pilot: held-out loss by learning rate (DP-FedAvg: by clipping norm)", "chosen"], ["---", "--:"]]
    for arm in dict.fromkeys(PILOTS.values()):
        if losses := study.piloted(arm):
            told = ", ".join(f"{one:g}: {decimal(loss)}" for one, loss in losses.items())
            lines.append([f"{arm}: {told}", f"{study.setting(arm):g}"])
    return pipes(lines)


def draw(study: Study, seeds: Sequence[int], path: Path) -> None:
    """Distance of the private texts from the candidates by round, and the loss of every arm's model."""
    from matplotlib.figure import Figure

    canvas = Figure(figsize=(10, 4), layout="constrained")
    left, right = canvas.subplots(1, 2)
    told = all_told(study, seeds)
    for arm in (arm for arm in VOTED if arm in told):
        series = [own["rounds"] for own in told[arm].values()]
        means = [fmean(values) for values in zip(*series, strict=True)]
        rounds = range(1, len(means) + 1)
        [line] = left.plot(rounds, means, marker="o", label=arm)
        low, high = ([of(values) for values in zip(*series, strict=True)] for of in (min, max))
        left.fill_between(rounds, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
    left.set(xlabel="round", ylabel="mean distance of a private text\nfrom the nearest candidate")
    if left.lines:
        left.legend(frameon=False)
    losses = {arm: ends(own, "heldout_loss") for arm, own in study.folders(seeds).items()}
    losses = {arm: own for arm, own in losses.items() if own}
    for place, own in enumerate(losses.values()):
        right.plot(list(own.values()), [place] * len(own), "o", color="C7", alpha=0.6)
        right.plot(fmean(own.values()), place, "|", color="black", markersize=16)
    right.set_yticks(range(len(losses)), list(losses))
    right.invert_yaxis()
    right.set(xlabel="held-out loss (nats per token), a dot for each seed")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    canvas.savefig(path)


if __name__ == "__main__":
    main()

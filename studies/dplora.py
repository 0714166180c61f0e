"""DP-LoRA at several ε and ranks, against FFA-LoRA at equal ε and against T-FedAvg and CMFL, on two real data sets.

    python studies/dplora.py --data FOLDER --out runs/dplora                 # two CPU cores, about two hours
    python studies/dplora.py --data FOLDER --out runs/dplora --scale full    # for a GPU

FOLDER holds ``medical_icliniq.jsonl`` (questions of patients and answers) and ``finance_phrasebank.jsonl`` (sentences,
whose sentiment is asked for in words). Five sites share 1,000 records of one of them evenly; others are held out. All
arms train the same adapter with the same optimiser, rate, steps and clipping norm; ε = ∞ is DP-LoRA without noise, at a
third of the rate too, since the rate that suits noise is too high for some runs without any. Runs that are finished
are kept, unfinished ones are resumed, so the command may be stopped and given again. It ends with a table for each data
set.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import runs
from runs import finished, read_rows, shorten, show, work, write_rows

RECORDS, SITES = 1000, 5
SENTIMENT = "What is the sentiment of this sentence for an investor? Answer negative, neutral or positive."
DELTA = 1e-5
RANK = 8


def dplora(noise: dict[str, float], rule: str = "mean", rank: int = RANK, slower: float = 1.0) -> dict[str, Any]:
    """An arm with privacy: ``epsilon``, or ``noise_multiplier`` 0 for ε = ∞; its rate is ``slower`` times lower."""
    return {"method": {"delta": DELTA, **noise}, "rule": rule, "rank": rank, "slower": slower}


ARMS: dict[str, dict[str, Any]] = {
    "dplora-inf": dplora({"noise_multiplier": 0.0}),
    "dplora-inf-slower": dplora({"noise_multiplier": 0.0}, slower=3.0),
    **{f"dplora-{e}": dplora({"epsilon": float(e)}) for e in (8, 4, 2)},
    "ffa-inf": dplora({"noise_multiplier": 0.0}, "ffa"),
    **{f"ffa-{e}": dplora({"epsilon": float(e)}, "ffa") for e in (8, 4, 2)},
    "tfedavg": {"method": {"name": "tfedavg"}, "rule": "mean", "rank": RANK},
    "cmfl": {"method": {"name": "cmfl"}, "rule": "mean", "rank": RANK},
    **{f"dplora-8-rank{rank}": dplora({"epsilon": 8.0}, rank=rank) for rank in (2, 4, 16)},
}


SMALL, FULL = runs.scales(
    question_words=(22, 400),  # at most, of a record
    answer_words=(24, 400),
    rounds=(8, 50),
    steps=(1, 1),
    batch=(16, 64),
    lr=(3e-2, 2e-3),
    targets=(runs.above(runs.QUERY_AND_VALUE), runs.QUERY_AND_VALUE),
    heldout=(60, 200),
    sample=(16, 100),
    max_length=(112, 1024),
)
SCALES = {"small": SMALL, "full": FULL}


def main() -> None:
    """Run what is missing and print the tables after every run."""
    parser = runs.small_parser(__doc__, SCALES, seeds=(0, 1, 2))
    parser.add_argument("--sets", choices=("finance", "medical"), nargs="+", default=["finance", "medical"])
    parser.add_argument("--arms", choices=ARMS, nargs="+", default=list(ARMS))
    options = parser.parse_args()
    scale = SCALES[options.scale]
    for data in options.sets:
        prepare(data, options.data, options.out, scale)
        markdown = options.table / f"dplora-{data}.table.md" if options.table else None
        for seed in options.seeds:
            for arm in options.arms:
                folder = options.out / f"{data}-{arm}-seed{seed}"
                work(folder, experiment(data, options.out, folder, ARMS[arm], seed, options.model, scale))
                show(
                    finished(options.out, [f"{data}-{arm}" for arm in ARMS]),
                    ("heldout_loss", "heldout_rouge"),
                    markdown,
                )


def prepare(name: str, data: Path, out: Path, scale: runs.Scale) -> None:
    """Write the records as the study uses them: 1,000 for the sites, the others that are held out after them."""
    out.mkdir(parents=True, exist_ok=True)
    rows = medical(data, scale) if name == "medical" else finance(data, scale)
    Random(0).shuffle(rows)
    wanted = RECORDS + scale.heldout
    print(f"{name}: {len(rows)} records are short enough, {min(len(rows), wanted)} of them are used")
    write_rows(out / f"{name}.jsonl", rows[:wanted])


def medical(data: Path, scale: runs.Scale) -> list[dict[str, str]]:
    """Question and answer, each cut to whole sentences."""
    found = []
    for row in read_rows(data / "medical_icliniq.jsonl"):
        question, answer = shorten(row["input"], scale.question_words), shorten(row["output"], scale.answer_words)
        if question and answer:
            found.append({"instruction": question, "input": "", "output": answer})
    return found


def finance(data: Path, scale: runs.Scale) -> list[dict[str, str]]:
    """A sentence and its sentiment as an instruction; no sentence twice."""
    rows = {row["text"]: row["label"] for row in read_rows(data / "finance_phrasebank.jsonl")}
    return [
        {"instruction": SENTIMENT, "input": text, "output": label}
        for text, label in rows.items()
        if len(text.split()) <= scale.question_words
    ]


def experiment(
    name: str, out: Path, folder: Path, arm: dict[str, Any], seed: int, model: str, scale: runs.Scale
) -> dict[str, dict[str, Any]]:
    """The experiment file of one run."""
    data = {"train": str((out / f"{name}.jsonl").resolve()), "heldout_records": scale.heldout, "template": "chat"}
    sites = {"by": "partition", "count": SITES, "scheme": "iid"}
    pace = {"lr": scale.lr / arm.get("slower", 1.0), "batch_size": scale.batch, "max_steps": scale.steps}
    table = runs.begun(folder, seed, model, arm["rank"], scale.targets) | {
        "data": data | {"max_length": scale.max_length, "sites": sites},
        "training": pace | {"clip": 0.1, "tokens_per_pass": 2048},
        "aggregation": {"rule": arm["rule"]},
        "method": {"name": "dplora", "rounds": scale.rounds, **arm["method"]},
        "evaluation": {"every": scale.rounds, "sample": scale.sample, "attacks": False, "uploads": 0},
    }
    table["run"]["slots"] = SITES
    return table


if __name__ == "__main__":
    main()
